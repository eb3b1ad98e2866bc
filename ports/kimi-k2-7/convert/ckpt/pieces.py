"""Makes the stretches of a plan: copies bytes in the kernel where it can, and computes the rest a few rows at a time."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

import numpy as np

from ckpt.channels import fp8_from_mxfp4
from ckpt.dequantize import LARGEST_SCALE, bf16_from_fp8, bf16_from_mxfp4, scale_bytes
from ckpt.errors import CheckpointError
from ckpt.headers import ITEM_BYTES, Tensor
from ckpt.plan import Piece

CHUNK = 4 << 20
"""Bytes that one thread reads at a time."""
_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)


def make(piece: Piece, inputs: list[int], out: int, at: int, scales_at: int) -> int:
    """Write a stretch at byte ``at`` of the open file ``out``, from the open files of its sources.  Returns how many
    elements were rounded.

    ``scales_at`` is where the scales begin of which the piece writes some.  Raises :class:`CheckpointError` and ``OSError``.
    """
    if piece.kind == "channels":
        return _channels(piece, inputs, out, at, scales_at)
    _MAKERS[piece.kind](piece, inputs, out, at)
    return 0


def copy_range(source: int, start: int, out: int, at: int, size: int, place: str) -> None:
    """Copy bytes between open files: in the kernel where it can, else through a buffer.

    ``place`` is the source, for messages.  Raises :class:`CheckpointError` where the source ends, and ``OSError``.
    """
    done = 0
    while done < size:
        try:
            moved = os.copy_file_range(source, out, size - done, start + done, at + done)
        except OSError as error:
            if error.errno not in _NOT_IN_KERNEL:
                raise
            content = os.pread(source, min(CHUNK, size - done), start + done)
            moved = os.pwrite(out, content, at + done) if content else 0
        if not moved:
            raise CheckpointError(f"{place}: ends before its time; was the file changed?")
        done += moved


def _copied(piece: Piece, inputs: list[int], out: int, at: int) -> None:
    [tensor] = piece.sources
    copy_range(inputs[0], tensor.start, out, at, piece.size, f"{tensor.path}: {tensor.name}")


def _scales(piece: Piece, inputs: list[int], out: int, at: int) -> None:
    [tensor] = piece.sources
    width = ITEM_BYTES[tensor.dtype]
    for done in range(0, piece.size, CHUNK):
        count = min(CHUNK, piece.size - done)
        with _about(tensor):
            found = scale_bytes(_read(inputs[0], tensor, done * width, count * width), tensor.dtype)
        _pwrite(out, found, at + done)


def _from_mxfp4(piece: Piece, inputs: list[int], out: int, at: int) -> None:
    weight, scale = piece.sources
    rows, half = weight.shape
    groups, width = scale.shape[1], ITEM_BYTES[scale.dtype]
    step = max(1, CHUNK // (half * 4))
    for row in range(0, rows, step):
        count = min(step, rows - row)
        codes = _read(inputs[0], weight, row * half, count * half).reshape(count, half)
        with _about(scale):
            scales = scale_bytes(_read(inputs[1], scale, row * groups * width, count * groups * width), scale.dtype)
        scales = scales.reshape(count, groups)
        numbers = bf16_from_mxfp4(codes, scales)
        if scales.max() > LARGEST_SCALE and (bad := np.argwhere(numbers & 0x7F80 == 0x7F80)).size:
            raise CheckpointError(
                f"{weight.path}: {weight.name}: row {row + bad[0][0]}, column {bad[0][1]} is too large for BF16"
            )
        _pwrite(out, numbers, at + row * half * 4)


def _from_fp8(piece: Piece, inputs: list[int], out: int, at: int) -> None:
    weight, scale = piece.sources
    rows, columns = weight.shape
    scales = _read(inputs[1], scale, 0, scale.size).view(np.float32)
    step = max(1, CHUNK // (columns * 2))
    for row in range(0, rows, step):
        count = min(step, rows - row)
        codes = _read(inputs[0], weight, row * columns, count * columns).reshape(count, columns)
        with _about(weight, f" (rows from {row})"):
            numbers = bf16_from_fp8(codes, scales[row : row + count])
        _pwrite(out, numbers, at + row * columns * 2)


def _channels(piece: Piece, inputs: list[int], out: int, at: int, scales_at: int) -> int:
    """Rows of a fused MXFP4 weight as FP8, and their scales.  Returns how many elements were rounded."""
    weight, scale = piece.sources
    half, groups = weight.shape[-1], scale.shape[-1]
    rows = piece.size // (2 * half)
    assert piece.form is not None
    rounded = 0
    step = max(1, CHUNK // (half * 2))
    for row in range(0, rows, step):
        count = min(step, rows - row)
        codes = _read(inputs[0], weight, (piece.row + row) * half, count * half).reshape(count, half)
        with _about(scale):
            powers = scale_bytes(_read(inputs[1], scale, (piece.row + row) * groups, count * groups), "U8").reshape(count, groups)
        expert, channel = divmod(piece.row + row, weight.shape[1])
        with _about(weight, f", expert {expert}"):
            numbers, scales, inexact = fp8_from_mxfp4(codes, powers, piece.form, channel)
        rounded += inexact
        _pwrite(out, numbers, at + row * half * 2)
        _pwrite(out, scales, scales_at + row * 4)
    return rounded


_MAKERS = {"copy": _copied, "scales": _scales, "mxfp4": _from_mxfp4, "fp8": _from_fp8}


def _read(descriptor: int, tensor: Tensor, offset: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    parts, done = [], 0
    while done < count:
        content = os.pread(descriptor, count - done, tensor.start + offset + done)
        if not content:
            raise CheckpointError(f"{tensor.path}: {tensor.name}: ends before its time; was the file changed?")
        parts.append(content)
        done += len(content)
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)


def _pwrite(out: int, numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]], at: int) -> None:
    view = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data
    while view:
        done = os.pwrite(out, view, at)
        view, at = view[done:], at + done


@contextlib.contextmanager
def _about(tensor: Tensor, where: str = "") -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{tensor.path}: {tensor.name}{where}: {error}") from None
