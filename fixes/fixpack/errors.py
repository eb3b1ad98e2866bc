"""What can go wrong, each kind with the exit code of ``apply_all.py``."""

from __future__ import annotations


class FixError(Exception):
    """What was asked for was not done.  ``reasons``: one line each, with the place, the cause and, if there is one, the cure."""

    code = 5

    def __init__(self, *reasons: str) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons


class UsageError(FixError):
    """A profile, fix or folder that is not there."""

    code = 2


class ImageError(FixError):
    """The installed packages are not the ones that the profile is for."""

    code = 3


class MismatchError(FixError):
    """The code is not what a fix expects, or a file was changed since."""

    code = 4


class StorageError(FixError):
    """Reading, locking or writing failed, or was interrupted; what was written is whole, and the next run completes it."""

    code = 5
