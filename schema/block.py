r"""The launch block of a selection, out of a launch program.  Standard library only, for the quick path of ``--export-shell``.

A launch program is the recipe's launch list, quoted line by line once, with the condition of each line beside it::

    {"id": …, "axes": […], "header": [LINE, …], "paragraphs": [{"comments": [LINE, …], "join": "\n", "lines": [LINE, …]}, …]}
    LINE = {"text": …, "when": {axis: [options]}}

The block is the text of the lines whose condition holds: a paragraph's lines joined by its ``join`` under its comments, the
paragraphs parted by an empty line, the header on top.  A paragraph of which no line is left goes with its comments.

The page's script does the same with the same data and nothing else, so the two can not differ.  A line that sets a variable
carries ``"env": [name, word]`` too, one of the serve command ``"argv": [word, …]``: what it means beside its text.
"""

from __future__ import annotations

from schema.selecting import holds, reachable

TYPE_CHECKING = False  # typing.TYPE_CHECKING would import typing
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    from schema.quoting import Piece
    from schema.selecting import Selection

    Program: TypeAlias = Mapping[str, Any]


def render(program: Program, selection: Mapping[str, str]) -> str:
    """The launch block, ending with a newline."""
    paragraphs = []
    for paragraph in program["paragraphs"]:
        lines = _texts(paragraph["lines"], selection)
        if lines:
            comments = _texts(paragraph["comments"], selection)
            paragraphs.append("\n".join([*comments, paragraph["join"].join(lines)]))
    return "\n".join([*_texts(program["header"], selection), "\n\n".join(paragraphs)]) + "\n"


def environment(program: Program, selection: Mapping[str, str]) -> dict[str, str]:
    """The variables that the block sets, in order, with the values that the served process sees."""
    return _environment(_lines(program, selection))


def argv(program: Program, selection: Mapping[str, str]) -> list[str]:
    """The serve command as the process receives it, its own name included."""
    lines = _lines(program, selection)
    return _argv(lines, _environment(lines))


def describe(program: Program) -> dict[str, Any]:
    """What ``recipe.json`` and ``--export-json`` hold: every reachable selection with its environment, argv and block."""
    return {"id": program["id"], "selections": [_described(program, selection) for selection in selections(program)]}


def _described(program: Program, selection: Selection) -> dict[str, Any]:
    lines = _lines(program, selection)
    values = _environment(lines)
    return {"selection": selection, "env": values, "argv": _argv(lines, values), "shell": render(program, selection)}


def selections(program: Program) -> list[Selection]:
    """Every reachable selection."""
    return list(reachable(program["axes"]))


def _texts(lines: Sequence[Mapping[str, Any]], selection: Mapping[str, str]) -> list[str]:
    return [line["text"] for line in lines if holds(line["when"], selection)]


def _lines(program: Program, selection: Mapping[str, str]) -> list[Mapping[str, Any]]:
    return [line for part in program["paragraphs"] for line in part["lines"] if holds(line["when"], selection)]


def _environment(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in lines:
        if "env" in line:
            name, word = line["env"]
            values[name] = _value(word, values)
    return values


def _argv(lines: Sequence[Mapping[str, Any]], values: Mapping[str, str]) -> list[str]:
    return [_value(word, values) for line in lines for word in line.get("argv", ())]


def _value(word: Sequence[Piece], values: Mapping[str, str]) -> str:
    return "".join([piece if isinstance(piece, str) else values[piece["var"]] for piece in word])
