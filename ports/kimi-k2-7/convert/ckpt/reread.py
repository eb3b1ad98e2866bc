"""Reads a checkpoint a second time, for the proofs: a parser of its own, that shares no code with what converts.

What safetensors refuses is refused: headers that are no mapping, tensors that overlap, leave holes or end before or after the
file, sizes that do not fit a shape.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

STRETCH = 1 << 20
"""Bytes that one thread compares at a time."""
WIDTHS = dict.fromkeys(("U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1) | dict.fromkeys(("BF16", "F16", "I16", "U16"), 2)
WIDTHS |= dict.fromkeys(("F32", "I32", "U32"), 4) | dict.fromkeys(("F64", "I64", "U64"), 8)
LONGEST_HEADER = 100_000_000
OWN = ("conversion.json", ".conversion.lock")
"""What a converter leaves beside the checkpoint."""


class Different(Exception):  # noqa: N818
    """One line that names tensor, expert and offset."""


class Spoilt(Different):
    """A file that was made is not what it should be; made anew, it will be."""

    def __init__(self, file: Path, what: str) -> None:
        super().__init__(f"{file}: {what}: remove this file and convert again, it alone is made anew")


@dataclass(frozen=True, slots=True)
class Region:
    """A tensor as it lies on the disk; offset and length in bytes."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Side:
    """One of the two checkpoints.  Raises :class:`Different` for one that can not be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.regions: dict[str, Region] = {}
        self.config = self.json("config.json")
        self._open: dict[Path, int] = {}
        self._lock = threading.Lock()
        for file in sorted(folder.glob("*.safetensors")):
            self._scan(file)

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder that holds a mapping."""
        file = self.folder / name
        try:
            if not file.is_file():
                raise Different(f"{file}: {'is no regular file' if file.exists() else 'can not be read: no such file'}")
            data = json.loads(file.read_bytes(), object_pairs_hook=_mapping)
        except (OSError, ValueError, RecursionError) as error:
            raise Different(f"{file}: {_reason(error)}") from None
        if not isinstance(data, dict):
            raise Different(f"{file}: is no mapping")
        return data

    def _scan(self, file: Path) -> None:
        try:
            size = file.stat().st_size
            if not stat.S_ISREG(file.stat().st_mode):
                raise ValueError("it is no regular file")
            with file.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                if length > min(size - 8, LONGEST_HEADER):
                    raise ValueError(f"a header of {length} bytes")
                entries = json.loads(stream.read(length), object_pairs_hook=_mapping)
            facts = entries.pop("__metadata__", {})
            if not isinstance(facts, dict) or not all(isinstance(fact, str) for fact in facts.values()):
                raise ValueError("__metadata__ is no mapping of texts")
            regions = [(name, _region(file, name, entry, 8 + length)) for name, entry in entries.items()]
            end = 8 + length
            for name, region in sorted(regions, key=lambda item: (item[1].offset, item[1].length)):
                if region.offset != end:
                    raise ValueError(f"{name} {'overlaps' if region.offset < end else 'leaves a hole behind'} another tensor")
                end += region.length
                if name in self.regions:
                    raise ValueError(f"{name} stands in {self.regions[name].file.name} as well")
                self.regions[name] = region
            if end != size:
                raise ValueError(f"its tensors end at byte {end}, and the file at {size}")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise Different(f"{file}: {_reason(error)}") from None
        except (struct.error, RecursionError, MemoryError) as error:
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
        with self._lock:
            if region.file not in self._open:
                self._open[region.file] = os.open(region.file, os.O_RDONLY | os.O_CLOEXEC)
            descriptor = self._open[region.file]
        content = bytearray(length)
        view, done = memoryview(content), 0
        while done < length:
            count = os.preadv(descriptor, [view[done:]], region.offset + offset + done)
            if not count:
                raise Different(f"{region.file}: ends before its time")
            done += count
        return np.frombuffer(content, np.uint8)

    def close(self) -> None:
        """Close every file."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def other_files(self) -> Iterator[Path]:
        """What is neither shard, index nor configuration, nor of a converter, nor of what fetched it; from the folder on."""
        kept = ("config.json", "model.safetensors.index.json", *OWN)
        pending = [self.folder]
        while pending:
            try:
                found = sorted(os.scandir(pending.pop()), key=lambda entry: entry.name)
            except OSError as error:
                raise Different(f"{error.filename}: {_reason(error)}") from None
            for entry in found:
                inside = Path(entry.path).relative_to(self.folder)
                if entry.is_dir():
                    if entry.name not in (".cache", ".git"):
                        pending.append(Path(entry.path))
                elif len(inside.parts) > 1 or not (entry.name in kept or entry.name.endswith(".safetensors")):
                    yield inside


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise ValueError(f"{next(name for name, _ in pairs if name in seen or seen.add(name))!r} stands twice")  # type: ignore[func-returns-value]
    return found


def _region(file: Path, name: str, entry: dict[str, Any], begin: int) -> Region:
    (first, last), dtype, shape = entry["data_offsets"], entry["dtype"], tuple(entry["shape"])
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in (first, last, *shape)):
        raise ValueError(f"{name} has a shape or offsets that are no sizes")
    size = 0 if 0 in shape else WIDTHS[dtype]
    for number in shape:
        size *= number
        if size > last - first:
            break
    if size != last - first:
        raise ValueError(f"{name} takes {last - first} bytes for {dtype} {list(shape[:8])}")
    return Region(file, dtype, shape, begin + first, size)


def _reason(error: Exception) -> str:
    """Why a file could not be read, without its name, which the caller says."""
    if isinstance(error, OSError):
        return f"can not be read: {(error.strerror or str(error)).lower()}"
    if isinstance(error, KeyError):
        return f"can not be understood: {error} is not there or not known"
    return f"can not be understood: {str(error) or type(error).__name__}"


def compare_all(tasks: Iterator[Callable[[], int]], jobs: int, report: Callable[[int], None]) -> None:
    """Do comparisons in threads, none made before it is its turn; each gives its bytes.

    Raises the first error, and then ends.
    """
    lock, ended = threading.Lock(), threading.Event()

    def work() -> None:
        try:
            while not ended.is_set():
                with lock:
                    task = next(tasks, None)
                if task is None:
                    return
                report(task())
        except BaseException:
            ended.set()
            raise

    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(work) for _ in range(jobs)]
        try:
            for one in running:
                one.result()
        finally:
            ended.set()


def same_bytes(left: Side, right: Side, name: str) -> int:
    """A tensor that was copied."""
    source, target = left.get(name), right.get(name)
    if (source.dtype, source.shape) != (target.dtype, target.shape):
        raise Spoilt(target.file, f"{name} is {target}, and was {source}")
    for done in range(0, source.length, STRETCH):
        count = min(STRETCH, source.length - done)
        old, new = left.read(source, done, count), right.read(target, done, count)
        if not np.array_equal(old, new):
            wrong = int(np.flatnonzero(old != new)[0])
            raise Spoilt(
                target.file, f"{name}, byte {done + wrong} of the tensor: {new[wrong]:#04x}, and it was {old[wrong]:#04x}"
            )
    return source.length


def check_index(right: Side) -> None:
    """The index says where every tensor is, and how many bytes there are."""
    index = right.json("model.safetensors.index.json")
    placed = {name: region.file.name for name, region in right.regions.items()}
    if index.get("weight_map") != placed:
        raise Different(f"{right.folder}: the index does not say where the tensors are")
    total = sum(region.length for region in right.regions.values())
    if index.get("metadata") != {"total_size": total}:
        raise Different(f"{right.folder}: the index says {index.get('metadata')}, and the tensors are {total} bytes")


def check_others(left: Side, right: Side) -> None:
    """Every file that is none of tensors is there as it was; a LICENSE is among them."""
    for inside in left.other_files():
        one, other = left.folder / inside, right.folder / inside
        try:
            if not other.is_file() or not one.is_file() or one.stat().st_size != other.stat().st_size or not _equal(one, other):
                raise Spoilt(other, f"is not what {one} is")
        except OSError as error:
            raise Different(f"{error.filename}: {_reason(error)}") from None
    if not any(file.name.upper().startswith("LICENSE") for file in right.folder.iterdir()):
        raise Different(f"{right.folder}: has no LICENSE")


def _equal(one: Path, other: Path) -> bool:
    with one.open("rb") as left, other.open("rb") as right:
        while True:
            old, new = left.read(STRETCH), right.read(STRETCH)
            if old != new:
                return False
            if not old:
                return True
