"""What a recipe names elsewhere in the repository: files, fixes, other recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from schema.checks.launch import words_of
from schema.fixes import Profile, read_profile
from schema.models import ImageOption, Recipe, RunItem
from schema.problems import Problem, ProblemsError, did_you_mean
from schema.source import Loc, Source

_IDENTITY = re.compile(r"[A-Za-z0-9][\w.-]*")


def place(source: Source, folder: Path) -> Iterator[Problem]:
    """The folders of a recipe make an id."""
    for part in (folder.parent.name, folder.name):
        if not _IDENTITY.fullmatch(part):
            yield source.problem((), f"lies in a folder {part!r} that can not be part of an id owner/name")


def paths(recipe: Recipe, source: Source, folder: Path, root: Path) -> Iterator[Problem]:
    """Every path of the repository that is named exists, or is pending; every pending path is named and does not exist."""
    named: dict[str, Loc] = {}
    for i, item in enumerate(recipe.launch):
        if not isinstance(item, RunItem):
            continue
        for place, word in words_of(item):
            match word:
                case [{"var": "COOKBOOK"}, str(path)] if path.startswith("/"):
                    named.setdefault(path[1:], ("launch", i, *place))
    for i, link in enumerate(recipe.links):
        if (link.url is None) == (link.path is None):
            yield source.problem(("links", i), "needs either url or path")
        if link.path:
            named.setdefault(link.path, ("links", i, "path"))
    if recipe.fixes:
        named.setdefault(f"fixes/profiles/{recipe.fixes.profile}.json", ("fixes", "profile"))
    if recipe.port:
        named.setdefault(f"ports/{recipe.port}/PORT.md", ("port",))
    real_root = root.resolve()
    for path, loc in named.items():
        problem = _outside(path, root, real_root)
        if problem:
            yield source.problem(loc, problem)
        elif path not in recipe.pending and not _is_there(root / path):
            yield source.problem(loc, f"{path} does not exist in this repository; if it is still to come, list it in pending")
    for i, evidence in enumerate(recipe.evidence):
        if evidence.status == "measured" and evidence.source_url is None:
            record = root / evidence.source
            if _outside(evidence.source, root, real_root) or not _is_there(record) or not record.is_file():
                yield source.problem(
                    ("evidence", i, "source"), "is no file of this repository: name the record of what ran, or give source_url"
                )
    for i, path in enumerate(recipe.pending):
        if path not in named:
            yield source.problem(("pending", i), f"nothing in this recipe names {path}{did_you_mean(path, named)}")
        elif _is_there(root / path):
            yield source.problem(("pending", i), f"{path} exists now: take it off this list")
    for i, identity in enumerate(recipe.related):
        if identity == f"{folder.parent.name}/{folder.name}":
            yield source.problem(("related", i), "is this recipe itself")
        elif not _is_there(root / "recipes" / identity / "recipe.yaml"):
            known = [f"{p.parent.parent.name}/{p.parent.name}" for p in (root / "recipes").glob("*/*/recipe.yaml")]
            yield source.problem(("related", i), f"no recipe {identity}{did_you_mean(identity, known)}")
    if recipe.fixes and (root / f"fixes/profiles/{recipe.fixes.profile}.json").is_file():
        try:
            profile = read_profile(root, recipe.fixes.profile)
        except ProblemsError as error:
            yield from error.problems
        else:
            yield from _image(recipe, source, profile)
            for i, fix in enumerate(recipe.fixes.required):
                if fix.name not in profile.fixes:
                    hint = did_you_mean(fix.name, profile.fixes)
                    yield source.problem(
                        ("fixes", "required", i, "name"), f"profile {profile.name} has no fix {fix.name!r}{hint}"
                    )


def _image(recipe: Recipe, source: Source, profile: Profile) -> Iterator[Problem]:
    """A recipe's images are of the versions and commits that its fix profile is for."""
    for i, axis in enumerate(recipe.axes):
        for j, option in enumerate(axis.options):
            for k, component in enumerate(option.components if isinstance(option, ImageOption) else []):
                pins = profile.image.get(component.name.casefold().replace("-", "_"), {})
                commit, pinned = component.commit or "", pins.get("commit", "")
                if commit and pinned and not (commit.startswith(pinned) or pinned.startswith(commit)):
                    loc: Loc = ("axes", i, "options", j, "components", k, "commit")
                    yield source.problem(loc, f"fix profile {profile.name} is for {component.name} at {pinned}, not {commit}")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _outside(path: str, root: Path, real_root: Path) -> str | None:
    """Why a path is none of this repository's, or None.  ``real_root`` is the root with its links followed."""
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.rstrip("/").split("/")):
        return f"{path} is not a plain path inside this repository"
    try:
        inside = (root / path).resolve().is_relative_to(real_root)
    except (OSError, RuntimeError):
        return f"{path} can not be followed: a link leads back to itself"
    except ValueError:
        return f"{path!r} is no path"
    return None if inside else f"{path} leads out of this repository"
