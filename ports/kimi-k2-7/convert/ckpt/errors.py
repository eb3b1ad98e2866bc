"""The one kind of error that a user sees."""

from __future__ import annotations


class CheckpointError(Exception):
    """One line that names the place, the cause and, where there is one, the cure."""


def one_line(text: str) -> str:
    """A text that stays one line on a terminal and moves nothing there: whatever is not printable is escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
