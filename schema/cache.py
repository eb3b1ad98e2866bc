"""What was made from files that have not changed since: kept beside the repository, in ``.cookbook-cache/``.

An entry is named by a digest of all that it was made from, so a stale one is never found.  Standard library only.  A cache that
can not be written (a read-only checkout) is no cache, and no error; one that can not be read is made anew.
"""

from __future__ import annotations

import os
from errno import EACCES, ELOOP

TYPE_CHECKING = False  # typing.TYPE_CHECKING would import typing
if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ".cookbook-cache"


def digest(*parts: bytes) -> str:
    """A name for the sequence of parts: other parts, or the same ones cut elsewhere, give another name."""
    from hashlib import blake2b

    total = blake2b(digest_size=20)
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def fingerprint(folder: str, suffixes: tuple[str, ...] = (".py", ".yaml", ".json")) -> str:
    """A digest of the source files under a folder: what a cached thing was made by."""
    parts = []
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            if name.endswith(suffixes):
                with open(os.path.join(directory, name), "rb") as file:
                    parts += [name.encode(), file.read()]
    return digest(*parts)


def stamps(folder: str) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change of every source file under a folder: quicker than a digest, and as good on one machine."""
    found: list[tuple[str, int, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                found += stamps(entry.path) if entry.name != "__pycache__" else ()
            elif entry.name.endswith((".py", ".yaml", ".json")):
                status = entry.stat()
                found.append((entry.path, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def read(root: Path | str, kind: str, name: str) -> bytes | None:
    """An entry, or None if there is none or it is damaged."""
    try:
        with open(os.path.join(root, FOLDER, kind, name), "rb") as file:
            seal, _, content = file.read().partition(b"\n")
    except OSError:
        return None
    return content if seal == _seal(content) else None


def write(root: Path | str, kind: str, name: str, content: bytes) -> None:
    """Keep an entry.  A reader sees all of it or nothing."""
    folder = os.path.join(root, FOLDER, kind)
    try:
        os.makedirs(folder, exist_ok=True)
        write_atomically(os.path.join(folder, name), _seal(content) + b"\n" + content)
    except OSError:
        pass


def _seal(content: bytes) -> bytes:
    """A sum that damage does not survive; no more is needed, and importing hashlib takes a tenth of a quick export."""
    from zlib import crc32

    return b"%08x" % crc32(content)


def write_atomically(path: Path | str, content: bytes, mode: int = 0o666) -> None:
    """Write a file so that at every moment the path holds the old content or the new, never a part.

    ``mode`` is that of a new file, reduced by the umask; a file that is there keeps its own, and those who may read it may run
    it if ``mode`` is an executable's.  What is there and is no regular file, a pipe or a device, is written to instead.
    Raises :class:`OSError` about ``path``, and then leaves nothing behind.
    """
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                file.write(content)
            return
        if os.path.islink(target):
            raise OSError(ELOOP, os.strerror(ELOOP))
        keep = os.stat(target).st_mode & 0o777 if os.path.exists(target) else None
        if keep is not None and not os.access(target, os.W_OK):
            raise OSError(EACCES, os.strerror(EACCES))
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            if keep is not None:
                os.fchmod(descriptor, keep | ((keep & 0o444) >> 2 if mode & 0o111 else 0))
            file.write(content)
        os.replace(temporary, target)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise OSError(error.errno, error.strerror, str(path)) from None
