"""The pack's own files: ``profiles/NAME.json``, and for each fix a folder with ``fix.json`` and its edits."""

from __future__ import annotations

import difflib
import importlib.util
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixpack.editing import Edit
from fixpack.errors import StorageError, UsageError

FOLDER = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Profile:
    """The fixes for one image, in the order in which they are applied, and those that are applied only when asked for."""

    name: str
    summary: str
    image: dict[str, dict[str, str]]
    """Package to what it must be: ``version``, ``commit``."""
    fixes: list[str]
    opt_in: list[str]


@dataclass(frozen=True)
class Fix:
    """One fix: what it is, and its edit of each file, named from the folder that holds the packages."""

    name: str
    title: str
    edits: dict[str, Edit]


def profiles(folder: Path = FOLDER) -> list[str]:
    """The names of all profiles."""
    return sorted(file.stem for file in (folder / "profiles").glob("*.json"))


def profile(name: str, folder: Path = FOLDER) -> Profile:
    """Read a profile.  Raises :class:`UsageError`, or :class:`StorageError` if it is damaged."""
    if name not in profiles(folder):
        raise UsageError(f"no profile {name!r}{_nearest(name, profiles(folder))}")
    file = folder / "profiles" / f"{name}.json"
    data = _json(file)
    image: Any = data.get("image")
    fixes: Any = data.get("fixes")
    opt_in: Any = data.get("opt_in", [])
    if not isinstance(data.get("summary"), str) or not _texts(fixes) or not _texts(opt_in):
        raise _damaged(file, "summary, fixes and opt_in are not texts and lists of texts")
    if not isinstance(image, dict) or "vllm" not in image or not all(_pins(pins) for pins in image.values()):
        raise _damaged(file, "image does not say what vllm and other packages must be")
    return Profile(name, data["summary"], image, fixes, opt_in)


def fixes(names: Iterable[str], folder: Path = FOLDER) -> list[Fix]:
    """Read fixes by name.  Raises :class:`StorageError` if one is missing or damaged."""
    return [_fix(name, folder) for name in names]


def wanted(profile: Profile, opt_in: list[str], only: list[str]) -> list[str]:
    """The names of the fixes that are asked for, in the profile's order.  Raises :class:`UsageError` for unknown ones."""
    known = [*profile.fixes, *profile.opt_in]
    for name in [*opt_in, *only]:
        if name not in known:
            raise UsageError(f"profile {profile.name} has no fix {name!r}{_nearest(name, known)}")
    for name in opt_in:
        if name in profile.fixes:
            raise UsageError(f"{name} is not opt-in, and applied anyway; --only {name} applies it alone")
    chosen = only or [*profile.fixes, *opt_in]
    return [name for name in known if name in chosen]


def _fix(name: str, folder: Path) -> Fix:
    file = folder / name / f"{name.replace('-', '_')}.py"
    about = _json(folder / name / "fix.json")
    if not isinstance(about.get("title"), str):
        raise _damaged(folder / name / "fix.json", "title is not a text")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return Fix(name, about["title"], dict(module.EDITS))
    except Exception as error:  # whatever a damaged module does
        raise _damaged(file, str(error)) from None


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise _damaged(file, (error.strerror or str(error)).lower()) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from None
    if not isinstance(data, dict):
        raise _damaged(file, "is no JSON object")
    return data


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _pins(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(pin, str) for pin in value.values())


def _damaged(file: Path, why: str) -> StorageError:
    return StorageError(f"{file}: {why}: check the pack out again")


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]}?" if near else f" (known: {', '.join(known)})"
