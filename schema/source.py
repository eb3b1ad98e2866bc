"""Reading files: strict UTF-8 text, and strict YAML with positions.

YAML is read from the parser's events, so that nothing happens that is not asked for here: no tags, no merge keys, no key
twice, and no plain scalar that YAML 1.1 and 1.2 read differently (``on``, ``0193``, ``1_000``, ``1:30``).  Aliases are allowed
and bounded.  Numbers with a point come as :class:`~decimal.Decimal` and keep their digits; dates stay text.

Positions are not recorded while all is well.  The first problem that needs one reads the events a second time.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from schema.problems import Problem, ProblemsError

Loc = tuple[str | int, ...]
"""Keys and indices from the root of a file to a place in it."""
Position = tuple[int, int]
"""Line and column, from 1."""

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 40

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufffe\uffff]")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_NUMBER_IN_SOME_YAML = re.compile(
    r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-5]?[0-9])*(?:\.[0-9_]*)?"
    r"|(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_WORDS_IN_SOME_YAML = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_MAX_DIGITS = 18


class Source:
    """One YAML file, read once."""

    def __init__(self, path: Path, name: str, text: str, data: object) -> None:
        self.path = path
        self.name = name
        """The path as problems show it."""
        self.text = text
        self.data = data
        self._positions: dict[Loc, tuple[Position, Position]] | None = None

    def locate(self, loc: Loc) -> Position:
        """Where a place is: at its key, or for an item of a list at the item; what does not exist is at what would hold it."""
        return self._found(loc)[0]

    def value_position(self, loc: Loc) -> Position:
        """Where the value at a place begins."""
        return self._found(loc)[1]

    def problem(self, loc: Loc, message: str) -> Problem:
        """A problem at a place of this file."""
        line, column = self.locate(loc)
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).removeprefix(".")
        return Problem(self.name, line, column, field, message)

    def _found(self, loc: Loc) -> tuple[Position, Position]:
        if self._positions is None:
            self._positions = {}
            _Builder(self.text, self.name, self._positions).build()
        for end in range(len(loc), -1, -1):
            if loc[:end] in self._positions:
                return self._positions[loc[:end]]
        return (1, 1), (1, 1)


def read_text(path: Path, name: str) -> str:
    r"""Read a text file; ``name`` is how problems show it.  Line ends become ``\\n``.

    Raises :class:`ProblemsError` for what is no regular file, too large, not UTF-8, or holds characters that cannot be seen.
    """

    def fail(message: str, line: int = 1, column: int = 1) -> ProblemsError:
        return ProblemsError([Problem(name, line, column, "", message)])

    try:
        # A FIFO or a device would block or never end, so what it is comes before opening it.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise fail("is not a regular file")
        if status.st_size > MAX_BYTES:
            raise fail(f"is {status.st_size:,} bytes large; at most {MAX_BYTES:,} are read")
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise fail("is a symbolic link that leads back to itself") from None
        raise fail(f"can not be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise fail(f"can not be read: {error}") from None
    if len(raw) > MAX_BYTES:
        raise fail(f"is too large; at most {MAX_BYTES:,} bytes are read")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise fail("is UTF-16: save it as UTF-8")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise fail("begins with a byte order mark: save it as UTF-8 without one")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line, column = _position(raw[: error.start].decode(errors="replace"))
        raise fail(f"is not UTF-8 text: byte 0x{raw[error.start]:02x}", line, column) from None
    text = text.replace("\r\n", "\n")
    if match := _UNSEEN.search(text):
        line, column = _position(text[: match.start()])
        raise fail(f"holds U+{ord(match[0]):04X}, a character that can not be seen: remove it", line, column)
    return text


def read_yaml(path: Path, name: str) -> Source:
    """Read a YAML file; ``name`` is how problems show it.  Raises :class:`ProblemsError` with all that is wrong."""
    text = read_text(path, name)
    return Source(path, name, text, _Builder(text, name, None).build())


def _position(before: str) -> Position:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _events(text: str) -> Iterator[Any]:
    try:
        parser: Any = yaml.CLoader(text)
    except AttributeError:  # PyYAML without libyaml
        parser = yaml.Loader(text)
    while True:
        event = parser.get_event()
        if event is None:
            return
        yield event


class _Frame:
    """A collection being built."""

    __slots__ = ("anchor", "data", "key", "keys", "nodes_before")

    def __init__(self, data: dict[str, Any] | list[Any], anchor: str | None, nodes_before: int) -> None:
        self.data = data
        self.anchor = anchor
        self.nodes_before = nodes_before
        self.key: str | None = None
        self.keys: dict[str, int] = {}


class _Builder:
    """Builds plain data from events.  With ``positions`` it records, for each place, where its key and its value begin."""

    def __init__(self, text: str, name: str, positions: dict[Loc, tuple[Position, Position]] | None) -> None:
        self._text = text
        self._name = name
        self._positions = positions
        self._problems: list[Problem] = []
        self._stack: list[_Frame] = []
        self._key_position: Position = (1, 1)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open_anchors: set[str] = set()
        self._nodes = 0
        self._root: Any = None

    def build(self) -> Any:
        """The file's data.  Raises :class:`ProblemsError`; while recording positions it stops quietly instead."""
        try:
            self._read()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._problems.append(self._problem_at(mark, self._readable(error, mark)))
        except yaml.YAMLError as error:
            self._problems.append(Problem(self._name, 1, 1, "", f"is not YAML: {' '.join(str(error).split())}"))
        except _StopReading:
            pass
        if self._problems and self._positions is None:
            raise ProblemsError(self._problems)
        return self._root

    def _read(self) -> None:
        documents = 0
        found = False
        for event in _events(self._text):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                found = True
                self._scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                found = True
                self._start(event, {} if kind is yaml.MappingStartEvent else [])
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    self._stop(event, "a second document begins here: one file holds one")
                if event.version or event.tags:
                    self._stop(event, "directives (%) are not used here")
        if not found or (self._root is None and not self._text.strip()):
            self._problems.append(Problem(self._name, 1, 1, "", "is empty"))

    def _scalar(self, event: Any) -> None:
        if event.tag is not None:
            self._add_problem(event, f"tags such as {_short(event.tag)} are not used here")
        value: Any = event.value
        if event.style is None or event.style == "":
            value = self._plain(event, value)
        self._count(event, 1)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.key is None and type(frame.data) is dict:
            self._key(event, frame, value)
        else:
            self._put(event, value)

    def _key(self, event: Any, frame: _Frame, value: Any) -> None:
        if not isinstance(value, str):
            self._add_problem(event, f"the key {_short(event.value)} must be text: write it in quotes")
            value = event.value
        elif value == "<<" and not event.style:
            self._add_problem(event, "merge keys (<<) are not used here: write the keys out")
        line = event.start_mark.line + 1
        if value in frame.keys:
            self._add_problem(event, f"the key {_short(value)} stands twice; first in line {frame.keys[value]}")
        frame.keys.setdefault(value, line)
        frame.key = value
        self._key_position = (line, event.start_mark.column + 1)

    def _put(self, event: Any, value: Any) -> None:
        """Put a finished scalar, an alias, or a collection that begins into what holds it."""
        if self._positions is not None:
            at = (event.start_mark.line + 1, event.start_mark.column + 1)
            in_mapping = bool(self._stack) and type(self._stack[-1].data) is dict
            self._positions[self._loc()] = (self._key_position if in_mapping else at, at)
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        if isinstance(frame.data, list):
            frame.data.append(value)
        elif frame.key is not None:
            frame.data[frame.key] = value
            frame.key = None

    def _loc(self) -> Loc:
        """The place that the next value takes.  Above the innermost, a key is that of the last value put."""
        steps: list[str | int] = []
        for depth, frame in enumerate(self._stack):
            last = depth == len(self._stack) - 1
            if isinstance(frame.data, list):
                steps.append(len(frame.data) - (0 if last else 1))
            elif frame.key is not None:
                steps.append(frame.key)
            else:
                steps.append(next(reversed(frame.data), ""))
        return tuple(steps)

    def _start(self, event: Any, data: dict[str, Any] | list[Any]) -> None:
        if event.tag is not None:
            self._add_problem(event, f"tags such as {_short(event.tag)} are not used here")
        if len(self._stack) >= MAX_DEPTH:
            self._stop(event, f"is nested more than {MAX_DEPTH} deep")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and type(frame.data) is dict and frame.key is None:
            self._stop(event, "a list or mapping can not be a key")
        self._count(event, 1)
        self._put(event, data)
        if event.anchor:
            self._open_anchors.add(event.anchor)
        self._stack.append(_Frame(data, event.anchor, self._nodes - 1))

    def _end(self) -> None:
        frame = self._stack.pop()
        if frame.anchor:
            self._open_anchors.discard(frame.anchor)
            self._anchors[frame.anchor] = (frame.data, self._nodes - frame.nodes_before)

    def _alias(self, event: Any) -> None:
        if event.anchor in self._open_anchors:
            self._stop(event, f"the alias *{event.anchor} stands inside what it refers to")
        if event.anchor not in self._anchors:
            self._stop(event, f"no anchor &{event.anchor} stands above this alias")
        value, nodes = self._anchors[event.anchor]
        self._count(event, nodes)
        frame = self._stack[-1] if self._stack else None
        if frame is not None and type(frame.data) is dict and frame.key is None:
            self._stop(event, "an alias can not be a key")
        self._put(event, value)  # shared, not copied: what is read here is never changed

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._stop(event, f"with aliases expanded there are more than {MAX_NODES:,} values")

    def _plain(self, event: Any, value: str) -> Any:
        """What a scalar without quotes means, if every YAML agrees on it."""
        if value in _CONSTANTS:
            return _CONSTANTS[value]
        if value[0] in "+-.0123456789":
            if _INTEGER.fullmatch(value):
                if len(value) > _MAX_DIGITS:
                    self._add_problem(event, f"a number of {len(value)} digits: write it in quotes if it is text")
                    return value
                return int(value)
            if _DECIMAL.fullmatch(value):
                return Decimal(value)
            if _NUMBER_IN_SOME_YAML.fullmatch(value):
                self._add_problem(event, f"{_short(value)} is read as a number by some and not by others: write it in quotes")
        elif len(value) <= 5 and value.lower() in _WORDS_IN_SOME_YAML:
            self._add_problem(event, f"{value} is true, false or null to some and text to others: write it in quotes")
        elif value == "=":
            self._add_problem(event, "= has a meaning of its own to some: write it in quotes")
        return value

    def _readable(self, error: yaml.MarkedYAMLError, mark: Any) -> str:
        lines = self._text.split("\n")
        if mark and mark.line < len(lines) and lines[mark.line][mark.column : mark.column + 1] == "\t":
            return "a tab stands where only spaces may: indent with spaces"
        context = f" {' '.join(error.context.split())}" if error.context else ""
        return f"is not YAML: {' '.join((error.problem or 'can not be parsed').split())}{context}"

    def _problem_at(self, mark: Any, message: str) -> Problem:
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return Problem(self._name, line, column, "", message)

    def _add_problem(self, event: Any, message: str) -> None:
        self._problems.append(self._problem_at(event.start_mark, message))

    def _stop(self, event: Any, message: str) -> None:
        self._add_problem(event, message)
        raise _StopReading


class _StopReading(Exception):  # noqa: N818 - no error by itself: the problem is recorded
    """Nothing sensible can be read after this."""


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 50 else f"{shown[:47]}…'"
