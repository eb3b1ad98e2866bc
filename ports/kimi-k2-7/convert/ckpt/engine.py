"""Carries a plan out: copies ranges in the kernel, computes the rest in small stretches, and never shows anything half done.

A file is written under another name, reserved whole beforehand, synced, renamed, and its folder synced.  The index comes after
all files, and the configuration, without which nothing loads a checkpoint, last of all.  What is complete already is told by its
header and its length.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ckpt.channels import fp8_from_mxfp4
from ckpt.dequantize import LARGEST_SCALE, bf16_from_fp8, bf16_from_mxfp4, scale_bytes
from ckpt.errors import CheckpointError
from ckpt.headers import ITEM_BYTES, Tensor
from ckpt.plan import File, Piece, Plan
from ckpt.source import CONFIG, INDEX

RECORD = "conversion.json"
"""Says what a folder is being made from, and by what."""
LOCK = ".conversion.lock"
CHUNK = 4 << 20
"""Bytes that one thread reads at a time."""
_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)

Report = Callable[[int], None]
"""Is told of bytes that were written, from any thread."""


@dataclass
class Work:
    """A plan and the folder it is carried out in, looked at under the lock."""

    plan: Plan
    folder: Path
    todo: list[File]
    rounded: dict[str, int] = field(default_factory=dict)
    """How many elements of a tensor were not exact, where that is allowed."""

    @property
    def bytes_to_write(self) -> int:
        """Of the tensors that are not there yet."""
        return sum(target.size for file in self.todo for target in file.targets)


def check_places(source: Path, folder: Path) -> None:
    """Raises :class:`CheckpointError` if one folder is, or lies in, the other."""
    if not folder.parent.is_dir():
        raise CheckpointError(f"{folder.parent}: no such folder")
    one, other = source.resolve(), folder.resolve()
    if one == other or one in other.parents or other in one.parents or (folder.exists() and os.path.samefile(one, other)):
        raise CheckpointError(f"{folder}: is, holds, or lies in the source {source}: name a folder apart from it")


@contextlib.contextmanager
def opened(plan: Plan, folder: Path) -> Iterator[Work]:
    """The work that is left to do, with the folder locked against other runs.  Raises :class:`CheckpointError`."""
    check_places(plan.source, folder)
    _reserve_folder(folder)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"{folder}: another run is at work here") from None
        _claim(plan, folder)
        yield Work(plan, folder, [file for file in plan.files if not is_complete(file, folder)])
    finally:
        os.close(descriptor)


def _reserve_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        foreign = [name for name in os.listdir(folder) if name not in (LOCK, f".{RECORD}.partial")]
    except OSError as error:
        raise CheckpointError(f"{folder}: {(error.strerror or str(error)).lower()}") from None
    if foreign and RECORD not in foreign:
        raise CheckpointError(f"{folder}: holds other files, as {min(foreign)}: name an empty or new folder")


def _claim(plan: Plan, folder: Path) -> None:
    """Write down what the folder is made from; refuse one that is made from something else."""
    mine = {"tool": plan.tool, "source": plan.fingerprint}
    try:
        claimed = json.loads((folder / RECORD).read_text("utf-8"))
    except FileNotFoundError:
        _put(folder / RECORD, (json.dumps(mine) + "\n").encode())
        return
    except (OSError, ValueError):
        claimed = None
    if claimed != mine:
        raise CheckpointError(
            f"{folder}: was begun from another source, or the source has changed since: name an empty or new folder"
        )


def is_complete(file: File, folder: Path) -> bool:
    """Whether a file is there with the header and the length of the plan: only whole files get their name."""
    try:
        with open(folder / file.name, "rb") as there:
            return os.fstat(there.fileno()).st_size == file.size and there.read(len(file.header)) == file.header
    except OSError:
        return False


def check_space(work: Work) -> None:
    """Raises :class:`CheckpointError` if what is left to write does not fit."""
    free = shutil.disk_usage(work.folder).free
    needed = sum(file.size for file in work.todo) + sum((work.plan.source / other).stat().st_size for other in work.plan.others)
    if needed > free:
        raise CheckpointError(f"{work.folder}: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free")


def carry_out(work: Work, jobs: int, report: Report = lambda _: None) -> None:
    """Write everything that is left.  Raises :class:`CheckpointError`; what is complete by then stays for another run."""
    check_space(work)
    stopped = threading.Event()
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        running = [pool.submit(_write, file, work, report, stopped) for file in work.todo]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            if failed := next((task.exception() for task in done if task.exception()), None):
                raise failed
        except BaseException:
            stopped.set()
            for task in running:
                task.cancel()
            raise
    with _storing(work.folder):
        for other in work.plan.others:
            (work.folder / other).parent.mkdir(parents=True, exist_ok=True)
            _put(work.folder / other, (work.plan.source / other).read_bytes())
        _put(work.folder / INDEX, work.plan.index)
        _put(work.folder / CONFIG, (json.dumps(work.plan.config, indent=1, ensure_ascii=False) + "\n").encode())


class _Stopped(Exception):  # noqa: N818
    """Another thread failed."""


def _write(file: File, work: Work, report: Report, stopped: threading.Event) -> None:
    folder = work.folder
    partial = folder / f".{file.name}.partial"
    sources: dict[Path, int] = {}

    def opened_source(path: Path) -> int:
        if path not in sources:
            sources[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return sources[path]

    try:
        with _storing(partial), open(partial, "wb") as out:
            descriptor = out.fileno()
            os.posix_fallocate(descriptor, 0, file.size)
            os.pwrite(descriptor, file.header, 0)
            for target in file.targets:
                start = file.starts[target.name]
                for piece in target.pieces:
                    if stopped.is_set():
                        raise _Stopped
                    inputs = [opened_source(tensor.path) for tensor in piece.sources]
                    if piece.kind == "channels":
                        rounded = _channels(piece, inputs, descriptor, start + piece.at, file.starts[piece.scales])
                        if rounded:
                            work.rounded[target.name] = rounded
                        report(4 * target.shape[0])
                    else:
                        _MAKERS[piece.kind](piece, inputs, descriptor, start + piece.at)
                    report(piece.size)
            os.fdatasync(descriptor)
            os.replace(partial, folder / file.name)
            _sync_folder(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    finally:
        for descriptor in sources.values():
            os.close(descriptor)


def _copied(piece: Piece, inputs: list[int], out: int, at: int) -> None:
    """In the kernel where both files are of one file system, else through a buffer."""
    [tensor] = piece.sources
    done = 0
    while done < piece.size:
        try:
            moved = os.copy_file_range(inputs[0], out, piece.size - done, tensor.start + done, at + done)
        except OSError as error:
            if error.errno not in _NOT_IN_KERNEL:
                raise
            content = os.pread(inputs[0], min(CHUNK, piece.size - done), tensor.start + done)
            moved = os.pwrite(out, content, at + done) if content else 0
        if not moved:
            raise CheckpointError(f"{tensor.path}: {tensor.name}: ends before its time; was the file changed?")
        done += moved


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


def _put(path: Path, content: bytes) -> None:
    """A small file, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with _storing(path):
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _about(tensor: Tensor, where: str = "") -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{tensor.path}: {tensor.name}{where}: {error}") from None


@contextlib.contextmanager
def _storing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cure = ": free some space and run it again, it goes on from here" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise CheckpointError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}{cure}") from None
