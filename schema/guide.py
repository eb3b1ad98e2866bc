"""The guide's own language: Markdown, with parts of the page drawn from the data where a line says ``{{ name }}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

DIRECTIVES: dict[str, str] = {
    "configuration": "",
    "fixes": "",
    "checks": "checks",
    "measurements": "measurements",
    "client": "",
    "known_issues": "known_issues",
    "avoid": "avoid",
    "evidence": "evidence",
}
"""What a line ``{{ name }}`` draws, and the field of the recipe that would go unseen without it."""

_DIRECTIVE = re.compile(rf"^\{{\{{ *({'|'.join(DIRECTIVES)}|performance\.[a-z0-9_]+) *\}}\}} *$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """A stretch of Markdown, or a directive; ``offset`` is where it starts in the guide."""

    offset: int
    text: str
    directive: str | None = None


def split(guide: str) -> Iterator[Part]:
    """The parts of a guide, in order."""
    end = 0
    for match in _DIRECTIVE.finditer(guide):
        if match.start() > end:
            yield Part(end, guide[end : match.start()])
        yield Part(match.start(), match[0], match[1])
        end = match.end()
    if end < len(guide):
        yield Part(end, guide[end:])
