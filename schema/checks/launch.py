"""The launch block of every reachable selection: its order, its words, its flags, and what the cards can do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schema import vocabulary
from schema.checks.choices import condition_names
from schema.checks.flags import accepted, check_flags
from schema.compiling import pieces
from schema.facts import launch_facts, memory_gb, weights_gb
from schema.models import (
    ArgItem,
    CommentItem,
    EnvItem,
    HardwareAxis,
    LaunchItem,
    Recipe,
    RunItem,
    ServeItem,
    VariantOption,
    condition,
)
from schema.problems import Problem, did_you_mean
from schema.quoting import Piece, is_command, is_shells_own, unspeakable
from schema.selecting import Selection, holds
from schema.source import Loc, Source


def launch(recipe: Recipe, source: Source, selections: Sequence[Selection]) -> Iterator[Problem]:
    """Every item by itself, their order, and the block of each selection."""
    axes = {axis.name: [option.name for option in axis.options] for axis in recipe.axes}
    lines = [_Line(item, condition(item.when), list(words_of(item))) for item in recipe.launch]
    ill: list[Problem] = []
    declared = {requirement.variable for requirement in recipe.requires}
    for i, line in enumerate(lines):
        ill += condition_names(line.item.when, axes, ("launch", i), source)
        ill += _item(line, recipe.engine, declared, ("launch", i), source)
    ill += _order(recipe, source)
    yield from ill
    if ill:
        return
    found: dict[tuple[Loc, str], Problem] = {}
    used: set[int] = set()
    seen: set[tuple[int, ...]] = set()
    judged: set[tuple[tuple[int, ...], tuple[str, ...]]] = set()
    for selection in selections:
        held = tuple(i for i, line in enumerate(lines) if holds(line.when, selection))
        used.update(held)
        for loc, message in _capacity(recipe, lines, held, selection):
            found.setdefault((loc, message), source.problem(loc, f"{message} ({_said(selection)})"))
        if held not in seen:
            seen.add(held)
            for loc, message in _block(recipe, lines, held):
                found.setdefault((loc, message), source.problem(loc, f"{message} ({_said(selection)})"))
        if (pair := (held, accepted(recipe, selection))) not in judged:
            judged.add(pair)
            flags = [(i, item) for i in held if isinstance(item := lines[i].item, ArgItem)]
            for loc, message in check_flags(recipe, flags, selection):
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


def words_of(item: LaunchItem) -> Iterator[tuple[Loc, list[Piece]]]:
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
            yield source.problem((*loc, field, 0), "must be the plain name of a program, none of the shell's own words")
        elif isinstance(item, ServeItem) and first != engine.program:
            yield source.problem((*loc, field, 0), f"must be {engine.program}, the program of {engine_name}")
    if isinstance(item, ServeItem):
        if item.serve[1:2] != ["serve"]:
            yield source.problem((*loc, "serve"), f"must begin with {engine.program}, serve")
        for place, word in line.words:
            if _begins_with_a_dash(word):
                yield source.problem((*loc, *place), "is a flag: give it as an arg item of its own")
    if isinstance(item, ArgItem):
        if item.arg.startswith("--") and "_" in item.arg:
            yield source.problem(
                (*loc, "arg"), f"write {item.arg.replace('_', '-')}: one spelling, so that it is known for what it is"
            )
        if item.value is not None and item.values is not None:
            yield source.problem((*loc, "values"), "stands beside value: use one of them")
        if item.equals and item.value is None:
            yield source.problem((*loc, "equals"), "needs a value")
        for place, word in line.words:
            if not item.equals and _begins_with_a_dash(word):
                cure = "it can not stand in values" if item.values else f"add equals: true to print {item.arg}=…"
                yield source.problem((*loc, *place), f"begins with a dash and would be read as a flag: {cure}")


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
            if stage >= 2 or (inline and stage >= 1):
                yield source.problem(("launch", i), f"a comment can not stand inside the command, after {reached}")
            continue
        level, what = stages.get(type(item), (1 if inline else 0, "a variable"))
        if level < stage:
            yield source.problem(("launch", i), f"{what} can not stand after {reached}")
        else:
            stage, reached = level, what
    if not any(isinstance(item, ServeItem) for item in recipe.launch):
        yield source.problem(("launch",), "has no serve item")


def _block(recipe: Recipe, lines: Sequence[_Line], held: Sequence[int]) -> Iterator[tuple[Loc, str]]:
    """What is wrong with the block of one selection."""
    engine = vocabulary.engines()[recipe.engine]
    declared = {requirement.variable for requirement in recipe.requires}
    variables: set[str] = set()
    flags: dict[str, int] = {}
    facts: dict[str, str] = {}
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
            same = facts.get(engine.fact_of_flag.get(item.arg, ""), item.arg)
            if (item.arg in flags or same != item.arg) and not item.repeat:
                other = "" if same == item.arg else f", as {same}"
                yield (*loc, "arg"), f"{item.arg} stands twice{other}: add repeat: true if each time adds to it"
            flags.setdefault(item.arg, i)
            if fact := engine.fact_of_flag.get(item.arg):
                facts.setdefault(fact, item.arg)
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

    counts: dict[str, int] = {}
    for fact in ("tensor_parallel", "pipeline_parallel", "data_parallel", "context_tokens", "concurrency", "port"):
        if fact in facts:
            if not (facts[fact].isascii() and facts[fact].isdecimal()) or not 0 < len(facts[fact]) < 10 or int(facts[fact]) == 0:
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
    taken = [(fact, counts[fact]) for fact in engine.spreads_over if counts.get(fact, 1) > 1]
    if cards and math.prod(count for _, count in taken) > cards:
        sizes = " × ".join(f"{fact.replace('_', ' ')} {count}" for fact, count in taken)
        yield at(taken[0][0]), f"{sizes} takes {math.prod(count for _, count in taken)} cards, and there are {cards}"
    if counts.get("context_tokens", 1) > recipe.model.context_tokens:
        yield at("context_tokens"), f"more than the {recipe.model.context_tokens:,} tokens the model was made for"
    if counts.get("port", 1) > 65535:
        yield at("port"), "no such port"
    yield from _model(recipe, lines, held, selection)
    weights, memory = weights_gb(recipe, selection), memory_gb(recipe, selection)
    if weights and memory and weights > memory:
        yield ("axes",), f"{weights:,} GB of weights do not fit into {memory:,} GB of card memory"


def _model(recipe: Recipe, lines: Sequence[_Line], held: Sequence[int], selection: Selection) -> Iterator[tuple[Loc, str]]:
    """The command serves a model, and where it names one by its id, the one that is chosen."""
    engine = vocabulary.engines()[recipe.engine]
    serve = next((i for i in held if isinstance(lines[i].item, ServeItem)), None)
    if serve is None:
        return
    named = [(("launch", serve, *place), word) for place, word in lines[serve].words[2:]]
    for i in held:
        if isinstance(item := lines[i].item, ArgItem) and item.arg in engine.facts["model"]:
            named += [(("launch", i, *place), word) for place, word in lines[i].words]
    if not named:
        yield ("launch", serve), f"names no model: add it to the command, or {engine.facts['model'][0]}"
        return
    chosen = next(
        (
            o.model
            for axis in recipe.axes
            for o in axis.options
            if isinstance(o, VariantOption) and selection.get(axis.name) == o.name
        ),
        None,
    )
    for loc, _ in named[1:]:
        yield loc, "is a second model"
    loc, word = named[0]
    text = word[0] if len(word) == 1 and isinstance(word[0], str) else ""
    # A path on the node, or a variable, says nothing of what lies there.
    if chosen and text != chosen and re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        yield loc, f"serves {text}, and the variant chosen is {chosen}"
