"""The closed vocabularies: hardware, engines, precisions, statuses.  One data file each, in ``schema/vocabulary/``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from schema.problems import Problem, ProblemsError, did_you_mean
from schema.source import read_yaml

FOLDER = Path(__file__).parent / "vocabulary"
T = TypeVar("T")


@dataclass(frozen=True)
class Hardware:
    """One kind of accelerator.  ``memory_gb``: one card's own memory in GB (1e9 bytes); ``card``: what one is called."""

    title: str
    vendor: str
    card: str
    memory_gb: int


@dataclass(frozen=True)
class Engine:
    """A serving engine: how its block passes environment, what it runs on, and the flags its facts are read from."""

    title: str
    program: str
    environment: str
    hardware: list[str]
    container: str
    port: int
    facts: dict[str, list[str]]
    spreads_over: list[str]
    switches: dict[str, list[str]] = field(default_factory=dict)
    needs: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def fact_of_flag(self) -> dict[str, str]:
        """What each flag states."""
        return {flag: fact for fact, flags in self.facts.items() for flag in flags}

    @cached_property
    def fact_of_switch(self) -> dict[str, str]:
        """What each flag without a value states."""
        return {flag: fact for fact, flags in self.switches.items() for flag in flags}


@dataclass(frozen=True)
class Precision:
    """A number format of weights.  ``bits``: the width of one stored element, scales not counted."""

    title: str
    bits: int


@dataclass(frozen=True)
class Status:
    """How a figure came to be here; ``badge`` is shown for a selection that such evidence covers."""

    title: str
    badge: str
    means: str


def _entries(kind: type[T], file: str) -> dict[str, T]:
    source = read_yaml(FOLDER / file, f"schema/vocabulary/{file}")
    if not isinstance(source.data, dict):
        raise ProblemsError([source.problem((), "must be a mapping of names to entries")])
    entries = {}
    for name, fields in source.data.items():
        what = f"is no {kind.__name__.lower()} entry"
        if not isinstance(fields, dict):
            raise ProblemsError([source.problem((name,), f"{what}: must be a mapping of keys to values")])
        kinds = get_type_hints(kind)
        for key, value in fields.items():
            if key not in kinds:
                raise ProblemsError([source.problem((name, key), f"{what}: unknown key{did_you_mean(key, kinds)}")])
            if not _fits(value, kinds[key]):
                wanted = getattr(kinds[key], "__name__", "") if kinds[key] in (str, int) else str(kinds[key])
                raise ProblemsError([source.problem((name, key), f"{what}: must be {_IN_WORDS.get(wanted, wanted)}")])
        try:
            entries[name] = kind(**fields)
        except TypeError as error:
            raise ProblemsError([source.problem((name,), f"{what}: {str(error).partition(') ')[2]}")]) from None
    return entries


_IN_WORDS = {
    "str": "text", "int": "a whole number", "list[str]": "a list of texts", "dict[str, list[str]]": "lists of texts by name",
}  # fmt: skip


def _fits(value: Any, kind: Any) -> bool:
    if kind in (str, int):
        return type(value) is kind
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(item, str) for item in value)
    return isinstance(value, dict) and all(_fits(item, list[str]) for item in value.values())


@cache
def hardware() -> dict[str, Hardware]:
    """Every accelerator by the name recipes use."""
    return _entries(Hardware, "hardware.yaml")


@cache
def engines() -> dict[str, Engine]:
    """Every engine by the name recipes use."""
    return _entries(Engine, "engines.yaml")


@cache
def precisions() -> dict[str, Precision]:
    """Every precision by the name recipes use."""
    return _entries(Precision, "precisions.yaml")


@cache
def statuses() -> dict[str, Status]:
    """Every status of evidence by the name recipes use."""
    return _entries(Status, "statuses.yaml")


def refresh() -> None:
    """Read the files anew.  Raises :class:`ProblemsError` with what is wrong, and then all stays as it was."""
    readers = (hardware, engines, precisions, statuses)
    problems: list[Problem] = []
    for read in readers:
        try:
            read.__wrapped__()
        except ProblemsError as error:
            problems += error.problems
    if problems:
        raise ProblemsError(problems)
    for read in readers:
        read.cache_clear()
