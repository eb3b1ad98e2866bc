"""The axes: names, conditions that refer upwards, reasons, options that can be reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from schema import vocabulary
from schema.models import HardwareAxis, ImageOption, Recipe, When, condition
from schema.problems import Problem, did_you_mean
from schema.selecting import Selection
from schema.source import Loc, Source


def axes(recipe: Recipe, source: Source) -> Iterator[Problem]:
    """Names, conditions, reasons and defaults of the axes and their options."""
    above: dict[str, list[str]] = {}
    hardware = vocabulary.engines()[recipe.engine].hardware
    for i, axis in enumerate(recipe.axes):
        here: Loc = ("axes", i)
        if axis.name.casefold() in (name.casefold() for name in above):
            yield source.problem((*here, "name"), f"{axis.name} is already the name of an axis above")
        yield from _offered(axis.when, axis.because, above, here, source)
        names = [option.name for option in axis.options]
        for j, option in enumerate(axis.options):
            place: Loc = (*here, "options", j)
            if option.name.casefold() in (name.casefold() for name in names[:j]):
                yield source.problem((*place, "name"), f"{option.name} is already the name of an option above")
            yield from _offered(option.when, option.because, above, place, source)
            if isinstance(axis, HardwareAxis) and axis.options[j].hardware not in hardware:
                known = did_you_mean(axis.options[j].hardware, hardware)
                yield source.problem((*place, "hardware"), f"{recipe.engine} does not run on {axis.options[j].hardware}{known}")
            if isinstance(option, ImageOption) and not option.reference and not option.components:
                yield source.problem(place, "needs a reference, or the components that are pinned inside")
            if isinstance(axis, HardwareAxis) and axis.options[j].cards % axis.options[j].nodes:
                yield source.problem((*place, "cards"), "do not divide evenly over the nodes")
        defaults = axis.default if isinstance(axis.default, list) else []
        if isinstance(axis.default, str) and axis.default not in names:
            yield source.problem((*here, "default"), f"no option {axis.default!r}{did_you_mean(axis.default, names)}")
        for j, default in enumerate(defaults):
            if default.option not in names:
                hint = did_you_mean(default.option, names)
                yield source.problem((*here, "default", j, "option"), f"no option {default.option!r}{hint}")
            yield from condition_names(default.when, above, (*here, "default", j), source)
        above[axis.name] = names
    for kind in ("hardware", "variant"):
        if sum(axis.kind == kind for axis in recipe.axes) != 1:
            yield source.problem(("axes",), f"need exactly one axis of kind {kind}")


def _offered(
    when: When | None, because: str | None, above: Mapping[str, list[str]], loc: Loc, source: Source
) -> Iterator[Problem]:
    yield from condition_names(when, above, loc, source)
    if when and not because:
        yield source.problem((*loc, "when"), "needs a because: say to the reader why it is not always offered")
    if because and not when:
        yield source.problem((*loc, "because"), "explains a when, and there is none")


def condition_names(when: When | None, axes: Mapping[str, list[str]], loc: Loc, source: Source) -> Iterator[Problem]:
    """A condition names axes of ``axes`` and options that they have."""
    if not when:
        return
    for name, options in condition(when).items():
        if name not in axes:
            yield source.problem((*loc, "when", name), f"no axis {name!r} above{did_you_mean(name, axes)}")
            continue
        for option in options:
            if option not in axes[name]:
                hint = did_you_mean(option, axes[name])
                yield source.problem((*loc, "when", name), f"axis {name} has no option {option!r}{hint}")


def options_reached(recipe: Recipe, source: Source, selections: Sequence[Selection]) -> Iterator[Problem]:
    """No option is beyond every selection."""
    reached = {pair for selection in selections for pair in selection.items()}
    for i, axis in enumerate(recipe.axes):
        for j, option in enumerate(axis.options):
            if (axis.name, option.name) not in reached:
                yield source.problem(("axes", i, "options", j), f"option {option.name} can never be chosen: its when never holds")
