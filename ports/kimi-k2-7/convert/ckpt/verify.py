"""Compares a fused checkpoint with the Quark release it was made from, byte by byte, sharing no code with what made it.

The parser is this module's own, and so are the numbers: where the converter looks them up in tables, they are computed here.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

STRETCH = 4 << 20
_ROUTED = re.compile(
    r"(?P<layer>.*\.layers\.\d+\.mlp\.experts\.)(?P<expert>\d+)\.(?P<side>gate|up|down)_proj\.(?P<kind>weight|weight_scale)"
)


def _reason(error: Exception) -> str:
    """Why a file could not be read, without its name, which the caller says."""
    if isinstance(error, OSError):
        return f"can not be read: {(error.strerror or str(error)).lower()}"
    return f"can not be understood: {str(error) or type(error).__name__}"


class Different(Exception):  # noqa: N818
    """One line that names tensor, expert and offset."""


@dataclass(frozen=True, slots=True)
class Region:
    """A tensor as it lies on the disk."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


class Side:
    """One of the two checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.regions: dict[str, Region] = {}
        self.config: dict[str, Any] = self._json("config.json")
        for file in sorted(folder.glob("*.safetensors")):
            self._scan(file)
        self._open: dict[Path, int] = {}

    def _json(self, name: str) -> dict[str, Any]:
        try:
            data = json.loads((self.folder / name).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise Different(f"{self.folder / name}: {_reason(error)}") from None
        if not isinstance(data, dict):
            raise Different(f"{self.folder / name}: is no mapping")
        return data

    def _scan(self, file: Path) -> None:
        try:
            with file.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                entries = json.loads(stream.read(length))
            total = file.stat().st_size - 8 - length
            entries.pop("__metadata__", None)
            for name, entry in entries.items():
                begin, end = entry["data_offsets"]
                if name in self.regions or not 0 <= begin <= end <= total:
                    raise ValueError(f"{name} lies outside the file, or stands twice")
                self.regions[name] = Region(file, entry["dtype"], tuple(entry["shape"]), 8 + length + begin, end - begin)
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            struct.error,
            RecursionError,
            MemoryError,
            OverflowError,
        ) as error:
            raise Different(f"{file}: {_reason(error)}") from None

    def get(self, name: str) -> Region:
        """A tensor that must be there."""
        if name not in self.regions:
            raise Different(f"{self.folder}: {name} is missing")
        return self.regions[name]

    def drop_cached(self) -> None:
        """Let what is compared be what is on the disk, not what is left in memory."""
        for file in {region.file for region in self.regions.values()}:
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def read(self, region: Region, offset: int, length: int) -> npt.NDArray[np.uint8]:
        """Bytes of a tensor."""
        if region.file not in self._open:
            self._open[region.file] = os.open(region.file, os.O_RDONLY | os.O_CLOEXEC)
        content = bytearray(length)
        view, done = memoryview(content), 0
        while done < length:
            count = os.preadv(self._open[region.file], [view[done:]], region.offset + offset + done)
            if not count:
                raise Different(f"{region.file}: ends before its time")
            done += count
        return np.frombuffer(content, np.uint8)

    def close(self) -> None:
        """Close every file."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def verify(source: Path, made: Path, jobs: int, report: Callable[[int], None] = lambda _: None) -> None:
    """Raises :class:`Different` at the first difference that is found.  ``report`` is told of bytes that were compared."""
    left, right = Side(source), Side(made)
    right.drop_cached()
    try:
        expected = _expected(left)
        for name in sorted({*right.regions} - {*expected}):
            raise Different(f"{right.get(name).file}: {name} comes from nothing in the source")
        _files(left, right)
        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            tasks = [task for name, parts in expected.items() for task in _comparisons(left, right, name, parts)]
            for size in pool.map(lambda task: task(), tasks):
                report(size)
    finally:
        left.close()
        right.close()


def validate_fp8(source: Path, made: Path, jobs: int, report: Callable[[int], None] = lambda _: None) -> None:
    """Raises :class:`Different` where an FP8 checkpoint is not, number for number, the fused MXFP4 one it was made from."""
    left, right = Side(source), Side(made)
    right.drop_cached()
    try:
        expected: dict[str, Callable[[], int]] = {}
        for name, region in left.regions.items():
            if not (match := re.fullmatch(r"(.*\.mlp\.experts\.)(w13|w2)_weight(_scale)?", name)):
                expected[name] = lambda name=name: _single(left, right, name)  # type: ignore[misc]
            elif not match[3]:
                sides = ("gate", "up") if match[2] == "w13" else ("down",)
                rows = region.shape[1] // len(sides)
                for expert in range(region.shape[0]):
                    for number, side in enumerate(sides):
                        first = expert * region.shape[1] + number * rows
                        key = f"{match[1]}{expert}.{side}_proj.weight"
                        expected[key] = lambda key=key, name=name, first=first, rows=rows: _channels(  # type: ignore[misc]
                            left, right, name, key, first, rows
                        )
        scales = {f"{name}_scale" for name in expected if ".mlp.experts." in name}
        for name in sorted({*right.regions} - {*expected} - scales):
            raise Different(f"{right.get(name).file}: {name} comes from nothing in the source")
        _index(right)
        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            for size in pool.map(lambda task: task(), list(expected.values())):
                report(size)
    finally:
        left.close()
        right.close()


def _channels(left: Side, right: Side, fused: str, name: str, first: int, rows: int) -> int:
    """One expert's matrix: rows of the fused tensor, from ``first`` on."""
    codes, powers, made, scale = left.get(fused), left.get(f"{fused}_scale"), right.get(name), right.get(f"{name}_scale")
    half, groups = codes.shape[2], powers.shape[2]
    if (made.dtype, made.shape, scale.dtype, scale.shape) != ("F8_E4M3", (rows, half * 2), "F32", (rows, 1)):
        raise Different(f"{made.file}: {name} is {made.dtype} {list(made.shape)} with scales {scale.dtype} {list(scale.shape)}")
    step = max(1, STRETCH // (16 * half))
    for row in range(0, rows, step):
        count = min(step, rows - row)
        old = left.read(codes, (first + row) * half, count * half).reshape(count, half)
        exponents = _floats(left.read(powers, (first + row) * groups, count * groups), "U8").reshape(count, groups)
        new = right.read(made, row * half * 2, count * half * 2).reshape(count, half * 2)
        factors = _floats(right.read(scale, row * 4, count * 4), "F32")[:, None]
        wanted, found = _mxfp4(old, exponents), _e4m3(new) * factors
        same = (wanted == found) & (np.signbit(wanted) == np.signbit(found))
        if not same.all():
            at, column = np.argwhere(~same)[0]
            raise Different(
                f"{made.file}: {name}, byte {(row + at) * half * 2 + column} of the tensor "
                f"(channel {row + at}, column {column}): "
                f"{found[at, column]}, and {fused} has {wanted[at, column]}"
            )
    return made.length + scale.length


Parts = list[tuple[str, int]]
"""For a fused tensor, the names of what it holds, each with its expert; else the one name, with -1."""


def _expected(left: Side) -> dict[str, Parts]:
    expected: dict[str, dict[tuple[int, int], str]] = {}
    for name in left.regions:
        if match := _ROUTED.fullmatch(name):
            fused = f"{match['layer']}{'w2' if match['side'] == 'down' else 'w13'}_{match['kind']}"
            expected.setdefault(fused, {})[int(match["expert"]), int(match["side"] == "up")] = name
        elif not (name.endswith("_scale") and name.removesuffix("_scale") in left.regions):
            expected.setdefault(name, {})[-1, 0] = name
    return {name: [(parts[key], key[0]) for key in sorted(parts)] for name, parts in expected.items()}


def _comparisons(left: Side, right: Side, name: str, parts: Parts) -> Iterator[Callable[[], int]]:
    region = right.get(name)
    if parts[0][1] < 0:
        yield lambda: _single(left, right, name)
        return
    each, odd = divmod(region.length, len(parts))
    first = left.get(parts[0][0])
    experts = 1 + max(expert for _, expert in parts)
    shape = (experts, first.shape[0] * (len(parts) // experts), *first.shape[1:])
    if region.dtype != "U8" or region.shape != shape or odd:
        raise Different(f"{region.file}: {name} is {region.dtype} {list(region.shape)}, not U8 {list(shape)}")
    for number, (part, expert) in enumerate(parts):
        yield lambda part=part, expert=expert, at=number * each: _expert(left, right, name, part, expert, at, each)  # type: ignore[misc]


def _expert(left: Side, right: Side, name: str, part: str, expert: int, at: int, size: int) -> int:
    source, target = left.get(part), right.get(name)
    width = {"F32": 4, "BF16": 2}.get(source.dtype, 1)
    if source.length != size * width:
        raise Different(f"{target.file}: {name}, expert {expert}: {size} bytes, and {part} has {source.length}")
    for done in range(0, size, STRETCH):
        count = min(STRETCH, size - done)
        old = left.read(source, done * width, count * width)
        if width > 1:
            exponents = np.frexp(_floats(old, source.dtype))[1].astype(np.int64) + 126
            old = exponents.astype(np.uint8)
        new = right.read(target, at + done, count)
        if not np.array_equal(old, new):
            wrong = int(np.flatnonzero(old != new)[0])
            raise Different(
                f"{target.file}: {name}, expert {expert}, byte {at + done + wrong} of the tensor: "
                f"{new[wrong]:#04x}, and {part} has {old[wrong]:#04x}"
            )
    return size


def _single(left: Side, right: Side, name: str) -> int:
    source, target = left.get(name), right.get(name)
    scale = left.regions.get(f"{name}_scale")
    if scale is None:
        if (source.dtype, source.shape) != (target.dtype, target.shape):
            raise Different(
                f"{target.file}: {name} is {target.dtype} {list(target.shape)}, and was {source.dtype} {list(source.shape)}"
            )
        return _same_bytes(left, right, name, source, target)
    rows = source.shape[0]
    columns = source.shape[1] * (2 if source.dtype == "U8" else 1)
    if target.dtype != "BF16" or target.shape != (rows, columns):
        raise Different(f"{target.file}: {name} is {target.dtype} {list(target.shape)}, not BF16 {[rows, columns]}")
    scales = _floats(left.read(scale, 0, scale.length), scale.dtype).reshape(rows, -1)
    step = max(1, STRETCH // (16 * columns))
    for row in range(0, rows, step):
        count = min(step, rows - row)
        per_row = source.length // rows
        codes = left.read(source, row * per_row, count * per_row).reshape(count, per_row)
        right_numbers = _floats(right.read(target, row * columns * 2, count * columns * 2), "BF16").reshape(count, columns)
        wanted = (
            _mxfp4(codes, scales[row : row + count]) if source.dtype == "U8" else _rounded(_fp8(codes, scales[row : row + count]))
        )
        same = (right_numbers == wanted) & (np.signbit(right_numbers) == np.signbit(wanted))
        if not same.all():
            at, column = np.argwhere(~same)[0]
            raise Different(
                f"{target.file}: {name}, byte {((row + at) * columns + column) * 2} of the tensor "
                f"(row {row + at}, column {column}): "
                f"{right_numbers[at, column]}, and it is {wanted[at, column]}"
            )
    return target.length


def _same_bytes(left: Side, right: Side, name: str, source: Region, target: Region) -> int:
    for done in range(0, source.length, STRETCH):
        count = min(STRETCH, source.length - done)
        old, new = left.read(source, done, count), right.read(target, done, count)
        if not np.array_equal(old, new):
            wrong = int(np.flatnonzero(old != new)[0])
            raise Different(
                f"{target.file}: {name}, byte {done + wrong} of the tensor: {new[wrong]:#04x}, and it was {old[wrong]:#04x}"
            )
    return source.length


def _floats(raw: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[np.float64]:
    """Numbers of a format, exactly, in float64."""
    if dtype == "F32":
        return raw.view("<f4").astype(np.float64)
    if dtype == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view("<f4").astype(np.float64)
    powers: npt.NDArray[np.float64] = np.ldexp(1.0, raw.astype(np.int64) - 127)
    return powers


def _mxfp4(codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    four = np.stack([codes & 15, codes >> 4], axis=-1).reshape(codes.shape[0], -1).astype(np.int64)
    exponent, mantissa = four >> 1 & 3, four & 1
    size = np.where(exponent == 0, mantissa / 2, np.ldexp(1 + mantissa / 2, exponent - 1))
    numbers: npt.NDArray[np.float64] = np.copysign(size, 0.5 - (four >> 3)) * np.repeat(scales, 32, axis=1)
    return numbers


def _fp8(codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """E4M3 times its row's scale, as float32 multiplies."""
    return np.asarray(_e4m3(codes).astype(np.float32) * scales.astype(np.float32), np.float64)


def _e4m3(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    wide = codes.astype(np.int64)
    exponent, mantissa = wide >> 3 & 15, wide & 7
    size = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7))
    signed: npt.NDArray[np.float64] = np.copysign(np.where(wide & 127 == 127, np.nan, size), 0.5 - (wide >> 7))
    return signed


def _rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """To BF16, nearest, ties to even: eight bits of significand, down to multiples of 2^-133."""
    quantum = np.ldexp(1.0, np.maximum(np.frexp(values)[1] - 8, -133))
    rounded: npt.NDArray[np.float64] = np.rint(values / quantum) * quantum
    return rounded


def _index(right: Side) -> None:
    """The index says where every tensor is."""
    index = right._json("model.safetensors.index.json")
    placed = {name: region.file.name for name, region in right.regions.items()}
    if index.get("weight_map") != placed:
        raise Different(f"{right.folder}: the index does not say where the tensors are")
    total = sum(region.length for region in right.regions.values())
    if index.get("metadata") != {"total_size": total}:
        raise Different(f"{right.folder}: the index says {index.get('metadata')}, and the tensors are {total} bytes")


def _files(left: Side, right: Side) -> None:
    """The index, the configuration, and every file that is none of tensors."""
    _index(right)
    wanted = {key: value for key, value in left.config.items() if key != "quantization_config"}
    if isinstance(wanted.get("text_config"), dict):
        wanted["text_config"] = {key: value for key, value in wanted["text_config"].items() if key != "quantization_config"}
    wanted["quantization_config"] = {"quant_method": "gpt_oss_mxfp4"}
    if right.config != wanted:
        raise Different(f"{right.folder}/config.json: differs in more than its quantization_config")
    kept = ("config.json", "model.safetensors.index.json")
    for file in sorted(left.folder.rglob("*")):
        inside = file.relative_to(left.folder)
        if (
            file.is_dir()
            or ".cache" in inside.parts
            or str(inside) in kept
            or (len(inside.parts) == 1 and file.suffix == ".safetensors")
        ):
            continue
        if not (right.folder / inside).is_file() or (right.folder / inside).read_bytes() != file.read_bytes():
            raise Different(f"{right.folder / inside}: is not what {file} is")
    if not any(file.name.upper().startswith("LICENSE") for file in right.folder.iterdir()):
        raise Different(f"{right.folder}: has no LICENSE")
