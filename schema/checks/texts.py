"""Texts for the reader, the guide's and the recipe's own: figures that exist, parts that are shown, flags spelt right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from schema.checks.launch import words_of
from schema.figures import BrokenTableError, FigureError, Figures, placeholders, prose
from schema.guide import DIRECTIVES, goes_unseen, split, without_code
from schema.models import ArgItem, Recipe, RunItem
from schema.problems import Problem
from schema.source import Loc, Source

_UNCLOSED = re.compile(r"(?<!\\)\{\{(?![^{}\n]*\}\})")
_IMAGE = re.compile(r"!\[[^\]]*\](?:[(\[]|(?![(\[]))")
_HTML = re.compile(r"<(?!https?:|mailto:)(?:[A-Za-z/][^<>]*|!--)")
_TELLING = re.compile(r"\{\{|!\[|`--|\]\(")
"""What a text holds if there is anything to check in it."""
_NO_IMAGES = "an image: pages load nothing from elsewhere, so say it in words or draw it as a chart"
_LINK = re.compile(r"\]\(<?(?!<?(?:https?://|mailto:|#))([^)\s>]*)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]+\]:", re.MULTILINE)
_TITLE = re.compile(r"^ {0,3}(?:> {0,3})*(?:[-*+] +|\d+[.)] +)?#(?=[ \t]|$)|^ {0,3}=+[ \t]*$", re.MULTILINE)
_FLAG_IN_CODE = re.compile(r"`(--[A-Za-z][\w-]*)")


def check_guide(recipe: Recipe, guide: str, name: str, figures: Figures | None = None) -> Iterator[Problem]:
    """The guide's ``{{ … }}``: each names a figure or a part of the page, and no part with data is left out."""
    figures = figures or Figures(recipe)

    def problem(offset: int, message: str) -> Problem:
        line_start = guide.rfind("\n", 0, offset) + 1
        return Problem(name, guide.count("\n", 0, offset) + 1, offset - line_start + 1, "", message)

    plain, unclosed_fence = without_code(guide)
    if unclosed_fence is not None:
        yield problem(unclosed_fence, "this code block is never closed: end it with the same fence")
        return
    placed: set[str] = set()
    for part in split(guide, plain):
        if part.directive is None:
            for offset, expression in placeholders(part.text):
                if expression in DIRECTIVES or (expression.startswith("performance.") and expression.count(".") == 1):
                    at = part.offset + offset
                    inside = plain[at] != "{"
                    what = "stands in code, where no part is drawn" if inside else "must stand on a line of its own, not indented"
                    yield problem(at, f"{{{{ {expression} }}}} {what}")
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
        if part.directive in placed:
            yield problem(part.offset, f"{{{{ {part.directive} }}}} stands twice: place each part once")
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
    for image in _IMAGE.finditer(plain):
        yield problem(image.start(), _NO_IMAGES)
    for link in _LINK.finditer(plain):
        yield problem(link.start(), _link(link))
    for title in _TITLE.finditer(plain):
        yield problem(title.start(), "a heading of the first level is the name of the recipe: begin with ##")
    for definition in _DEFINITION.finditer(plain):
        yield problem(definition.start(), "an address for links elsewhere: write it where the link stands, as [text](https://…)")
    for tag in _HTML.finditer(plain):
        yield problem(tag.start(), f"{tag[0][:20]} is shown as it stands: raw HTML is not used, and code goes into backticks")
    for directive, field in DIRECTIVES.items():
        if directive not in placed and goes_unseen(recipe, directive):
            yield problem(len(guide), f"{{{{ {directive} }}}} is missing: the recipe has {field} that would not be shown")
    for table in recipe.performance:
        if f"performance.{table.name}" not in placed:
            yield problem(len(guide), f"{{{{ performance.{table.name} }}}} is missing: the table would not be shown")


def texts(recipe: Recipe, source: Source, figures: Figures) -> Iterator[Problem]:
    """Figures in texts exist and stand where they are filled in; flags are spelt as in the block; what is required is used."""
    for loc, text in prose(recipe):
        if not _TELLING.search(text):
            continue
        for _, expression in placeholders(text):
            try:
                figures.value(expression)
            except BrokenTableError:
                continue
            except FigureError as error:
                yield source.problem(loc, f"{{{{ {expression} }}}}: {error}")
        if _UNCLOSED.search(text):
            yield source.problem(loc, "{{ is not closed by }} on the same line")
        if _IMAGE.search(text):
            yield source.problem(loc, _NO_IMAGES)
        if link := _LINK.search(without_code(text)[0]):
            yield source.problem(loc, _link(link))
        for message, _ in _misspelt_flags(recipe, text):
            yield source.problem(loc, message)
    filled = dict(prose(recipe))
    # Walking the whole file is only worth it if it holds more of them than the texts that are filled in.
    if source.text.count("{{") != sum(text.count("{{") for text in filled.values()):
        for loc, text in _strings(source.data, ()):
            if "{{" in text and loc not in filled and not _goes_to_a_process(loc):
                yield source.problem(loc, "{{ … }} is not filled in here: only in texts for the reader")
    runs = [item for item in recipe.launch if isinstance(item, RunItem)] if recipe.requires else []
    used = {piece["var"] for item in runs for _, word in words_of(item) for piece in word if isinstance(piece, dict)}
    for i, requirement in enumerate(recipe.requires):
        if requirement.variable not in used:
            yield source.problem(("requires", i), f"no run step refers to {requirement.variable}")


def _link(link: re.Match[str]) -> str:
    return f"a link to {link[1] or 'nothing'}: only https://… and # lead from the page and from its Markdown alike"


def _misspelt_flags(recipe: Recipe, text: str) -> Iterator[tuple[str, int]]:
    """Flags in code of a text that are none of the block's, and differ little from one that is."""
    if "`--" not in text:
        return
    flags = {item.arg for item in recipe.launch if isinstance(item, ArgItem)}
    for match in _FLAG_IN_CODE.finditer(text):
        if match[1] not in flags and (near := difflib.get_close_matches(match[1], flags, n=1, cutoff=0.88)):
            yield f"{match[1]} is no flag of the launch block, did you mean {near[0]}?", match.start(1)


def _strings(data: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Every text of a file's data, with its place."""
    if isinstance(data, str):
        yield loc, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _strings(value, (*loc, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _strings(value, (*loc, index))


def _goes_to_a_process(loc: Loc) -> bool:
    """Whether a place holds a word of a command or a value, where braces are only braces."""
    return loc[0] == "launch" and len(loc) > 2 and loc[2] in ("value", "values", "run", "serve")
