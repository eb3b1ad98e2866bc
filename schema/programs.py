"""The launch program of a recipe, by id or path: out of the cache when nothing changed since the recipe was checked.

This is the quick path of ``--export-shell``: with a cached program it imports the standard library alone.
"""

from __future__ import annotations

import difflib
import json
import os
from typing import Any

from schema import cache

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class UnknownRecipeError(Exception):
    """No recipe has that id or path; the message names the nearest."""


def locate(wanted: str, root: str = ROOT) -> str:
    """The ``recipe.yaml`` of an id, a folder or a file.  Raises :class:`UnknownRecipeError`."""
    recipes = os.path.join(root, "recipes")
    plain = wanted.strip("/")
    if wanted and not wanted.startswith((".", "/")) and plain.count("/") == 1 and ".." not in plain.split("/"):
        file = os.path.join(recipes, plain, "recipe.yaml")
        if os.path.isfile(file):
            return file
    for file in (wanted, os.path.join(wanted, "recipe.yaml")):
        if os.path.basename(file) == "recipe.yaml" and os.path.isfile(file):
            return os.path.abspath(file)
    known = identities(root)
    folded = {name.casefold(): name for name in known}
    if plain.casefold() in folded:
        return os.path.join(recipes, folded[plain.casefold()], "recipe.yaml")
    near = [folded[name] for name in difflib.get_close_matches(plain.casefold(), list(folded), n=3, cutoff=0.4)]
    hint = f", did you mean {' or '.join(near)}?" if near else f" (known: {', '.join(known[:8])})" if known else ""
    raise UnknownRecipeError(f"no recipe {wanted!r}{hint}")


def identities(root: str = ROOT) -> list[str]:
    """The ids of all recipes, sorted."""
    found = []
    recipes = os.path.join(root, "recipes")
    for owner in sorted(os.listdir(recipes)) if os.path.isdir(recipes) else []:
        folder = os.path.join(recipes, owner)
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        found += [f"{owner}/{name}" for name in names if os.path.isfile(os.path.join(folder, name, "recipe.yaml"))]
    return found


def root_of(file: str) -> str:
    """The repository that a ``recipe.yaml`` belongs to: what holds its ``recipes`` folder, else this one."""
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(file))))
    return os.path.dirname(above) if os.path.basename(above) == "recipes" else ROOT


def program(file: str) -> dict[str, Any]:
    """The launch program of a ``recipe.yaml``, checked now or when it last changed.

    Raises ``schema.problems.ProblemsError`` for a recipe with problems.
    """
    root = root_of(file)
    name = _name(file)
    if name:
        kept = cache.read(ROOT, "programs", name)
        if kept is not None:
            found: dict[str, Any] = json.loads(kept)
            return found
    from pathlib import Path

    from schema.loading import load

    fresh = load(Path(file), Path(root)).program
    if name:
        cache.write(ROOT, "programs", name, json.dumps(fresh).encode())
    return fresh


def _name(file: str) -> str | None:
    """What the cached program of a file is called: by its place, its content, and the code that reads it."""
    try:
        if os.path.getsize(file) > 1_000_000:
            return None
        with open(file, "rb") as opened:
            content = opened.read()
        return cache.digest(os.path.abspath(file).encode(), content, cache.fingerprint(os.path.join(ROOT, "schema")).encode())
    except OSError:
        return None
