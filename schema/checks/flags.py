"""Whether the flags of a launch block exist in the version of the engine that the chosen image holds.

An image option names with ``accepts`` a catalog of :mod:`schema.catalogs`.  Where no image is chosen, or it names none, nothing
is known about the version and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from schema import catalogs, vocabulary
from schema.catalogs import UNTOLD, Fault
from schema.models import ArgItem, ImageAxis, Joined, Recipe, Variable, Word
from schema.problems import ProblemsError, did_you_mean
from schema.source import Loc


def check_accepts(recipe: Recipe) -> Iterator[tuple[Loc, str]]:
    """Every catalog that an image option names exists, can be read, and is one of what that image serves with."""
    program = vocabulary.engines()[recipe.engine].program
    for i, axis in enumerate(recipe.axes):
        if not isinstance(axis, ImageAxis):
            continue
        for j, option in enumerate(axis.options):
            if option.accepts is None:
                continue
            loc: Loc = ("axes", i, "options", j, "accepts")
            try:
                catalog = catalogs.catalog(option.accepts)
            except KeyError:
                hint = did_you_mean(option.accepts, catalogs.names())
                yield loc, f"no catalog {option.accepts!r} under schema/catalogs{hint}"
                continue
            except ProblemsError as error:
                yield loc, str(error.problems[0])
                continue
            if catalog.engine != program:
                yield loc, f"is a catalog of {catalog.title}, and {recipe.engine} serves with {program}"
                continue
            for component in option.components:
                if component.name.casefold() == catalog.engine and component.version not in (None, catalog.version):
                    yield loc, f"is a catalog of {catalog.title}, and the components name version {component.version}"


def accepted(recipe: Recipe, selection: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the catalogs that the flags of a selection are checked against: those of the images chosen."""
    images = (axis for axis in recipe.axes if isinstance(axis, ImageAxis))
    chosen = (option for axis in images for option in axis.options if selection.get(axis.name) == option.name)
    return tuple(option.accepts for option in chosen if option.accepts is not None)


def check_flags(
    recipe: Recipe, lines_held: Sequence[tuple[int, ArgItem]], selection: Mapping[str, str]
) -> Iterator[tuple[Loc, str]]:
    """What is wrong with the flags of one selection's block, each given with its index in the launch list.

    It depends on nothing but the lines and what :func:`accepted` gives, so the same pair need not be asked for twice.
    """
    for name in accepted(recipe, selection):
        flags = tuple((item.arg, _words(item)) for _, item in lines_held)
        for position, fault in _faults(name, flags):
            index, item = lines_held[position]
            field = "arg" if fault.at == "arg" else "value" if item.value is not None else "values"
            yield ("launch", index, field), fault.message


@lru_cache(maxsize=1024)
def _faults(name: str, flags: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[tuple[int, Fault], ...]:
    try:
        catalog = catalogs.catalog(name)
    except (KeyError, ProblemsError):
        return ()  # check_accepts says so, once
    return tuple(catalogs.faults_of(catalog, flags))


def _words(item: ArgItem) -> tuple[str, ...]:
    if item.value is not None:
        return (_word(item.value),)
    return tuple(map(_word, item.values or ()))


def _word(word: Word) -> str:
    """A value as the server gets it, or :data:`~schema.catalogs.UNTOLD` if a variable is in it."""
    match word:
        case str():
            return word
        case Joined(join=pieces) if not any(isinstance(piece, Variable) for piece in pieces):
            return "".join(piece for piece in pieces if isinstance(piece, str))
    return UNTOLD
