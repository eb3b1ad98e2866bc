"""Selections: one option per axis that is offered.  Standard library only, for the quick path of ``--export-shell``.

Axes are walked in order, and a condition refers to axes above, so what is offered at each step is known when it is reached.
The page's script walks the same data in the same way.

An axis here is ``{"name", "title", "kind", "when", "because", "default", "options"}``, an option ``{"name", "title", "when",
"because"}``, a default a list of ``{"option", "when"}``; a condition (``when``) is ``{axis: [options]}``, empty for always.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING would import typing
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    Condition: TypeAlias = Mapping[str, Sequence[str]]
    Axis: TypeAlias = Mapping[str, Any]
Selection = dict[str, str]


class ChoiceError(Exception):
    """A choice that is not offered; the message names it, the cause, and what is offered instead."""


def holds(when: Condition, selection: Mapping[str, str]) -> bool:
    """Whether each axis of a condition has one of its options; an axis that is not offered has none."""
    for axis, options in when.items():  # noqa: SIM110 - all() over a generator takes four times as long, and this is asked a lot
        if selection.get(axis) not in options:
            return False
    return True


def offered(axis: Axis, selection: Mapping[str, str]) -> list[str]:
    """Names of the options offered on an axis, given the choices on the axes above it; none if the axis is not offered."""
    if not holds(axis["when"], selection):
        return []
    return [option["name"] for option in axis["options"] if holds(option["when"], selection)]


def preferred(axis: Axis, selection: Mapping[str, str]) -> str | None:
    """The option taken where the reader has not chosen; None if the axis is not offered."""
    names = offered(axis, selection)
    for default in axis["default"]:
        if default["option"] in names and holds(default["when"], selection):
            return str(default["option"])
    return names[0] if names else None


def reachable(axes: Sequence[Axis], selection: Mapping[str, str] | None = None) -> Iterator[Selection]:
    """Every selection that can be made, in the order of axes and options."""
    selection = dict(selection or {})
    if not axes:
        yield selection
        return
    names = offered(axes[0], selection)
    if not names:
        yield from reachable(axes[1:], selection)
    for name in names:
        yield from reachable(axes[1:], {**selection, axes[0]["name"]: name})


def resolve(axes: Sequence[Axis], wanted: Mapping[str, str]) -> Selection:
    """The complete selection for some choices; the rest is filled with what is preferred.

    Axis and option names are matched whatever their case.  Raises :class:`ChoiceError` for an unknown name or for a choice
    that is not offered together with the others.
    """
    named = {axis["name"].casefold(): axis for axis in axes}
    choices: dict[str, str] = {}
    for axis_name, option_name in wanted.items():
        axis = named.get(axis_name.casefold())
        if axis is None:
            raise ChoiceError(f"no axis {axis_name!r}{_nearest(axis_name, [a['name'] for a in axes])}")
        options = {option["name"].casefold(): option["name"] for option in axis["options"]}
        if option_name.casefold() not in options:
            raise ChoiceError(f"no option {option_name!r} on axis {axis['name']}{_nearest(option_name, list(options.values()))}")
        choice = options[option_name.casefold()]
        if choices.setdefault(axis["name"], choice) != choice:
            raise ChoiceError(f"axis {axis['name']} is set twice, to {choices[axis['name']]} and to {choice}")
    selection: Selection = {}
    for axis in axes:
        name = axis["name"]
        if name not in choices:
            option = preferred(axis, selection)
            if option is not None:
                selection[name] = option
            continue
        if choices[name] not in offered(axis, selection):
            raise ChoiceError(f"{name}={choices[name]} is not offered: {_why(axis, choices[name], selection)}")
        selection[name] = choices[name]
    return selection


def _why(axis: Axis, choice: str, selection: Selection) -> str:
    option = next(option for option in axis["options"] if option["name"] == choice)
    thing = option if holds(axis["when"], selection) else axis
    needs = " and ".join(f"{name}={'|'.join(options)}" for name, options in thing["when"].items())
    now = ", ".join(f"{name}={selection[name]}" for name in thing["when"] if name in selection)
    because = f"{thing['because'].rstrip('.')}; " if thing["because"] else ""
    return f"{because}it needs {needs}" + (f", and this is {now}" if now else "")


def _nearest(word: str, names: Sequence[str]) -> str:
    import difflib

    folded = {name.casefold(): name for name in names}
    near = [folded[match] for match in difflib.get_close_matches(word.casefold(), list(folded), n=2, cutoff=0.5)]
    hint = f", did you mean {' or '.join(near)}?" if near else ""
    return f"{hint} (known: {', '.join(names)})"
