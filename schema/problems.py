"""What can be wrong with a recipe, said in one line, and the ways of printing it.

A problem names the place (file, line, column, field), the cause, and where it is known the cure.  Everything that reads
recipes collects problems and goes on, so that an author sees all of them in one run.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One fault of one file.  ``line`` and ``column`` count from 1; ``field`` is the dotted path in the file, or empty."""

    path: str
    line: int
    column: int
    field: str
    message: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.path}:{self.line}:{self.column}: {field}{self.message}"


class ProblemsError(Exception):
    """Raised where reading cannot go on; carries every problem found so far."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(map(str, self.problems)))


def did_you_mean(word: str, known: Iterable[str], *, everything_up_to: int = 8) -> str:
    """Return ``", did you mean …?"`` for the nearest names, else the short list of what is known, else nothing."""
    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if not near:
        folded = {name.casefold(): name for name in names}
        near = [folded[match] for match in difflib.get_close_matches(word.casefold(), list(folded), n=3, cutoff=0.6)]
    if near:
        return f", did you mean {' or '.join(near)}?"
    if names and len(names) <= everything_up_to:
        return f" (known: {', '.join(names)})"
    return ""


def as_text(problems: Iterable[Problem]) -> str:
    """One line a problem, ``path:line:column: field: message``."""
    return "".join(f"{problem}\n" for problem in problems)


def as_github(problems: Iterable[Problem]) -> str:
    """GitHub workflow commands, which show each problem at its line in a pull request.

    Format: docs.github.com, "Workflow commands for GitHub Actions", setting an error message; data escapes ``%``, CR and
    LF, properties also ``:`` and ``,``.
    """

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def prop(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    lines = []
    for p in problems:
        message = f"{p.field}: {p.message}" if p.field else p.message
        lines.append(f"::error file={prop(p.path)},line={p.line},col={p.column},title=recipe::{data(message)}\n")
    return "".join(lines)


def as_json(problems: Iterable[Problem]) -> str:
    """A JSON list of objects with the fields of :class:`Problem`."""
    return json.dumps([asdict(problem) for problem in problems], indent=2, ensure_ascii=False) + "\n"
