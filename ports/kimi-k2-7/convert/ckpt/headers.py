"""Headers of safetensors files.  The format: 8 bytes of length, little endian; so many bytes of JSON; then all tensors' data.

Source of the format: the safetensors README ("Format").  What safetensors 0.8 rejects is rejected here, as data that is too
short or too long, holes and overlaps; and so are keys that stand twice.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpt.errors import CheckpointError

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of one element by dtype."""
MAX_HEADER = 100_000_000
ALIGNMENT = 4096
"""Where the data of a file that is written here starts, in bytes: on a page, so that ranges can be shared or mapped."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of one file.  ``start`` is its first byte, counted from the beginning of the file; ``size`` is in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.name} ({self.dtype} {list(self.shape)} in {self.path.name})"


def read_header(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file, by name.  Reads the header and nothing else.  Raises :class:`CheckpointError`."""
    try:
        total = regular_size(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if total < 8 or length > MAX_HEADER or 8 + length > total:
                raise CheckpointError(f"{path}: is no safetensors file, or is cut off within its header: fetch it again")
            raw = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path}: can not be read: {(error.strerror or str(error)).lower()}") from None
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is no mapping")
    begin = 8 + length
    tensors = {name: _tensor(path, name, entry, begin) for name, entry in header.items() if name != "__metadata__"}
    end = begin
    for tensor in sorted(tensors.values(), key=lambda item: (item.start, item.size)):
        if tensor.start != end:
            raise CheckpointError(
                f"{path}: {tensor.name} {'overlaps' if tensor.start < end else 'leaves a hole behind'} another tensor"
            )
        end = tensor.start + tensor.size
    if end != total:
        what = f"{total - end} bytes too many" if end < total else f"cut off, {end - total} bytes are missing"
        raise CheckpointError(f"{path}: {what}: fetch it again")
    return tensors


def regular_size(path: Path) -> int:
    """Bytes of a file, links followed.  Raises :class:`CheckpointError` for what is no file, as a pipe, which would never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path}: is no regular file")
    return status.st_size


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For :func:`json.loads`: a mapping, none of whose keys stands twice.  Raises :class:`ValueError`."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} stands twice")
        found[name] = value
    return found


def byte_count(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor.  Of sizes that no file has, some number above 2^63 is given: the product itself could take hours."""
    total = ITEM_BYTES[dtype]
    sizes = list(shape)
    for size in [0] if 0 in sizes else sizes:
        total *= size
        if total >> 63:
            break
    return total


def _tensor(path: Path, name: str, entry: Any, begin: int) -> Tensor:
    def whole(values: Any) -> bool:
        return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)

    if not isinstance(entry, dict) or not whole(entry.get("shape")) or not whole(entry.get("data_offsets")):
        raise CheckpointError(f"{path}: {name!r} has no shape and offsets that are whole numbers")
    dtype, shape, offsets = entry.get("dtype"), entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise CheckpointError(f"{path}: {name!r} is of dtype {dtype!r}, which is not known here")
    if len(offsets) != 2 or offsets[1] - offsets[0] != byte_count(dtype, shape):
        sizes = f"{shape[:8]} and {len(shape) - 8} more" if len(shape) > 8 else shape
        raise CheckpointError(f"{path}: {name!r} takes {offsets[:2]} for {dtype} {sizes}, which is another number of bytes")
    return Tensor(name, dtype, tuple(shape), path, begin + offsets[0], offsets[1] - offsets[0])


def make_header(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The header of a file to be written, and where each tensor's first byte will be, counted from the beginning of the file.

    Takes name, dtype and shape of each tensor, in the order of their data.  Raises :class:`CheckpointError` if two have one name.
    """
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in tensors:
        if name in entries:
            raise CheckpointError(f"{name}: two tensors would get this name")
        size = byte_count(dtype, shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    starts = {name: len(header) + entry["data_offsets"][0] for name, entry in entries.items() if name != "__metadata__"}
    return header, starts
