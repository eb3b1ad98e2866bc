"""The fix pack's metadata, read as data: ``fixes/profiles/NAME.json`` and ``fixes/FIX/fix.json``.

JSON, because the fix pack itself runs on the node with the standard library alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from schema.problems import Problem, ProblemsError
from schema.source import read_text


class _Data(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, defer_build=True)


M = TypeVar("M", bound=_Data)


class Profile(_Data):
    """A profile: the fixes for one image, in the order in which they are applied."""

    name: str
    summary: str = ""
    image: dict[str, dict[str, str]] = {}
    """What the image must be: package to its version and commit."""
    fixes: list[str]
    opt_in: list[str] = []


class Fix(_Data):
    """One fix: what goes wrong, why, and what is changed."""

    name: str
    title: str
    symptom: str
    cause: str
    change: str
    shown: str
    """What was tried, and what was not."""
    upstream: list[str] = []
    files: list[str] = []


def read_profile(root: Path, name: str) -> Profile:
    """Read a profile.  Raises :class:`ProblemsError`."""
    return _read(root, f"fixes/profiles/{name}.json", Profile)


def profiles(root: Path) -> list[Profile]:
    """Every profile, by name."""
    return [read_profile(root, file.stem) for file in sorted((root / "fixes/profiles").glob("*.json"))]


def read_fix(root: Path, name: str) -> Fix:
    """Read one fix.  Raises :class:`ProblemsError`."""
    return _read(root, f"fixes/{name}/fix.json", Fix)


def _read(root: Path, path: str, kind: type[M]) -> M:
    """Read once for as long as the file does not change: every recipe of a profile asks for the same few files."""
    try:
        status = (root / path).stat()
    except (OSError, ValueError):
        return _parsed(read_text(root / path, path), path, kind)  # which says why it can not be read
    key = (root / path, status.st_mtime_ns, status.st_size)
    if key not in _KNOWN:
        _KNOWN[key] = _parsed(read_text(root / path, path), path, kind)
    found = _KNOWN[key]
    assert isinstance(found, kind)
    return found


_KNOWN: dict[tuple[Path, int, int], _Data] = {}


def _parsed(text: str, path: str, kind: type[M]) -> M:
    try:
        return kind.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise ProblemsError([Problem(path, error.lineno, error.colno, "", f"is not JSON: {error.msg}")]) from None
    except ValidationError as error:
        raise ProblemsError(
            Problem(path, 1, 1, ".".join(map(str, item["loc"])), item["msg"]) for item in error.errors()
        ) from None
