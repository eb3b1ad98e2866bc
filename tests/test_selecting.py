"""Selections: what can be chosen together, what is taken where nothing is chosen, and what is said otherwise."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schema.loading import load
from schema.selecting import ChoiceError, holds, offered, preferred, reachable, resolve
from support import ROOT, SGLANG

NAMES = ["hardware", "Image", "x-Y", "z_9"]
OPTIONS = ["on", "OFF", "v0.30.0", "Mid"]


@st.composite
def axes_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Axes with conditions on axes above, as a recipe may have them."""
    axes: list[dict[str, Any]] = []

    def when() -> dict[str, list[str]]:
        above = draw(st.lists(st.sampled_from(axes), max_size=2, unique_by=lambda axis: axis["name"])) if axes else []
        return {
            axis["name"]: draw(st.lists(st.sampled_from([o["name"] for o in axis["options"]]), min_size=1, unique=True))
            for axis in above
        }

    for name in NAMES[: draw(st.integers(1, 4))]:
        names = draw(st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=4, unique=True))
        axis = {
            "name": name,
            "when": when(),
            "because": draw(st.sampled_from(["", "It was not tested."])),
            "default": [{"option": draw(st.sampled_from(names)), "when": when()} for _ in range(draw(st.integers(0, 2)))],
            "options": [{"name": option, "when": when(), "because": ""} for option in names],
        }
        axes.append(axis)
    return axes


def possible(axes: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Every selection, found by trying all."""
    found = []
    choices = [[option["name"] for option in axis["options"]] + [None] for axis in axes]
    for combination in itertools.product(*choices):
        above: dict[str, str] = {}
        for axis, choice in zip(axes, combination, strict=True):
            met = all(above.get(name) in options for name, options in axis["when"].items())
            open_options = [
                option["name"]
                for option in axis["options"]
                if met and all(above.get(name) in options for name, options in option["when"].items())
            ]
            if choice not in (open_options or [None]):
                break
            if choice is not None:
                above[axis["name"]] = choice
        else:
            found.append(above)
    return found


def as_set(selections: list[dict[str, str]]) -> set[tuple[tuple[str, str], ...]]:
    return {tuple(sorted(selection.items())) for selection in selections}


@given(axes_lists())
def test_reachable_is_everything_possible_once(axes: list[dict[str, Any]]) -> None:
    found = list(reachable(axes))
    assert as_set(found) == as_set(possible(axes))
    assert len(found) == len(as_set(found)) > 0


@given(axes_lists())
def test_every_reachable_selection_is_its_own_resolution(axes: list[dict[str, Any]]) -> None:
    for selection in reachable(axes):
        assert resolve(axes, selection) == selection
        assert resolve(axes, {name.swapcase(): option.swapcase() for name, option in selection.items()}) == selection


@given(axes_lists(), st.data())
def test_some_choices_of_a_selection_give_a_reachable_one_or_an_error(axes: list[dict[str, Any]], data: st.DataObject) -> None:
    every = list(reachable(axes))
    whole = data.draw(st.sampled_from(every))
    kept = {name: option for name, option in whole.items() if data.draw(st.booleans())}
    try:
        selection = resolve(axes, kept)
    except ChoiceError as error:
        if "is not offered" not in str(error):
            raise
    else:
        assert selection in every
        assert kept.items() <= selection.items()


@given(axes_lists(), st.data())
def test_choices_on_the_first_axes_can_always_be_completed(axes: list[dict[str, Any]], data: st.DataObject) -> None:
    every = list(reachable(axes))
    whole = data.draw(st.sampled_from(every))
    first = [axis["name"] for axis in axes[: data.draw(st.integers(0, len(axes)))]]
    assert resolve(axes, {name: whole[name] for name in first if name in whole}) in every


@given(axes_lists(), st.dictionaries(st.sampled_from([*NAMES, "other"]), st.sampled_from([*OPTIONS, "other"])))
def test_any_choices_give_a_reachable_selection_or_an_error(axes: list[dict[str, Any]], wanted: dict[str, str]) -> None:
    try:
        selection = resolve(axes, wanted)
    except ChoiceError:
        assert not any(wanted.items() <= candidate.items() for candidate in [resolve(axes, {})])
    else:
        assert selection in list(reachable(axes))
        assert wanted.items() <= selection.items()


@given(axes_lists())
def test_what_is_preferred_is_the_first_default_that_can_be_taken(axes: list[dict[str, Any]]) -> None:
    selection = resolve(axes, {})
    above: dict[str, str] = {}
    for axis in axes:
        names = offered(axis, above)
        defaults = [d["option"] for d in axis["default"] if d["option"] in names and holds(d["when"], above)]
        expected = [*defaults, *names, None][0]
        assert preferred(axis, above) == expected == selection.get(axis["name"])
        if expected is not None:
            above[axis["name"]] = expected


@given(axes_lists(), st.text(max_size=8))
def test_unknown_names_are_named_with_what_is_known(axes: list[dict[str, Any]], name: str) -> None:
    assume(name.casefold() not in {known.casefold() for known in [*NAMES, *OPTIONS]})
    with pytest.raises(ChoiceError) as axis_error:
        resolve(axes, {name: "on"})
    assert repr(name) in str(axis_error.value)
    assert f"(known: {', '.join(axis['name'] for axis in axes)})" in str(axis_error.value)
    with pytest.raises(ChoiceError) as option_error:
        resolve(axes, {axes[0]["name"]: name})
    assert str(option_error.value).startswith(f"no option {name!r} on axis {axes[0]['name']}")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"hardwear": "H200"}, "no axis 'hardwear', did you mean hardware? (known: hardware, quantization, image, "),
        ({"hardware": "h20"}, "no option 'h20' on axis hardware, did you mean H200? (known: H200, B300, "),
        (
            {"hardware": "h200", "quantization": "mxfp4"},
            (
                "quantization=MXFP4 is not offered: AMD's MXFP4 release was tested by SGLang on MI350X and MI355X only; "
                "it needs hardware=MI350X|MI355X, and this is hardware=H200"
            ),
        ),
        (
            {"hardware": "MI355X", "dp-attention": "on"},
            (
                "dp-attention=on is not offered: The MXFP4 command is published without DP attention; "
                "it needs quantization=INT4, and this is quantization=MXFP4"
            ),
        ),
        (
            {"hardware": "B300", "image": "v0.5.9-rocm700-mi30x"},
            (
                "image=v0.5.9-rocm700-mi30x is not offered: The source names no image for NVIDIA hardware; "
                "it needs hardware=MI300X|MI325X|MI350X|MI355X, and this is hardware=B300"
            ),
        ),
        ({"hardware": "H200", "HARDWARE": "B300"}, "axis hardware is set twice, to H200 and to B300"),
    ],
)
def test_messages(choices: dict[str, str], message: str) -> None:
    axes = load(ROOT / "recipes" / SGLANG / "recipe.yaml").program["axes"]
    with pytest.raises(ChoiceError) as error:
        resolve(axes, choices)
    assert str(error.value).startswith(message)


def test_the_same_choice_in_two_cases_is_one_choice() -> None:
    axes = load(ROOT / "recipes" / SGLANG / "recipe.yaml").program["axes"]
    assert resolve(axes, {"hardware": "b300", "HARDWARE": "B300"})["hardware"] == "B300"


def test_a_condition_on_an_axis_that_is_not_offered_does_not_hold() -> None:
    assert holds({}, {})
    assert not holds({"a": ["b"]}, {})
    assert holds({"a": ["b", "c"]}, {"a": "c"})
    assert not holds({"a": ["b"], "d": ["e"]}, {"a": "b"})
