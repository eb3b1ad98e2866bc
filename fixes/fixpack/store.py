"""What was replaced, what stands in its place, and writing that a crash can not tear.

Beside the packages lies a folder, ``.gaudi-cookbook``: ``record.json`` says of each file the digest of its original and of what
the pack puts there; ``originals/DIGEST`` holds the originals; ``lock`` keeps two runs apart.  The order is what makes a crash
harmless: originals first, then the record, then the files.  So at every moment a file's content is one that the record names.
Once all files are their originals again, the copies go first and the record last.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fixpack.errors import MismatchError, StorageError

FOLDER = ".gaudi-cookbook"
FORMAT = 2
"""Of the record; 1 did not say which build of a package a file belongs to."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = re.compile(r"\..+\.gaudi-cookbook-\d+")
_UNCHECKED, _HASHED = 0b01, 0b11


@dataclass(frozen=True)
class Recorded:
    """What the record says of one file: digests (SHA-256), the fixes in what the pack put there, and the build it was put into.

    ``patched`` holds one digest; more while a run replaces one patched file by another.
    """

    original: str
    patched: list[str]
    fixes: list[str]
    package: str = ""


class Store:
    """The folder beside the packages.  Raises :class:`StorageError` for what can not be read or written."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER
        self.file = self.folder / "record.json"
        self.originals = self.folder / "originals"
        self._home = home

    def record(self) -> dict[str, Recorded]:
        """The record, empty if nothing was ever applied here."""
        try:
            data = json.loads(self.file.read_text("utf-8"))
            if isinstance(data, dict) and data.get("format") not in (1, FORMAT, None):
                raise MismatchError(
                    f"{self.folder}: was written by another pack, of format {data['format']}: revert with that one"
                )
            return {name: _entry(name, entry) for name, entry in data["files"].items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise _failed(error, self.folder) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise StorageError(f"{self.file}: is damaged: reinstall the packages and remove {self.folder}") from None

    def kept(self) -> set[str]:
        """The digests of the originals that are kept."""
        try:
            return {name for name in os.listdir(self.originals) if _DIGEST.fullmatch(name)}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise _failed(error, self.originals) from None

    def original(self, digest_: str, path: Path) -> bytes:
        """What a file held before the pack.  Raises :class:`StorageError` if it is gone or damaged."""
        place = self.originals / digest_
        try:
            content = place.read_bytes()
        except FileNotFoundError:
            raise StorageError(f"{path}: what it was, {place}, is gone: reinstall the package, then run this again") from None
        except OSError as error:
            raise _failed(error, place) from None
        if digest(content) != digest_:
            raise StorageError(f"{path}: what it was, {place}, is damaged: reinstall the package, then run this again")
        return content

    def keep(self, contents: Iterable[bytes]) -> None:
        """Keep originals."""
        for content in contents:
            file = self.originals / digest(content)
            with _storing(self.originals):
                self._made(self.originals)
                if not file.exists() or file.read_bytes() != content:
                    self._write(file, content)

    def write_record(self, files: dict[str, Recorded]) -> None:
        """Write down what is going to be written."""
        data = {"format": FORMAT, "files": {name: asdict(entry) for name, entry in files.items()}}
        with _storing(self.folder):
            self._write(self.file, (json.dumps(data, indent=1) + "\n").encode())

    def forget(self) -> None:
        """Remove the folder, the record last: it says that the files are what they were."""
        with _storing(self.folder):
            for path in [*(self.originals / name for name in sorted(self.kept())), self.file, self.folder / "lock"]:
                path.unlink(missing_ok=True)
            for place in (self.originals, self.folder):
                try:
                    place.rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):  # somebody put something there
                        raise

    @property
    def exists(self) -> bool:
        """Whether the folder is there, with a record or without one."""
        return self.folder.is_dir()

    def leftovers(self, folders: Iterable[Path]) -> list[Path]:
        """What a run is writing, or was when it was killed."""
        found = []
        for folder in {self.folder, self.originals, *folders}:
            with contextlib.suppress(FileNotFoundError), _storing(folder):
                found += [folder / name for name in os.listdir(folder) if _TEMPORARY.fullmatch(name)]
        return found

    def sweep(self, folders: Iterable[Path]) -> None:
        """Remove what a killed run was writing.  Only under the lock."""
        for path in self.leftovers(folders):
            with _storing(path):
                os.unlink(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only run on these packages; the lock ends with the process that holds it, however that ends."""
        with _storing(self.folder):
            descriptor = self._lock()
        try:
            yield
        finally:
            os.close(descriptor)

    def _mode(self) -> int:
        """Whoever may read the packages may verify, whatever the umask was."""
        return os.stat(self._home).st_mode & 0o777

    def _made(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if os.stat(folder).st_mode & 0o777 != self._mode():
            with contextlib.suppress(PermissionError):  # it is another user's
                os.chmod(folder, self._mode())

    def _write(self, file: Path, content: bytes) -> None:
        descriptor, temporary = _open_beside(file)
        _fill(descriptor, temporary, content, lambda: os.fchmod(descriptor, self._mode() & 0o666))
        _put(temporary, file)

    def _lock(self) -> int:
        waiting = False
        while True:
            self._made(self.folder)
            try:
                descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:  # another run has just reverted
                continue
            try:
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, self._mode() & 0o666)
                if not waiting:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                else:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.fstat(descriptor).st_ino == os.stat(self.folder / "lock").st_ino:
                    return descriptor
            except BlockingIOError:
                waiting = True
                with contextlib.suppress(OSError):
                    print(f"waiting for another run in {self.folder.parent}", file=sys.stderr, flush=True)
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def stage(path: Path, content: bytes) -> Path:
    """Write what a source file shall hold beside it, with its mode and owner.  Returns where, for :func:`put`.

    Raises :class:`StorageError` if that can not be done, or if the file could not be replaced afterwards.
    """
    with _storing(path):
        like, folder = os.stat(path), os.stat(path.parent)
        user = os.geteuid()
        read_only = like.st_uid == user and not like.st_mode & stat.S_IWUSR  # by its own mode alone
        sticky = folder.st_mode & stat.S_ISVTX and user not in (0, like.st_uid, folder.st_uid)
        if sticky or not (read_only or os.access(path, os.W_OK)):
            raise PermissionError(errno.EACCES, "it is not this user's to replace")
        descriptor, temporary = _open_beside(path)
        _fill(descriptor, temporary, content, lambda: _made_like(descriptor, like))
    return temporary


def put(staged: Path, path: Path) -> None:
    """Put what was staged in its place.  Raises :class:`StorageError`; the file is then as it was."""
    with _storing(path):
        _put(staged, path)


def discard(staged: Iterable[Path]) -> None:
    """Remove what was staged and not put in its place."""
    for path in staged:
        with contextlib.suppress(OSError):
            os.unlink(path)


def drop_stale_bytecode(path: Path, content: bytes) -> None:
    """Remove what :func:`stale_bytecode` finds.  Raises :class:`StorageError`."""
    for cached in stale_bytecode(path, content):
        with _storing(cached):
            cached.unlink(missing_ok=True)


def stale_bytecode(path: Path, content: bytes) -> list[Path]:
    """Bytecode of another source than ``content`` that Python would run without comparing the two (PEP 552, unchecked).

    Bytecode that Python does compare needs no care: a replaced file has another time of change.
    """
    found = []
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        with contextlib.suppress(OSError), open(cached, "rb") as file:
            header = file.read(16)
            unchecked = int.from_bytes(header[4:8], "little") & _HASHED == _UNCHECKED
            if unchecked and header[8:16] != importlib.util.source_hash(content):
                found.append(cached)
    return found


def _open_beside(path: Path) -> tuple[int, Path]:
    temporary = path.with_name(f".{path.name}.gaudi-cookbook-{os.getpid()}")
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), temporary


def _fill(descriptor: int, temporary: Path, content: bytes, finish: Callable[[], None]) -> None:
    """Write all of it, see to its mode, make it last, and close it; remove it if that fails."""
    try:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            finish()
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        discard([temporary])
        raise


def _made_like(descriptor: int, like: os.stat_result) -> None:
    os.fchmod(descriptor, like.st_mode & 0o7777)
    if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
    # Bytecode is told from the source by whole seconds of its time of change.
    later = max(time.time(), int(like.st_mtime) + 1)
    os.utime(descriptor, (later, later))


def _put(temporary: Path, path: Path) -> None:
    """Put a file in its place, and make that last."""
    try:
        os.replace(temporary, path)
    except BaseException:
        discard([temporary])
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has no such thing for folders
            raise
    finally:
        os.close(folder)


def _entry(name: str, entry: Any) -> Recorded:
    """One file of the record.  Raises :class:`ValueError` or :class:`TypeError` if it is not one."""
    recorded = Recorded(**entry)
    texts = [recorded.package, *recorded.fixes, *recorded.patched, recorded.original]
    lists = isinstance(recorded.fixes, list) and isinstance(recorded.patched, list) and recorded.patched
    inside = PurePosixPath(name)
    if not lists or not all(isinstance(text, str) for text in texts) or inside.is_absolute() or ".." in inside.parts:
        raise ValueError(name)
    if not all(_DIGEST.fullmatch(text) for text in [recorded.original, *recorded.patched]):
        raise ValueError(name)
    return recorded


@contextlib.contextmanager
def _storing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _failed(error, path) from None


def _failed(error: OSError, path: Path) -> StorageError:
    cures = {
        errno.EROFS: "run it where the packages can be written",
        errno.EACCES: "run it as the user that owns the packages",
        errno.EPERM: "run it as the user that owns the packages",
        errno.ENOSPC: "free some space and run it again",
        errno.EDQUOT: "free some space and run it again",
        errno.ENOLCK: "this file system has no locks: run it on a local one",
    }
    cure = cures.get(error.errno or 0)
    return StorageError(f"{path}: {(error.strerror or str(error)).lower()}{f': {cure}' if cure else ''}")
