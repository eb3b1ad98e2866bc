"""The launch program of a recipe, by id or path: out of the cache when nothing changed since the recipe was checked.

This is the quick path of ``--export-shell``: with a cached program it imports the standard library alone.
"""

from __future__ import annotations

import marshal
import os
import sys

from schema import cache

TYPE_CHECKING = False  # typing.TYPE_CHECKING would import typing
if TYPE_CHECKING:
    from typing import Any

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
    folded = {known_name.casefold(): known_name for known_name in known}
    if plain.casefold() in folded:
        return os.path.join(recipes, folded[plain.casefold()], "recipe.yaml")
    import difflib

    near = [folded[match] for match in difflib.get_close_matches(plain.casefold(), list(folded), n=3, cutoff=0.4)]
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
    origin = _origin(file)
    name = os.path.abspath(file).replace(os.sep, "%")[-200:]
    if origin:
        kept = cache.read(ROOT, "programs", name)
        try:
            found = marshal.loads(kept or b"")  # noqa: S302 - from our own checkout, as .pyc files are
            if found[0] == origin:
                fresh: dict[str, Any] = found[1]
                return fresh
        except (EOFError, ValueError, TypeError, IndexError, KeyError):
            pass
    # Looking for pydantic's plugins reads the metadata of everything that is installed; there are none here.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from pathlib import Path

    from schema.loading import load

    fresh = load(Path(file), Path(root_of(file))).program
    if origin:
        cache.write(ROOT, "programs", name, marshal.dumps((origin, fresh)))
    return fresh


def _origin(file: str) -> tuple[Any, ...] | None:
    """What a program is made from: the file's place and content, the code that reads it, and this Python.

    ``marshal`` is what Python keeps its own compiled files in; reading it back imports nothing.
    """
    try:
        if os.path.getsize(file) > 1_000_000:
            return None
        with open(file, "rb") as opened:
            content = opened.read()
        guide = os.path.join(os.path.dirname(file), "guide.md")
        if os.path.lexists(guide):
            with open(guide, "rb") as opened:
                content += b"\0" + opened.read(1_000_001)
        return sys.version, os.path.abspath(file), content, cache.stamps(os.path.join(ROOT, "schema"))
    except OSError:
        return None
