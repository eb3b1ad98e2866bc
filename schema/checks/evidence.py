"""Evidence, and what refers to it: arms, results, measurements, tables."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schema.figures import BrokenTableError, Figures
from schema.models import Recipe
from schema.problems import Problem, did_you_mean
from schema.selecting import ChoiceError, resolve
from schema.source import Loc, Source


def evidence(recipe: Recipe, source: Source, axes: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Evidence that says enough, and arms that ran a selection which can be made."""
    statuses = {"measured": ("measured_on", "commit", "command")}
    for i, evidence in enumerate(recipe.evidence):
        loc: Loc = ("evidence", i)
        for field in statuses.get(evidence.status, ()):
            if getattr(evidence, field) is None:
                yield source.problem(
                    loc, f"{field} is missing: what is measured says when, at which commit, and with which command"
                )
        if evidence.status == "measured" and not evidence.own_code:
            yield source.problem((*loc, "own_code"), "measured means that this repository's own code ran; else it is reported")
        if evidence.measured_on and evidence.measured_on.count("-") == 2:
            try:
                datetime.date.fromisoformat(evidence.measured_on)
            except ValueError:
                yield source.problem((*loc, "measured_on"), f"{evidence.measured_on} is no day of the calendar")
        if evidence.measured_on and evidence.measured_on > datetime.date.today().isoformat():
            yield source.problem((*loc, "measured_on"), f"{evidence.measured_on} is still to come")
        for j, arm in enumerate(evidence.arms):
            place: Loc = (*loc, "arms", j)
            if (arm.selection is None) == (arm.setup is None):
                yield source.problem(place, "needs either selection, or setup if what ran is no selection of this recipe")
            if arm.selection is None:
                continue
            try:
                complete = resolve(axes, arm.selection)
            except ChoiceError as error:
                yield source.problem((*place, "selection"), str(error))
                continue
            if complete != arm.selection:
                wanted = ", ".join(f"{axis}: {option}" for axis, option in complete.items())
                yield source.problem((*place, "selection"), f"must be complete and as spelt in axes: {{{wanted}}}")


def results(recipe: Recipe, source: Source) -> Iterator[Problem]:
    """Checks, measurements and columns refer to arms, and say something that can be."""
    arms = [item.name for evidence in recipe.evidence for item in evidence.arms]
    yield from _unique(recipe, source, "evidence", "checks", "measurements", "performance")
    seen: set[str] = set()
    for i, evidence in enumerate(recipe.evidence):
        for j, side in enumerate(evidence.arms):
            if side.name in seen:
                yield source.problem(("evidence", i, "arms", j, "name"), f"{side.name} is already the name of an arm above")
            seen.add(side.name)

    def known(arm: str, loc: Loc) -> Iterator[Problem]:
        if arm not in arms:
            yield source.problem(loc, f"no arm {arm!r} in evidence{did_you_mean(arm, arms)}")

    for i, check in enumerate(recipe.checks):
        for arm, result in check.results.items():
            loc: Loc = ("checks", i, "results", arm)
            yield from known(arm, loc)
            if (result.passed is None) != (result.of is None):
                yield source.problem(loc, "passed and of belong together")
            elif result.passed is not None and result.of is not None and result.passed > result.of:
                yield source.problem((*loc, "passed"), f"{result.passed} passed of {result.of}")
            elif result.outcome == "pass" and result.passed != result.of and not result.detail:
                yield source.problem((*loc, "outcome"), "is a pass below the count asked: say in detail why")
            elif result.outcome == "fail" and result.of is not None and result.passed == result.of:
                yield source.problem((*loc, "outcome"), "fails, and all that was asked passed")
            if not result.model_fields_set:
                yield source.problem(loc, "says nothing: give outcome, passed and of, value or detail")
            yield from _range(result.value, (*loc, "value"), source)
    for i, measurement in enumerate(recipe.measurements):
        for arm, value in measurement.values.items():
            yield from known(arm, ("measurements", i, "values", arm))
            yield from _range(value, ("measurements", i, "values", arm), source)
        for arm in measurement.details:
            if arm not in measurement.values:
                yield source.problem(("measurements", i, "details", arm), f"no value for arm {arm!r}")
    for i, table in enumerate(recipe.performance):
        for j, column in enumerate(table.columns):
            yield from known(column.arm, ("performance", i, "columns", j, "arm"))
            for k, cell in enumerate(column.values):
                yield from _range(cell, ("performance", i, "columns", j, "values", k), source)
    for i, evidence in enumerate(recipe.evidence):
        for j, side in enumerate(evidence.arms):
            if not _has_results(recipe, side.name):
                yield source.problem(("evidence", i, "arms", j), f"arm {side.name} has no results: leave it out")


def _has_results(recipe: Recipe, arm: str) -> bool:
    return (
        any(arm in check.results for check in recipe.checks)
        or any(arm in measurement.values for measurement in recipe.measurements)
        or any(column.arm == arm for table in recipe.performance for column in table.columns)
    )


def _range(value: Any, loc: Loc, source: Source) -> Iterator[Problem]:
    if hasattr(value, "low") and value.low > value.high:
        yield source.problem((*loc, "low"), f"{value.low} is more than high, {value.high}")


def _unique(recipe: Recipe, source: Source, *fields: str) -> Iterator[Problem]:
    for field in fields:
        names = [item.name for item in getattr(recipe, field)]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield source.problem((field, i, "name"), f"{name} is already used above")


def _rows_once(recipe: Recipe, source: Source) -> Iterator[Problem]:
    """Guides refer to a row by its value."""
    for i, table in enumerate(recipe.performance):
        for j, value in enumerate(table.rows.values):
            if value in table.rows.values[:j]:
                yield source.problem(("performance", i, "rows", "values", j), f"{value} is a row above already")


def tables(recipe: Recipe, source: Source, figures: Figures) -> Iterator[Problem]:
    """Performance tables that can be computed, with charts of their columns."""
    yield from _rows_once(recipe, source)
    for i, table in enumerate(recipe.performance):
        loc: Loc = ("performance", i)
        names = [column.name for column in table.columns] + [column.name for column in table.derived]
        for name in {name for name in names if names.count(name) > 1}:
            yield source.problem(loc, f"column {name} stands twice")
        for k, chart in enumerate(table.charts):
            for m, name in enumerate(chart.columns):
                if name not in names:
                    yield source.problem((*loc, "charts", k, "columns", m), f"no column {name!r}{did_you_mean(name, names)}")
        try:
            figures.table(table.name)
        except BrokenTableError as error:
            if error.table == table.name:
                yield source.problem(loc, str(error))
