"""The one kind of error that a user sees."""

from __future__ import annotations


class CheckpointError(Exception):
    """One line that names the place, the cause and, where there is one, the cure."""
