"""From files to a checked recipe: read, validate, check, compile.  Every problem of every file is found in one run."""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Tag, ValidationError

from schema import checks
from schema.block import describe
from schema.compiling import compile_axes, compile_program
from schema.figures import Figures
from schema.guide import Part, default_guide, split
from schema.models import PATTERNS, Recipe
from schema.problems import Problem, ProblemsError, did_you_mean
from schema.selecting import Selection, reachable
from schema.source import Loc, Source, read_text, read_yaml

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe that passed every check, with what is made of it."""

    identity: str
    """``owner/name``, from its folder."""
    folder: Path
    source: Source
    recipe: Recipe
    guide: str
    """Markdown with ``{{ … }}`` still in it; the parts in their usual order if the recipe brings none."""
    figures: Figures
    """The recipe's figures, its tables computed."""

    @cached_property
    def parts(self) -> list[Part]:
        """The guide's parts."""
        return list(split(self.guide))

    @cached_property
    def program(self) -> dict[str, Any]:
        """The launch program, see :mod:`schema.block`."""
        return compile_program(self.identity, self.recipe)

    @cached_property
    def selections(self) -> list[Selection]:
        """Every selection that can be made."""
        return list(reachable(compile_axes(self.recipe)))

    @cached_property
    def described(self) -> dict[str, Any]:
        """Every selection with its environment, argv and block, see :func:`schema.block.describe`."""
        return describe(self.program)


def recipe_files(root: Path) -> list[Path]:
    """Every ``recipes/OWNER/NAME/recipe.yaml`` of a repository, sorted."""
    return sorted((root / "recipes").glob("*/*/recipe.yaml"))


def misplaced(root: Path, files: Iterable[Path]) -> Iterator[Problem]:
    """What lies under ``recipes/`` and would never be read, and recipes of one id but for its case, which share an address."""
    known = set(files)
    seen: dict[str, str] = {}
    for file in sorted(known):
        identity = f"{file.parent.parent.name}/{file.parent.name}"
        if (other := seen.setdefault(identity.casefold(), identity)) != identity:
            yield Problem(shown(file, root), 1, 1, "", f"{other} has this id but for its case: give it another")
    closed: list[OSError] = []
    for folder, _, names in os.walk(root / "recipes", onerror=closed.append):
        for name in names:
            file = Path(folder, name)
            if name.casefold() not in ("recipe.yaml", "recipe.yml") or file in known:
                continue
            what = "is not read here: a recipe is recipes/OWNER/NAME/recipe.yaml"
            if file.is_symlink() and not file.exists():
                what = "is a symbolic link that leads nowhere"
            yield Problem(shown(file, root), 1, 1, "", what)
    for error in closed:
        yield Problem(shown(Path(error.filename), root), 1, 1, "", f"can not be read: {(error.strerror or str(error)).lower()}")


def load_all(root: Path = ROOT, files: Iterable[Path] | None = None) -> list[LoadedRecipe]:
    """Load recipes, all of a repository if no files are given, in the order in which lists show them.

    Raises :class:`ProblemsError` with the problems of all files.
    """
    every = recipe_files(root) if files is None else list(files)
    loaded: list[LoadedRecipe] = []
    problems = list(misplaced(root, every)) if files is None else []
    for file in every:
        try:
            loaded.append(load(file, root))
        except ProblemsError as error:
            problems += error.problems
    if problems:
        raise ProblemsError(problems)
    return sorted(loaded, key=lambda item: (item.recipe.order, item.identity.casefold()))


def load(file: Path, root: Path = ROOT) -> LoadedRecipe:
    """Load one ``recipe.yaml`` and the ``guide.md`` beside it.  Raises :class:`ProblemsError` with all that is wrong."""
    name = shown(file, root)
    if name != str(file) and not file.resolve().is_relative_to(root.resolve()):
        raise ProblemsError([Problem(name, 1, 1, "", "is reached by a link that leads out of this repository")])
    source = read_yaml(file, name)
    file = Path(os.path.abspath(file))  # noqa: PTH100  # resolve() would follow links, absolute() keeps ".."
    recipe = validate(source)
    folder = file.parent
    figures = Figures(recipe)
    problems = list(checks.check(recipe, source, folder, root, figures))
    guide = ""
    guide_file = folder / "guide.md"
    guide_name = f"{source.name.removesuffix(file.name)}{guide_file.name}"
    try:
        if guide_file.is_symlink() and not any(guide_file.resolve().is_relative_to(home.resolve()) for home in (root, folder)):
            raise ProblemsError([Problem(guide_name, 1, 1, "", "is a link that leads out of this repository")])
        guide = read_text(guide_file, guide_name) if os.path.lexists(guide_file) else default_guide(recipe)
    except ProblemsError as error:
        problems += error.problems
    else:
        problems += checks.check_guide(recipe, guide, guide_name, figures)
    if problems:
        raise ProblemsError(problems)
    identity = f"{folder.parent.name}/{folder.name}"
    return LoadedRecipe(identity, folder, source, recipe, guide, figures)


def shown(path: Path, root: Path) -> str:
    """A path as problems name it: from the repository's root if it lies there, else as it was given."""
    try:
        return path.absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        return str(path)


def validate(source: Source) -> Recipe:
    """Turn the data of a file into a recipe.  Raises :class:`ProblemsError` with every fault of form."""
    if not isinstance(source.data, dict):
        raise ProblemsError([source.problem((), f"must be a mapping of keys to values, not {_kind(source.data)}")])
    try:
        return Recipe.model_validate(source.data)
    except ValidationError as error:
        raise ProblemsError(_problem(source, item) for item in error.errors(include_url=False)) from None


def _problem(source: Source, error: Any) -> Problem:
    loc = _real_loc(error["loc"])
    kind, value, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        message = f"unknown key{did_you_mean(str(loc[-1]), _fields(error['loc'][:-1]))}"
    elif kind == "missing":
        return source.problem(loc[:-1], f"{loc[-1]} is missing")
    elif kind == "string_type":
        message = f"must be text, not {_kind(value)}"
        if isinstance(value, typing.SupportsInt | bool) and not isinstance(value, list | dict):
            message += ": write it in quotes"
    elif kind == "string_pattern_mismatch":
        message = f"{_short(value)} is not {PATTERNS.get(context['pattern'], context['pattern'])}"
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        message = f"must be a mapping of keys to values, not {_kind(value)}"
    elif kind == "list_type":
        message = f"must be a list, not {_kind(value)}"
    elif kind in ("int_type", "int_from_float", "decimal_type", "is_instance_of"):
        message = f"must be a {'whole ' if kind.startswith('int') else ''}number, not {_kind(value)}"
    elif kind == "bool_type":
        message = f"must be true or false, not {_kind(value)}"
    elif kind in ("literal_error", "union_tag_invalid"):
        message = _not_among(kind, value, context)
    elif kind == "union_tag_not_found":
        message = f"{context['discriminator'].strip(chr(39))} is missing"
    elif kind in ("too_short", "string_too_short"):
        message = "must not be empty"
    elif kind in ("greater_than", "greater_than_equal", "less_than_equal"):
        limit = next(str(context[key]) for key in ("gt", "ge", "le") if key in context)
        relation = {"greater_than": "more than", "greater_than_equal": "at least", "less_than_equal": "at most"}[kind]
        message = f"must be {relation} {limit}, not {_short(value)}"
    else:
        message = error["msg"][:1].lower() + error["msg"][1:]
    return source.problem(loc, message)


def _not_among(kind: str, value: Any, context: Mapping[str, Any]) -> str:
    listed = context.get("expected") or context.get("expected_tags") or ""
    known = [word.strip(" '\"") for word in str(listed).replace(" or ", ",").split(",")]
    key = str(context.get("discriminator", "")).strip("'")
    word = value.get(key) if kind == "union_tag_invalid" and isinstance(value, dict) else value
    place = f"{key} " if kind == "union_tag_invalid" else ""
    return f"{place}{_short(word)} is not one of {', '.join(known)}{did_you_mean(str(word), known, everything_up_to=0)}"


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, str):
        return f"the text {_short(value)}"
    return f"the number {value}"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[-1]


def _real_loc(loc: tuple[str | int, ...]) -> Loc:
    """A pydantic location without the tags of unions, which are no keys of the file."""
    real: list[str | int] = []
    kind: Any = Recipe
    for step in loc:
        if typing.get_origin(_bare(kind)) not in (typing.Union, types.UnionType) and step != "[key]":
            real.append(step)
        kind = _step(kind, step)
    return tuple(real)


def _fields(loc: tuple[str | int, ...]) -> list[str]:
    """The keys that the model at a pydantic location knows."""
    kind: Any = Recipe
    for step in loc:
        kind = _step(kind, step)
    kind = _bare(kind)
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def _step(kind: Any, step: str | int) -> Any:
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(step))
        return field.annotation if field else None
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (list, dict):
        return arguments[-1]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next((member for member in arguments if step in _names(member)), None)
    return None


def _bare(kind: Any) -> Any:
    """A type without its annotations and without ``None``."""
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
            continue
        members = [member for member in typing.get_args(kind) if member is not types.NoneType]
        if typing.get_origin(kind) in (typing.Union, types.UnionType) and len(members) == 1:
            kind = members[0]
            continue
        return kind


def _names(member: Any) -> set[str]:
    """What pydantic calls a member of a union in a location: its tag, or the literal of its ``kind``."""
    names = {item.tag for item in getattr(member, "__metadata__", ()) if isinstance(item, Tag)}
    model = _bare(member)
    if isinstance(model, type) and issubclass(model, BaseModel) and "kind" in model.model_fields:
        names.update(typing.get_args(model.model_fields["kind"].annotation))
    return names
