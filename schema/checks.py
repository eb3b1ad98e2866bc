"""What a recipe can be wrong about as a whole: names that refer to nothing, commands that can not work, missing files.

Each check is a generator of problems over one recipe that is well formed; every reachable selection is looked at.
"""

from __future__ import annotations

import datetime
import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schema import vocabulary
from schema.compiling import compile_axes, pieces
from schema.facts import launch_facts, memory_gb, weights_gb
from schema.figures import BrokenTableError, FigureError, Figures, placeholders, prose
from schema.fixes import read_profile
from schema.guide import DIRECTIVES, split
from schema.models import (
    ArgItem,
    CommentItem,
    EnvItem,
    HardwareAxis,
    ImageOption,
    LaunchItem,
    Recipe,
    RunItem,
    ServeItem,
    When,
    condition,
)
from schema.problems import Problem, ProblemsError, did_you_mean
from schema.quoting import Piece, is_command, is_shells_own, unspeakable
from schema.selecting import ChoiceError, Selection, holds, reachable, resolve
from schema.source import Loc, Source

MAX_SELECTIONS = 4096
_IDENTITY = re.compile(r"[A-Za-z0-9][\w.-]*")
_UNCLOSED = re.compile(r"\{\{(?![^{}\n]*\}\})")
_FLAG_IN_CODE = re.compile(r"`(--[A-Za-z][\w-]*)")


def check(recipe: Recipe, source: Source, folder: Path, root: Path, figures: Figures | None = None) -> Iterator[Problem]:
    """Everything but the guide.  ``folder`` holds the recipe, ``root`` is the repository."""
    figures = figures or Figures(recipe)
    yield from _place(source, folder)
    axes_problems = list(_axes(recipe, source))
    yield from axes_problems
    if not axes_problems:
        axes = compile_axes(recipe)
        selections = list(itertools.islice(reachable(axes), MAX_SELECTIONS + 1))
        if len(selections) > MAX_SELECTIONS:
            yield source.problem(("axes",), f"give more than {MAX_SELECTIONS:,} selections: split the recipe")
        else:
            yield from _options_reached(recipe, source, selections)
            yield from _launch(recipe, source, selections)
        yield from _evidence(recipe, source, axes)
    yield from _results(recipe, source)
    yield from _tables(recipe, source, figures)
    yield from _paths(recipe, source, folder, root)
    yield from _texts(recipe, source, figures)


def check_guide(recipe: Recipe, guide: str, name: str, figures: Figures | None = None) -> Iterator[Problem]:
    """The guide's ``{{ … }}``: each names a figure or a part of the page, and no part with data is left out."""
    figures = figures or Figures(recipe)

    def problem(offset: int, message: str) -> Problem:
        line_start = guide.rfind("\n", 0, offset) + 1
        return Problem(name, guide.count("\n", 0, offset) + 1, offset - line_start + 1, "", message)

    placed = set()
    for part in split(guide):
        if part.directive is None:
            for offset, expression in placeholders(part.text):
                if expression in DIRECTIVES or (expression.startswith("performance.") and expression.count(".") == 1):
                    yield problem(part.offset + offset, f"{{{{ {expression} }}}} must stand on a line of its own, not indented")
                    placed.add(expression)
                    continue
                try:
                    figures.value(expression)
                except BrokenTableError:
                    continue
                except FigureError as error:
                    yield problem(part.offset + offset, f"{{{{ {expression} }}}}: {error}")
            if unclosed := _UNCLOSED.search(part.text):
                yield problem(part.offset + unclosed.start(), "{{ is not closed by }} on the same line")
            continue
        placed.add(part.directive)
        try:
            if part.directive.startswith("performance."):
                figures.table(part.directive.removeprefix("performance."))
        except BrokenTableError:
            continue
        except FigureError as error:
            yield problem(part.offset, f"{{{{ {part.directive} }}}}: {error}")
    for flag, offset in _misspelt_flags(recipe, guide):
        yield problem(offset, flag)
    for directive, field in DIRECTIVES.items():
        if field and getattr(recipe, field) and directive not in placed:
            yield problem(len(guide), f"{{{{ {directive} }}}} is missing: the recipe has {field} that would not be shown")
    for table in recipe.performance:
        if f"performance.{table.name}" not in placed:
            yield problem(len(guide), f"{{{{ performance.{table.name} }}}} is missing: the table would not be shown")


def _place(source: Source, folder: Path) -> Iterator[Problem]:
    for part in (folder.parent.name, folder.name):
        if not _IDENTITY.fullmatch(part):
            yield source.problem((), f"lies in a folder {part!r} that can not be part of an id owner/name")


# --- choices ---------------------------------------------------------------------------------------------------------


def _axes(recipe: Recipe, source: Source) -> Iterator[Problem]:
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
            yield from _condition(default.when, above, (*here, "default", j), source)
        above[axis.name] = names
    for kind in ("hardware", "variant"):
        if sum(axis.kind == kind for axis in recipe.axes) != 1:
            yield source.problem(("axes",), f"need exactly one axis of kind {kind}")


def _offered(
    when: When | None, because: str | None, above: Mapping[str, list[str]], loc: Loc, source: Source
) -> Iterator[Problem]:
    yield from _condition(when, above, loc, source)
    if when and not because:
        yield source.problem((*loc, "when"), "needs a because: say to the reader why it is not always offered")
    if because and not when:
        yield source.problem((*loc, "because"), "explains a when, and there is none")


def _condition(when: When | None, axes: Mapping[str, list[str]], loc: Loc, source: Source) -> Iterator[Problem]:
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


def _options_reached(recipe: Recipe, source: Source, selections: Sequence[Selection]) -> Iterator[Problem]:
    reached = {pair for selection in selections for pair in selection.items()}
    for i, axis in enumerate(recipe.axes):
        for j, option in enumerate(axis.options):
            if (axis.name, option.name) not in reached:
                yield source.problem(("axes", i, "options", j), f"option {option.name} can never be chosen: its when never holds")


# --- the launch block ------------------------------------------------------------------------------------------------


def _launch(recipe: Recipe, source: Source, selections: Sequence[Selection]) -> Iterator[Problem]:
    axes = {axis.name: [option.name for option in axis.options] for axis in recipe.axes}
    lines = [_Line(item, condition(item.when), list(_words(item))) for item in recipe.launch]
    ill: list[Problem] = []
    declared = {requirement.variable for requirement in recipe.requires}
    for i, line in enumerate(lines):
        ill += _condition(line.item.when, axes, ("launch", i), source)
        ill += _item(line, recipe.engine, declared, ("launch", i), source)
    ill += _order(recipe, source)
    yield from ill
    if ill:
        return
    found: dict[tuple[Loc, str], Problem] = {}
    used: set[int] = set()
    seen: set[tuple[int, ...]] = set()
    for selection in selections:
        held = tuple(i for i, line in enumerate(lines) if holds(line.when, selection))
        used.update(held)
        for loc, message in _capacity(recipe, lines, held, selection):
            found.setdefault((loc, message), source.problem(loc, f"{message} ({_said(selection)})"))
        if held not in seen:
            seen.add(held)
            for loc, message in _block(recipe, lines, held):
                found.setdefault((loc, message), source.problem(loc, f"{message} ({_said(selection)})"))
    yield from found.values()
    for i in range(len(lines)):
        if i not in used:
            yield source.problem(("launch", i, "when"), "never holds for any selection")


@dataclass(frozen=True)
class _Line:
    """An item of the launch list, with what every check of it asks for."""

    item: LaunchItem
    when: dict[str, list[str]]
    words: list[tuple[Loc, list[Piece]]]
    """The words that it puts on its line, each with its place inside the item."""


def _said(selection: Selection) -> str:
    return "selection " + " ".join(f"{axis}={option}" for axis, option in selection.items())


def _words(item: LaunchItem) -> Iterator[tuple[Loc, list[Piece]]]:
    """The words that an item puts on its line, each with its place inside the item."""
    if isinstance(item, EnvItem):
        yield ("value",), pieces(item.value)
    elif isinstance(item, ArgItem):
        if item.value is not None:
            yield ("value",), pieces(item.value)
        for j, word in enumerate(item.values or ()):
            yield ("values", j), pieces(word)
    elif isinstance(item, RunItem):
        for j, word in enumerate(item.run):
            yield ("run", j), pieces(word)
    elif isinstance(item, ServeItem):
        for j, word in enumerate(item.serve):
            yield ("serve", j), pieces(word)


def _item(line: _Line, engine_name: str, declared: set[str], loc: Loc, source: Source) -> Iterator[Problem]:
    """What is wrong with one item, whatever is selected.  ``declared``: the variables that are set outside the block."""
    item = line.item
    engine = vocabulary.engines()[engine_name]
    for place, word in line.words:
        for piece in word:
            if isinstance(piece, str) and (why := unspeakable(piece)):
                yield source.problem((*loc, *place), f"holds {why}, which no process can receive")
            if isinstance(piece, dict) and engine.environment == "inline" and not isinstance(item, RunItem):
                yield source.problem(
                    (*loc, *place),
                    f"a block for {engine_name} sets its variables for the command alone, so none can be referred to",
                )
            elif isinstance(piece, dict) and piece["var"] in declared and not isinstance(item, RunItem):
                yield source.problem((*loc, *place), f"{piece['var']} is set outside the block: only a run step may refer to it")
    if isinstance(item, EnvItem) and is_shells_own(item.env):
        yield source.problem((*loc, "env"), f"{item.env} is the shell's own variable, which a block can not set for the server")
    if isinstance(item, RunItem | ServeItem):
        field = "run" if isinstance(item, RunItem) else "serve"
        first = (item.run if isinstance(item, RunItem) else item.serve)[0]
        if not isinstance(first, str) or not is_command(first):
            yield source.problem((*loc, field, 0), "must be the plain name of a program")
        elif isinstance(item, ServeItem) and first != engine.program:
            yield source.problem((*loc, field, 0), f"must be {engine.program}, the program of {engine_name}")
    if isinstance(item, ServeItem):
        for place, word in line.words:
            if _begins_with_a_dash(word):
                yield source.problem((*loc, *place), "is a flag: give it as an arg item of its own")
    if isinstance(item, ArgItem):
        if item.value is not None and item.values is not None:
            yield source.problem((*loc, "values"), "stands beside value: use one of them")
        if item.equals and item.value is None:
            yield source.problem((*loc, "equals"), "needs a value")
        for place, word in line.words:
            if not item.equals and _begins_with_a_dash(word):
                yield source.problem(
                    (*loc, *place), f"begins with a dash and would be read as a flag: add equals: true to print {item.arg}=…"
                )


def _begins_with_a_dash(word: Sequence[Piece]) -> bool:
    first = next((piece for piece in word if piece), "")
    return isinstance(first, str) and first.startswith("-")


def _order(recipe: Recipe, source: Source) -> Iterator[Problem]:
    """Variables and steps, then the serve command, then nothing but its flags."""
    inline = vocabulary.engines()[recipe.engine].environment == "inline"
    stage, reached = 0, "the start"
    stages = {RunItem: (0, "a run step"), ServeItem: (2, "the serve command"), ArgItem: (3, "a flag")}
    for i, item in enumerate(recipe.launch):
        if isinstance(item, CommentItem):
            if stage >= 3 or (inline and stage >= 1):
                yield source.problem(("launch", i), f"a comment can not stand inside the command, after {reached}")
            continue
        level, what = stages.get(type(item), (1 if inline else 0, "a variable"))
        if level < stage:
            yield source.problem(("launch", i), f"{what} can not stand after {reached}")
        else:
            stage, reached = level, what
    if not any(isinstance(item, ServeItem) for item in recipe.launch):
        yield source.problem(("launch",), "has no serve item")
    elif isinstance(recipe.launch[-1], CommentItem):
        yield source.problem(("launch", len(recipe.launch) - 1), "a comment must stand above something")


def _block(recipe: Recipe, lines: Sequence[_Line], held: Sequence[int]) -> Iterator[tuple[Loc, str]]:
    """What is wrong with the block of one selection."""
    engine = vocabulary.engines()[recipe.engine]
    declared = {requirement.variable for requirement in recipe.requires}
    variables: set[str] = set()
    flags: dict[str, int] = {}
    serves = 0
    for i in held:
        item = recipe.launch[i]
        loc: Loc = ("launch", i)
        known = variables | declared if isinstance(item, RunItem) else variables
        for place, word in lines[i].words:
            for piece in word:
                if isinstance(piece, dict) and piece["var"] not in known:
                    above = {other.env for other in recipe.launch[:i] if isinstance(other, EnvItem)}
                    hint = did_you_mean(piece["var"], (above | known) - {piece["var"]})
                    yield (*loc, *place), f"{piece['var']} is not defined above this line{hint}"
        if isinstance(item, EnvItem):
            if item.env in variables:
                yield (*loc, "env"), f"{item.env} is set twice"
            variables.add(item.env)
        elif isinstance(item, ServeItem):
            serves += 1
            if serves == 2:
                yield loc, "is a second serve command"
        elif isinstance(item, ArgItem):
            if item.arg in flags and not item.repeat:
                yield (*loc, "arg"), f"{item.arg} stands twice: add repeat: true if each time adds to it"
            flags.setdefault(item.arg, i)
    if not serves:
        yield ("launch",), "has no serve command"
    for flag, needed in engine.needs.items():
        if flag in flags and not any(other in flags for other in needed):
            yield ("launch", flags[flag], "arg"), f"{flag} needs {' or '.join(needed)}"


def _capacity(recipe: Recipe, lines: Sequence[_Line], held: Sequence[int], selection: Selection) -> Iterator[tuple[Loc, str]]:
    """What the cards of one selection can not do."""
    engine = vocabulary.engines()[recipe.engine]
    flags = {item.arg: i for i in held if isinstance(item := recipe.launch[i], ArgItem)}
    words: list[str] = []
    for i in held:
        if isinstance(item := lines[i].item, ArgItem):
            words.append(item.arg)
            words += ["".join(piece if isinstance(piece, str) else "$" for piece in word) for _, word in lines[i].words]
    facts = launch_facts(engine, words)

    def at(fact: str) -> Loc:
        return ("launch", next((flags[flag] for flag in engine.facts[fact] if flag in flags), 0), "value")

    counts = {}
    for fact in ("tensor_parallel", "data_parallel", "context_tokens", "concurrency", "port"):
        if fact in facts:
            if not facts[fact].isdecimal() or not 0 < len(facts[fact]) < 10 or int(facts[fact]) == 0:
                yield at(fact), f"must be a whole number from 1, not {facts[fact]!r}"
            else:
                counts[fact] = int(facts[fact])
    cards = sum(
        o.cards
        for axis in recipe.axes
        if isinstance(axis, HardwareAxis)
        for o in axis.options
        if selection.get(axis.name) == o.name
    )
    if cards and counts.get("tensor_parallel", 1) > cards:
        yield at("tensor_parallel"), f"tensor parallel over {counts['tensor_parallel']} cards, and there are {cards}"
    if counts.get("context_tokens", 1) > recipe.model.context_tokens:
        yield at("context_tokens"), f"more than the {recipe.model.context_tokens:,} tokens the model was made for"
    if counts.get("port", 1) > 65535:
        yield at("port"), "no such port"
    weights, memory = weights_gb(recipe, selection), memory_gb(recipe, selection)
    if weights and memory and weights > memory:
        yield ("axes",), f"{weights:,} GB of weights do not fit into {memory:,} GB of card memory"


# --- evidence --------------------------------------------------------------------------------------------------------


def _evidence(recipe: Recipe, source: Source, axes: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
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


def _results(recipe: Recipe, source: Source) -> Iterator[Problem]:
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


def _tables(recipe: Recipe, source: Source, figures: Figures) -> Iterator[Problem]:
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


# --- names of other things -------------------------------------------------------------------------------------------


def _paths(recipe: Recipe, source: Source, folder: Path, root: Path) -> Iterator[Problem]:
    """Every path of the repository that is named exists, or is pending; every pending path is named and does not exist."""
    named: dict[str, Loc] = {}
    for i, item in enumerate(recipe.launch):
        if not isinstance(item, RunItem):
            continue
        for place, word in _words(item):
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
        named.setdefault(f"ports/{recipe.port}", ("port",))
    real_root = root.resolve()
    for path, loc in named.items():
        problem = _outside(path, root, real_root)
        if problem:
            yield source.problem(loc, problem)
        elif path not in recipe.pending and not _is_there(root / path):
            yield source.problem(loc, f"{path} does not exist in this repository; if it is still to come, list it in pending")
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
            for i, fix in enumerate(recipe.fixes.required):
                if fix.name not in profile.fixes:
                    hint = did_you_mean(fix.name, profile.fixes)
                    yield source.problem(
                        ("fixes", "required", i, "name"), f"profile {profile.name} has no fix {fix.name!r}{hint}"
                    )


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


def _texts(recipe: Recipe, source: Source, figures: Figures) -> Iterator[Problem]:
    for loc, text in prose(recipe):
        for _, expression in placeholders(text):
            try:
                figures.value(expression)
            except BrokenTableError:
                continue
            except FigureError as error:
                yield source.problem(loc, f"{{{{ {expression} }}}}: {error}")
        if _UNCLOSED.search(text):
            yield source.problem(loc, "{{ is not closed by }} on the same line")
        for message, _ in _misspelt_flags(recipe, text):
            yield source.problem(loc, message)
    runs = [item for item in recipe.launch if isinstance(item, RunItem)] if recipe.requires else []
    used = {piece["var"] for item in runs for _, word in _words(item) for piece in word if isinstance(piece, dict)}
    for i, requirement in enumerate(recipe.requires):
        if requirement.variable not in used:
            yield source.problem(("requires", i), f"no run step refers to {requirement.variable}")


def _misspelt_flags(recipe: Recipe, text: str) -> Iterator[tuple[str, int]]:
    """Flags in code of a text that are none of the block's, and differ little from one that is."""
    if "`--" not in text:
        return
    flags = {item.arg for item in recipe.launch if isinstance(item, ArgItem)}
    for match in _FLAG_IN_CODE.finditer(text):
        if match[1] not in flags and (near := difflib.get_close_matches(match[1], flags, n=1, cutoff=0.88)):
            yield f"{match[1]} is no flag of the launch block, did you mean {near[0]}?", match.start(1)
