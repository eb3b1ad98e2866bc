"""Carries a plan out, and never shows anything half done.

A file is written under another name, reserved whole beforehand, synced, renamed, and its folder synced.  The index comes after
all files, and the configuration, without which nothing loads a checkpoint, last of all; where a file is to be made again, both go
first.  What is complete already is told by its header and its length.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ckpt import pieces
from ckpt.errors import CheckpointError
from ckpt.plan import File, Plan
from ckpt.source import CONFIG, INDEX, LOCK, RECORD

Report = Callable[[int], None]
"""Is told of bytes that were written, from any thread."""


@dataclass
class Work:
    """A plan and what of it is left to do in a folder, looked at under the lock."""

    plan: Plan
    folder: Path
    todo: list[File]
    others: list[Path]
    """Files that are still to be copied."""
    rounded: dict[str, int]
    """How many elements of a tensor were not exact, where that is allowed; what earlier runs rounded is counted too."""
    was_finished: bool
    """Whether all was there once, so that what is left to do was changed or lost since."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bytes_to_write(self) -> int:
        """Of the tensors and of the files that are not there yet."""
        tensors = sum(target.size for file in self.todo for target in file.targets)
        return tensors + sum((self.plan.source / other).stat().st_size for other in self.others)


def check_places(source: Path, folder: Path) -> None:
    """Raises :class:`CheckpointError` if one folder is, or lies in, the other, by whatever name."""
    if not folder.parent.is_dir():
        raise CheckpointError(f"{folder.parent}: no such folder")
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder}: is a file: name a folder")
    one, other = source.resolve(), folder.resolve()
    if _within(one, other) or _within(other, one):
        raise CheckpointError(f"{folder}: is, holds, or lies in the source {source}: name a folder apart from it")


def _within(inner: Path, outer: Path) -> bool:
    """Whether a folder is another or lies in it, told by what the folders are: one may be mounted at a second place."""
    places = (inner, *inner.parents)
    return outer in places or (outer.exists() and any(place.exists() and place.samefile(outer) for place in places))


def finished(plan: Plan, folder: Path) -> bool:
    """Whether everything is there, by names, headers and lengths; writes nothing, and does not look at the data."""
    try:
        return (
            (folder / CONFIG).read_bytes() == plan.configuration
            and (folder / INDEX).read_bytes() == plan.index
            and all(is_complete(file, folder) for file in plan.files)
            and not _missing(plan, folder)
        )
    except OSError:
        return False


def is_complete(file: File, folder: Path) -> bool:
    """Whether a file is there with the header and the length of the plan: only whole files get their name."""
    try:
        with open(folder / file.name, "rb") as there:
            return os.fstat(there.fileno()).st_size == file.size and there.read(len(file.header)) == file.header
    except OSError:
        return False


def _missing(plan: Plan, folder: Path) -> list[Path]:
    """The files to be copied that are not there in their length."""

    def there(other: Path) -> bool:
        with contextlib.suppress(OSError):
            return (folder / other).stat().st_size == (plan.source / other).stat().st_size
        return False

    return [other for other in plan.others if not there(other)]


@contextlib.contextmanager
def opened(plan: Plan, folder: Path) -> Iterator[Work]:
    """The work that is left to do, with the folder locked against other runs.  Raises :class:`CheckpointError`."""
    check_places(plan.source, folder)
    _reserve_folder(plan, folder)
    with _storing(folder / LOCK):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"{folder}: another run is at work here") from None
        rounded = _claim(plan, folder)
        with _storing(folder):
            for file in plan.files:
                _partial(folder / file.name).unlink(missing_ok=True)
        todo = [file for file in plan.files if not is_complete(file, folder)]
        yield Work(plan, folder, todo, _missing(plan, folder), rounded, (folder / CONFIG).exists())
    finally:
        os.close(descriptor)


def _reserve_folder(plan: Plan, folder: Path) -> None:
    if not folder.exists():
        check_fits(plan, folder)
    with _storing(folder):
        folder.mkdir(exist_ok=True)
        foreign = [name for name in os.listdir(folder) if name not in (LOCK, _partial(Path(RECORD)).name, "lost+found")]
    if foreign and RECORD not in foreign:
        raise CheckpointError(f"{folder}: holds other files, as {min(foreign)}: name an empty or new folder")


def _claim(plan: Plan, folder: Path) -> dict[str, int]:
    """Write down what the folder is made from; refuse one that is made from something else.  Returns what was rounded so far."""
    record = folder / RECORD
    try:
        claimed: Any = json.loads(record.read_bytes())
        tool, source, rounded = claimed["tool"], claimed["source"], claimed.get("rounded", {})
        rounded = {str(name): int(count) for name, count in rounded.items()}
    except FileNotFoundError:
        _put(record, _recorded(plan, {}))
        return {}
    except OSError as error:
        raise CheckpointError(f"{record}: can not be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{record}: does not say what this folder is made from: name an empty or new folder") from None
    if source != plan.fingerprint:
        raise CheckpointError(
            f"{folder}: was begun from another source, or the source has changed since: name an empty or new folder"
        )
    if tool != plan.tool:
        if tool not in plan.continues:
            raise CheckpointError(f"{folder}: was begun by {tool}, and this is {plan.tool}: name an empty or new folder")
        _put(record, _recorded(plan, rounded))
    return rounded


def _recorded(plan: Plan, rounded: dict[str, int]) -> bytes:
    return (json.dumps({"tool": plan.tool, "source": plan.fingerprint, "rounded": rounded}) + "\n").encode()


def check_fits(plan: Plan, folder: Path) -> None:
    """Raises :class:`CheckpointError` if what a plan has yet to write does not fit where a folder is or will be.

    What a killed run left under another name is in the way of nothing: it goes before anything is written.
    """
    needed = sum(file.size for file in plan.files if not is_complete(file, folder))
    needed += sum((plan.source / other).stat().st_size for other in _missing(plan, folder))
    free = free_bytes(folder) + sum(_blocks(_partial(folder / file.name)) for file in plan.files)
    if needed > free:
        raise CheckpointError(f"{folder}: {in_words(needed)} are needed and {in_words(free)} are free")


def _blocks(path: Path) -> int:
    """Bytes that a file takes on the disk."""
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def free_bytes(folder: Path) -> int:
    """Bytes that are free where a folder is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def in_words(count: int) -> str:
    """A number of bytes, to read."""
    unit, size = next(((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= size), ("bytes", 1.0))
    return f"{count / size:,.1f} {unit}" if size > 1 else f"{count} bytes"


def carry_out(work: Work, jobs: int, report: Report = lambda _: None) -> None:
    """Write everything that is left.  Raises :class:`CheckpointError`; what is complete by then stays for another run."""
    plan, folder = work.plan, work.folder
    check_fits(plan, folder)
    with _storing(folder):
        if work.todo or work.others:
            for name in (CONFIG, INDEX):
                (folder / name).unlink(missing_ok=True)
            _sync_folder(folder)
        for other in work.others:
            _copy(plan.source, folder, other)
            report((plan.source / other).stat().st_size)
    stopped = threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
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
    for name, content in ((INDEX, plan.index), (CONFIG, plan.configuration)):
        if not (folder / name).is_file() or (folder / name).read_bytes() != content:
            _put(folder / name, content)


class _Stopped(Exception):  # noqa: N818
    """Another thread failed."""


def _write(file: File, work: Work, report: Report, stopped: threading.Event) -> None:
    sources: dict[Path, int] = {}

    def opened_source(path: Path) -> int:
        if path not in sources:
            sources[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return sources[path]

    rounded: dict[str, int] = {}
    try:
        with _new(work.folder / file.name) as out:
            os.posix_fallocate(out.fileno(), 0, file.size)
            os.pwrite(out.fileno(), file.header, 0)
            for target in file.targets:
                for piece in target.pieces:
                    if stopped.is_set():
                        raise _Stopped
                    inputs = [opened_source(tensor.path) for tensor in piece.sources]
                    at, scales_at = file.starts[target.name] + piece.at, file.starts.get(piece.scales, 0)
                    if inexact := pieces.make(piece, inputs, out.fileno(), at, scales_at):
                        rounded[target.name] = rounded.get(target.name, 0) + inexact
                    report(piece.size + (4 * target.shape[0] if piece.scales else 0))
            # Before the file has its name, so that no file is there whose count is not.
            with work.lock:
                kept = {name: count for name, count in work.rounded.items() if name not in file.starts}
                if {**kept, **rounded} != work.rounded:
                    work.rounded = {**kept, **rounded}
                    _put(work.folder / RECORD, _recorded(work.plan, work.rounded))
    finally:
        for descriptor in sources.values():
            os.close(descriptor)


def _copy(source: Path, folder: Path, other: Path) -> None:
    """A file of the source that is none of tensors."""
    for inside in reversed(other.parents[:-1]):
        if (folder / inside).is_symlink():
            raise CheckpointError(f"{folder / inside}: is a link out of the folder that is written: remove it")
        (folder / inside).mkdir(exist_ok=True)
    descriptor = os.open(source / other, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _new(folder / other) as out:
            pieces.copy_range(descriptor, 0, out.fileno(), 0, os.fstat(descriptor).st_size, str(source / other))
    finally:
        os.close(descriptor)


def _put(path: Path, content: bytes) -> None:
    """A small file."""
    with _new(path) as out:
        out.write(content)


@contextlib.contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """A file to be written, that gets its name when it is whole and on the disk, or is not there at all."""
    partial = _partial(path)
    with _storing(path):
        partial.unlink(missing_ok=True)
        try:
            with open(partial, "xb") as out:
                yield out
                out.flush()
                os.fdatasync(out.fileno())
            os.replace(partial, path)
            _sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _storing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cure = ": free some space and run it again, it goes on from here" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise CheckpointError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}{cure}") from None
