"""The guide's own language: Markdown, with parts of the page drawn from the data where a line says ``{{ name }}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from schema.models import Recipe

DIRECTIVES: dict[str, str] = {
    "configuration": "",
    "fixes": "fixes",
    "checks": "checks",
    "measurements": "measurements",
    "client": "",
    "known_issues": "known_issues",
    "avoid": "avoid",
    "evidence": "evidence",
}
"""What a line ``{{ name }}`` draws, and the field of the recipe that would go unseen without it."""

_DIRECTIVE = re.compile(rf"^\{{\{{ *({'|'.join(DIRECTIVES)}|performance\.[a-z0-9_]+) *\}}\}} *$", re.MULTILINE)


_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
_BLANKED = re.compile(r"[^\n]")
_CODE_SPAN = re.compile(r"(?<![`\\])(?P<mark>`+)(?!`)(?:[^\n]|\n(?!\n))*?(?<!`)(?P=mark)(?!`)")


@dataclass(frozen=True)
class Part:
    """A stretch of Markdown, or a directive; ``offset`` is where it starts in the guide."""

    offset: int
    text: str
    directive: str | None = None


def goes_unseen(recipe: Recipe, directive: str) -> bool:
    """Whether a recipe has something that only this part shows.  Fixes count once their profile is in the repository."""
    field = DIRECTIVES[directive]
    if directive == "fixes" and recipe.fixes and f"fixes/profiles/{recipe.fixes.profile}.json" in recipe.pending:
        return False
    return bool(field and getattr(recipe, field))


def split(guide: str, plain: str | None = None) -> Iterator[Part]:
    """The parts of a guide, in order.  ``plain`` is the guide without code, if that is known."""
    end = 0
    for match in _DIRECTIVE.finditer(plain or without_code(guide)[0]):
        if match.start() > end:
            yield Part(end, guide[end : match.start()])
        yield Part(match.start(), match[0], match[1])
        end = match.end()
    if end < len(guide):
        yield Part(end, guide[end:])


def default_guide(recipe: Recipe) -> str:
    """The guide of a recipe that brings none: every part that it has data for, each under a heading."""
    parts = [("Configuration", ["configuration"]), ("Ask the server", ["client"])]
    parts.append(("Required fixes", ["fixes"] if goes_unseen(recipe, "fixes") else []))
    titles = {"checks": "Checks", "measurements": "Measurements"}
    parts += [(title, [name] if goes_unseen(recipe, name) else []) for name, title in titles.items()]
    parts.append(("Performance", [f"performance.{table.name}" for table in recipe.performance]))
    titles = {"known_issues": "Known issues", "avoid": "What not to do", "evidence": "Evidence"}
    parts += [(title, [name] if goes_unseen(recipe, name) else []) for name, title in titles.items()]
    sections = [f"## {title}\n" + "".join(f"\n{{{{ {name} }}}}\n" for name in names) for title, names in parts if names]
    return "\n".join(sections)


def without_code(text: str) -> tuple[str, int | None]:
    """A text with its code blanked, everything else where it was; and where a fenced block starts that is never closed.

    CommonMark 0.31.2, sections 4.5 and 6.1: what closes is of the same character, for a fence at least as long and alone on its
    line, for code in a line exactly as long.
    """
    position, done = 0, []
    while opening := _FENCE.search(text, position):
        mark = opening["mark"]
        closing = re.compile(rf"^ {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*$", re.MULTILINE).search(text, opening.end())
        end = closing.end() if closing else len(text)
        done += [_CODE_SPAN.sub(_blank, text[position : opening.start()]), _BLANKED.sub(" ", text[opening.start() : end])]
        if closing is None:
            return "".join(done), opening.start()
        position = end
    return "".join([*done, _CODE_SPAN.sub(_blank, text[position:])]), None


def _blank(code: re.Match[str]) -> str:
    return " " * len(code[0]) if "\n" not in code[0] else _BLANKED.sub(" ", code[0])
