"""All recipes as pages, each made once and kept until something it is made from changes.

What is kept (see :mod:`schema.cache`) is named by a digest of the recipe's own files, of the code and templates, and of what the
checks look at elsewhere in the repository.
"""

from __future__ import annotations

import gc
import json
import marshal
import os
import sys
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cache as remember
from pathlib import Path
from typing import Any

from schema import cache
from schema.block import render
from schema.loading import load, misplaced, recipe_files
from schema.models import ImageOption, Recipe
from schema.problems import Problem, ProblemsError, did_you_mean
from schema.selecting import resolve
from theme.finder import Card, card, card_data, card_from
from theme.pages import RecipePage, recipe_page


@dataclass(frozen=True)
class Entry:
    """A recipe, ready to be written: its page, the files beside it, its card."""

    page: RecipePage
    launch: str
    """``launch.sh``: the block of the default selection."""
    data: str
    """``recipe.json``."""
    card: Card
    order: int
    related: list[str]
    named: dict[str, bool]
    """Files of the repository that the recipe names outside ``fixes/`` and ``ports/``, and whether each was there."""
    pins: dict[str, str]
    """What the images pin, as ``"vLLM commit"`` to the commit, for hand-written pages."""


def read_book(root: Path) -> list[Entry]:
    """Every recipe of a repository, in the order of lists.  Raises :class:`ProblemsError` with the problems of all."""
    code = _code(root)
    around = _around(root)
    entries: list[Entry] = []
    files = recipe_files(root)
    problems: list[Problem] = list(misplaced(root, files))
    # Nothing made here refers back to itself, so there is nothing for the collector to find, and much for it to look at.
    collecting = gc.isenabled()
    gc.disable()
    identities = {f"{file.parent.parent.name}/{file.parent.name}" for file in files}
    try:
        for file in files:
            try:
                entries.append(_entry(file, root, code, around, identities))
            except ProblemsError as error:
                problems += error.problems
    finally:
        if collecting:
            gc.enable()
    if problems:
        raise ProblemsError(problems)
    return sorted(entries, key=lambda entry: (entry.order, entry.page.identity.casefold()))


_LAST: dict[Path, tuple[tuple[object, ...], Entry]] = {}
"""What this process made of each file last, and from what, so that a server need not read again what did not change."""


def _entry(file: Path, root: Path, code: str, around: str, identities: Container[str]) -> Entry:
    made_from = (code, around, _stamp(file), _stamp(file.with_name("guide.md")))
    last = _LAST.get(file)
    entry = last[1] if last and last[0] == made_from else _kept_or_made(file, root, code, around)
    # What a recipe names elsewhere is looked at again, whatever was kept.
    there = all((root / path).exists() == was for path, was in entry.named.items())
    if not there or not all(identity in identities for identity in entry.related):
        entry = _made(file, root)
    _LAST[file] = made_from, entry
    return entry


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def _kept_or_made(file: Path, root: Path, code: str, around: str) -> Entry:
    name = _digest(file, code, around)
    kept = cache.read(root, "pages", name) if name else None
    if kept is not None:
        try:
            return _unpack(marshal.loads(kept))  # noqa: S302 - from our own checkout, as .pyc files are
        except (ValueError, TypeError, KeyError, EOFError):
            pass
    entry = _made(file, root)
    if name:
        cache.write(root, "pages", name, marshal.dumps(_pack(entry)))
    return entry


def _made(file: Path, root: Path) -> Entry:
    loaded = load(file, root)
    return Entry(
        page=recipe_page(loaded, root),
        launch=render(loaded.program, resolve(loaded.program["axes"], {})),
        data=json.dumps(loaded.described, indent=1, ensure_ascii=False) + "\n",
        card=card(loaded),
        order=loaded.recipe.order,
        related=loaded.recipe.related,
        named={path: (root / path).exists() for path in _named(loaded.recipe)},
        pins=_pins(loaded.recipe),
    )


def _named(recipe: Recipe) -> list[str]:
    records = [evidence.source for evidence in recipe.evidence if evidence.status == "measured" and not evidence.source_url]
    return [*records, *(link.path for link in recipe.links if link.path)]


def _pins(recipe: Recipe) -> dict[str, str]:
    pins = {}
    for axis in recipe.axes:
        for option in axis.options:
            for component in option.components if isinstance(option, ImageOption) else []:
                for field in ("version", "commit"):
                    if value := getattr(component, field):
                        pins[f"{component.name} {field}"] = value
    return pins


def _pack(entry: Entry) -> dict[str, Any]:
    page = entry.page
    return {**vars(entry), "page": {**vars(page)}, "card": card_data(entry.card)}


def _unpack(data: dict[str, Any]) -> Entry:
    page = data["page"]
    return Entry(**{**data, "page": RecipePage(**page), "card": card_from(data["card"])})


def _digest(file: Path, code: str, around: str) -> str | None:
    """The name under which a recipe's entry is kept; None if its files can not be read, which loading will explain."""
    parts = [sys.version.encode(), code.encode(), around.encode(), str(file).encode()]
    for path in (file, file.parent / "guide.md"):
        try:
            parts.append(path.read_bytes() if path.stat().st_size <= 1_000_000 else b"")
        except OSError:
            parts.append(b"")
    return cache.digest(*parts)


@remember
def _code_of(root: str, changed: float) -> str:
    return cache.fingerprint(os.path.join(root, "schema")) + cache.fingerprint(
        os.path.join(root, "theme"), (".py", ".html", ".md")
    )


def _code(root: Path) -> str:
    """A digest of the code and templates that make the pages."""
    here = Path(__file__).parent.parent
    newest = max(path.stat().st_mtime for folder in ("schema", "theme") for path in (here / folder).rglob("*") if path.is_file())
    return _code_of(str(here), newest)


def _around(root: Path) -> str:
    """A digest of what recipes refer to outside their folder: which paths there are, and what the profiles say."""
    parts = []
    for folder in ("fixes", "ports", "benchmarks", "tests"):
        for directory, folders, files in os.walk(root / folder):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
            parts += [os.path.join(directory, name).encode() for name in [*folders, *sorted(files)]]
    for file in sorted((root / "fixes").glob("**/*.json")):
        try:
            parts.append(file.read_bytes())
        except OSError:
            parts.append(b"")
    return cache.digest(*parts)


def unknown_recipe(identity: str, entries: Iterable[Entry]) -> str | None:
    """Why an id names no recipe, or None if it does."""
    known = [entry.page.identity for entry in entries]
    return None if identity in known else f"no recipe {identity}{did_you_mean(identity, known)}"
