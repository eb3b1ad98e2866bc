"""From a recipe to its launch program: every line quoted once, with its condition.  See :mod:`schema.block`."""

from __future__ import annotations

from typing import Any

from schema import vocabulary
from schema.models import (
    ArgItem,
    CommentItem,
    EnvItem,
    HardwareOption,
    ImageOption,
    Joined,
    Option,
    Recipe,
    RunItem,
    ServeItem,
    Variable,
    VariantOption,
    Word,
    condition,
)
from schema.quoting import Piece, quote_word

Line = dict[str, Any]


def pieces(word: Word) -> list[Piece]:
    """A word of the recipe language as pieces for quoting."""
    if isinstance(word, str):
        return [word]
    parts = word.join if isinstance(word, Joined) else [word]
    return [{"var": part.var} if isinstance(part, Variable) else part for part in parts]


def option_title(option: Option) -> str:
    """What a reader sees for an option: its own title, or what it stands for."""
    if option.title:
        return option.title
    if isinstance(option, HardwareOption):
        return vocabulary.hardware()[option.hardware].title
    if isinstance(option, VariantOption):
        return vocabulary.precisions()[option.precision].title
    return option.name


def compile_axes(recipe: Recipe) -> list[dict[str, Any]]:
    """The axes as :mod:`schema.selecting` walks them."""
    axes = []
    for axis in recipe.axes:
        defaults = axis.default if isinstance(axis.default, list) else []
        if isinstance(axis.default, str):
            default = [{"option": axis.default, "when": {}}]
        else:
            default = [{"option": item.option, "when": condition(item.when)} for item in defaults]
        axes.append(
            {
                "name": axis.name,
                "title": axis.title,
                "kind": axis.kind,
                "when": condition(axis.when),
                "because": axis.because or "",
                "default": default,
                "options": [
                    {
                        "name": option.name,
                        "title": option_title(option),
                        "when": condition(option.when),
                        "because": option.because or "",
                    }
                    for option in axis.options
                ],
            }
        )
    return axes


def compile_program(identity: str, recipe: Recipe) -> dict[str, Any]:
    """The launch program of a recipe that passed :mod:`schema.checks`."""
    inline = vocabulary.engines()[recipe.engine].environment == "inline"
    paragraphs: list[dict[str, Any]] = []
    comments: list[Line] = []
    kind = ""
    for item in recipe.launch:
        when = condition(item.when)
        if isinstance(item, CommentItem):
            comments.append({"text": _comment(item.comment), "when": when})
            continue
        before, kind = (
            kind,
            "command" if isinstance(item, ServeItem | ArgItem) or (inline and isinstance(item, EnvItem)) else type(item).__name__,
        )
        if comments or kind != before or isinstance(item, RunItem):
            paragraphs.append({"join": " \\\n" if kind == "command" else "\n", "comments": comments, "lines": []})
            comments = []
        paragraphs[-1]["lines"].append(_line(item, when, inline))
    return {
        "id": identity,
        "axes": compile_axes(recipe),
        "header": _header(identity, recipe),
        "paragraphs": paragraphs,
    }


def _line(item: EnvItem | RunItem | ServeItem | ArgItem, when: dict[str, list[str]], inline: bool) -> Line:
    if isinstance(item, EnvItem):
        word = pieces(item.value)
        text = f"{item.env}={quote_word(word)}"
        return {"text": text if inline else f"export {text}", "when": when, "env": [item.env, word]}
    if isinstance(item, RunItem):
        text = " ".join(quote_word(pieces(word)) for word in item.run)
        return {"text": text + (" || exit 1" if item.stop_on_failure else ""), "when": when}
    if isinstance(item, ServeItem):
        words = [pieces(word) for word in item.serve]
        return {"text": " ".join(map(quote_word, words)), "when": when, "argv": words}
    values = [pieces(word) for word in item.values or ([] if item.value is None else [item.value])]
    words = [[f"{item.arg}=", *values[0]]] if item.equals and values else [[item.arg], *values]
    return {"text": "  " + " ".join(map(quote_word, words)), "when": when, "argv": words}


def _header(identity: str, recipe: Recipe) -> list[Line]:
    """Comment lines that say which recipe this is, on which cards, and with which image."""
    engine = vocabulary.engines()[recipe.engine]
    lines: list[Line] = [
        {"text": "#!/usr/bin/env bash", "when": {}},
        {"text": _comment(f"{identity} on {engine.title}"), "when": {}},
    ]
    for axis in recipe.axes:
        for option in axis.options:
            text = None
            if isinstance(option, HardwareOption):
                text = f"Hardware: {hardware_title(option)}"
            elif isinstance(option, ImageOption):
                text = f"Image: {option.reference or components(option)}"
            if text:
                lines.append({"text": _comment(text), "when": {axis.name: [option.name]}})
    return lines


def _comment(text: str) -> str:
    """A comment: always one line, so that nothing in it can become a command."""
    return f"# {' '.join(text.split())}"


def hardware_title(option: HardwareOption) -> str:
    """``8 × Gaudi 2``, and over how many nodes if more than one."""
    title = f"{option.cards} × {vocabulary.hardware()[option.hardware].title}"
    return title if option.nodes == 1 else f"{title} on {option.nodes} nodes"


def components(option: ImageOption) -> str:
    """``vllm-gaudi releases/v0.30.0 @ 058f107 · …``: what an image pins."""
    return " · ".join(
        f"{component.name}{f' {component.version}' if component.version else ''}"
        f"{f' @ {component.commit}' if component.commit else ''}"
        for component in option.components
    )
