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
from fixpack.errors import UsageError

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
    """Read a profile.  Raises :class:`UsageError`."""
    if name not in profiles(folder):
        raise UsageError(f"no profile {name!r}{_nearest(name, profiles(folder))}")
    data = _json(folder / "profiles" / f"{name}.json")
    return Profile(name, data["summary"], data["image"], data["fixes"], data.get("opt_in", []))


def fixes(names: Iterable[str], folder: Path = FOLDER) -> list[Fix]:
    """Read fixes by name."""
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
    module_name = name.replace("-", "_")
    spec = importlib.util.spec_from_file_location(module_name, folder / name / f"{module_name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Fix(name, _json(folder / name / "fix.json")["title"], module.EDITS)


def _json(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]}?" if near else f" (known: {', '.join(known)})"
