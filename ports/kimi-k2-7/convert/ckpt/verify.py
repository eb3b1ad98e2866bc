"""Compares a fused checkpoint with the Quark release it was made from, byte by byte, sharing no code with what made it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ckpt import exactly
from ckpt.reread import STRETCH, Different, Region, Side, Spoilt, check_index, check_others, compare_all, same_bytes

_ROUTED = re.compile(
    r"(?P<layer>(?:.*\.)?layers\.(?:0|[1-9]\d{0,8})\.mlp\.experts\.)(?P<expert>0|[1-9]\d{0,8})\."
    r"(?P<side>gate|up|down)_proj\.(?P<kind>weight|weight_scale)",
    re.ASCII,
)

Parts = list[tuple[str, int]]
"""For a fused tensor, the names of what it holds, each with its expert; else the one name, with -1."""


def verify(source: Path, made: Path, jobs: int, report: Callable[[int], None] = lambda _: None) -> None:
    """Raises :class:`Different` at the first difference that is found.  ``report`` is told of bytes that were compared."""
    left, right = Side(source), Side(made)
    right.drop_cached()
    try:
        expected = _expected(left)
        for name in sorted({*right.regions} - {*expected}):
            raise Different(f"{right.get(name).file}: {name} comes from nothing in the source")
        for name, parts in expected.items():
            _check_form(left, right.get(name), name, parts)
        check_index(right)
        _check_config(left, right)
        check_others(left, right)
        compare_all((task for name, parts in expected.items() for task in _comparisons(left, right, name, parts)), jobs, report)
    finally:
        left.close()
        right.close()


def _expected(left: Side) -> dict[str, Parts]:
    expected: dict[str, dict[tuple[int, int], str]] = {}
    for name, region in left.regions.items():
        if match := _ROUTED.fullmatch(name):
            fused = f"{match['layer']}{'w2' if match['side'] == 'down' else 'w13'}_{match['kind']}"
            expected.setdefault(fused, {})[int(match["expert"]), int(match["side"] == "up")] = name
        elif "mlp.experts." in name:
            raise Different(f"{region.file}: {name} is no name of an expert's tensor")
        elif not (name.endswith("_scale") and name.removesuffix("_scale") in left.regions):
            if name in expected:
                raise Different(f"{region.file}: {name} has the name that fused experts get")
            expected[name] = {(-1, 0): name}
    return {name: [(parts[key], key[0]) for key in sorted(parts)] for name, parts in expected.items()}


def _check_form(left: Side, region: Region, name: str, parts: Parts) -> None:
    """A fused tensor has the dtype and the shape that its experts' tensors give it."""
    if parts[0][1] < 0:
        return
    first = left.get(parts[0][0])
    experts = 1 + max(expert for _, expert in parts)
    shape = (experts, first.shape[0] * (len(parts) // experts), *first.shape[1:]) if first.shape else ()
    if region.dtype != "U8" or region.shape != shape or region.length % len(parts):
        raise Spoilt(region.file, f"{name} is {region}, not U8 {list(shape)}")


def _comparisons(left: Side, right: Side, name: str, parts: Parts) -> Iterator[Callable[[], int]]:
    if parts[0][1] < 0:
        plain = f"{name}_scale" not in left.regions
        yield lambda: same_bytes(left, right, name) if plain else _dequantized(left, right, name)
        return
    each = right.get(name).length // len(parts)
    for number, (part, expert) in enumerate(parts):
        yield lambda part=part, expert=expert, at=number * each: _expert(left, right, name, part, expert, at, each)  # type: ignore[misc]


def _expert(left: Side, right: Side, name: str, part: str, expert: int, at: int, size: int) -> int:
    source, target = left.get(part), right.get(name)
    width = {"F32": 4, "BF16": 2}.get(source.dtype, 1)
    if source.length != size * width:
        raise Spoilt(target.file, f"{name}, expert {expert}: {size} bytes, and {part} has {source.length}")
    for done in range(0, size, STRETCH):
        count = min(STRETCH, size - done)
        old = left.read(source, done * width, count * width)
        if width > 1:
            exponents = np.frexp(exactly.floats(old, source.dtype))[1].astype(np.int64) + 126
            old = exponents.astype(np.uint8)
        new = right.read(target, at + done, count)
        if not np.array_equal(old, new):
            wrong = int(np.flatnonzero(old != new)[0])
            raise Spoilt(
                target.file,
                f"{name}, expert {expert}, byte {at + done + wrong} of the tensor: "
                f"{new[wrong]:#04x}, and {part} has {old[wrong]:#04x}",
            )
    return size


def _dequantized(left: Side, right: Side, name: str) -> int:
    """A weight with scales, that became BF16."""
    source, target, scale = left.get(name), right.get(name), left.get(f"{name}_scale")
    if len(source.shape) != 2 or source.dtype not in ("U8", "F8_E4M3"):
        raise Different(f"{source.file}: {name} is {source}, and has scales")
    rows, columns = source.shape[0], source.shape[1] * (2 if source.dtype == "U8" else 1)
    if target.dtype != "BF16" or target.shape != (rows, columns):
        raise Spoilt(target.file, f"{name} is {target}, not BF16 {[rows, columns]}")
    per_row, of_row = source.length // rows, scale.length // rows
    step = max(1, STRETCH // (8 * columns))
    for row in range(0, rows, step):
        count = min(step, rows - row)
        codes = left.read(source, row * per_row, count * per_row).reshape(count, per_row)
        found = exactly.floats(right.read(target, row * columns * 2, count * columns * 2), "BF16").reshape(count, columns)
        of_rows = exactly.floats(left.read(scale, row * of_row, count * of_row), scale.dtype).reshape(count, -1)
        wanted = exactly.mxfp4(codes, of_rows) if source.dtype == "U8" else exactly.rounded(exactly.fp8(codes, of_rows))
        same = (found == wanted) & (np.signbit(found) == np.signbit(wanted))
        if not same.all():
            at, column = np.argwhere(~same)[0]
            raise Spoilt(
                target.file,
                f"{name}, byte {((row + at) * columns + column) * 2} of the tensor (row {row + at}, column {column}): "
                f"{found[at, column]}, and it is {wanted[at, column]}",
            )
    return target.length


def _check_config(left: Side, right: Side) -> None:
    """The configuration is the source's but for its quantization."""
    wanted = {key: value for key, value in left.config.items() if key != "quantization_config"}
    if isinstance(wanted.get("text_config"), dict):
        wanted["text_config"] = {key: value for key, value in wanted["text_config"].items() if key != "quantization_config"}
    wanted["quantization_config"] = {"quant_method": "gpt_oss_mxfp4"}
    if right.config != wanted:
        raise Different(f"{right.folder}/config.json: differs in more than its quantization_config")
