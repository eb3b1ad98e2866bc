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
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import yaml

from schema.problems import Problem, ProblemsError

Loc = tuple[str | int, ...]
"""Keys and indices from the root of a file to a place in it."""
Position = tuple[int, int]
"""Line and column, from 1."""

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 40

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, except tab and newline
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"  # directions, separators, zero width
    "\ufffe\uffff\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U0010ffff]"  # no characters, tags, private use
)
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_NUMBER_IN_SOME_YAML = re.compile(
    r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-5]?[0-9])*(?:\.[0-9_]*)?"
    r"|(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_WORDS_IN_SOME_YAML = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_MAX_DIGITS = 18
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the second where PyYAML has no libyaml


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
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{_key_text(step)}" for step in loc).removeprefix(".")
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
    if text.replace("\n", "").isprintable():
        return text
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


class _Builder:
    """Builds plain data from events.  With ``positions`` it records, for each place, where its key and its value begin."""

    def __init__(self, text: str, name: str, positions: dict[Loc, tuple[Position, Position]] | None) -> None:
        self._text = text
        self._name = name
        self._positions = positions
        self._problems: list[Problem] = []
        # Finished anchors: their value, how many values it holds with everything expanded, and how deep it is nested.
        self._anchors: dict[str, tuple[Any, int, int]] = {}

    def build(self) -> Any:
        """The file's data.  Raises :class:`ProblemsError`; while recording positions it gives what could be read instead."""
        data: Any = None
        try:
            data = self._read()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            if mark and mark.line >= self._text.count("\n") and error.context_mark:
                mark = error.context_mark  # what is not closed is reported where it opens, not at the end of the file
            self._problems.append(self._problem_at(mark, self._readable(error, mark)))
        except yaml.YAMLError as error:
            self._problems.append(Problem(self._name, 1, 1, "", f"is not YAML: {' '.join(str(error).split())}"))
        except _StopReading:
            pass
        if self._problems and self._positions is None:
            raise ProblemsError(self._problems)
        return data

    def _read(self) -> Any:
        """One pass over the events.

        It is one loop over local names, because this is where most of the time of ``--check`` goes.  ``data`` is the collection
        being filled, ``key`` the key that waits for its value, ``lines`` where each key stands; ``stack`` holds those around it.
        """
        get_event = _LOADER(self._text).get_event
        scalar, mapping, sequence = yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent
        ends = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
        positions = self._positions
        stack: list[tuple[Any, str | None, dict[str, int], str | None, int, int, Loc]] = []
        root: list[Any] = []
        data: Any = root
        key: str | None = None
        lines: dict[str, int] = {}
        anchor: str | None = None
        anchored_at = nodes = documents = deepest = 0
        open_anchors: set[str] = set()
        place: Loc = ()
        key_position: Position = (1, 1)
        while (event := get_event()) is not None:
            kind = type(event)
            if kind is scalar:
                value = event.value
                if event.tag is not None:
                    self._add_problem(event, f"tags such as {_short(event.tag)} are not used here")
                # A longer word that begins with a letter means itself, as a key and as a value.
                plain = len(value) > 5 and value[0].isalpha()
                if type(data) is dict and key is None:
                    mark = event.start_mark
                    if plain and value not in lines:
                        key = value
                        lines[key] = mark.line + 1
                    else:
                        key = self._key(event, value, lines)
                    key_position = (mark.line + 1, mark.column + 1)
                    if event.anchor:
                        self._anchors[event.anchor] = (key, 1, 0)
                    continue
                if not plain and not event.style:
                    value = self._plain(event, value)
                nodes += 1
                if event.anchor:
                    self._anchors[event.anchor] = (value, 1, 0)
            elif kind is mapping or kind is sequence:
                value = {} if kind is mapping else []
                if event.tag is not None:
                    self._add_problem(event, f"tags such as {_short(event.tag)} are not used here")
                if len(stack) >= MAX_DEPTH:
                    self._stop(event, f"is nested more than {MAX_DEPTH} deep")
                if type(data) is dict and key is None:
                    self._stop(event, "a list or mapping can not be a key")
                nodes += 1
                deepest = max(deepest, len(stack) + 1)
            elif kind in ends:
                if anchor:
                    open_anchors.discard(anchor)
                    self._anchors[anchor] = (data, nodes - anchored_at, deepest - len(stack) + 1)
                data, key, lines, anchor, anchored_at, outer_deepest, place = stack.pop()
                deepest = max(deepest, outer_deepest)
                continue
            elif kind is yaml.AliasEvent:
                if event.anchor in open_anchors:
                    self._stop(event, f"the alias {_short('*' + event.anchor)} stands inside what it refers to")
                if event.anchor not in self._anchors:
                    self._stop(event, f"no anchor {_short('&' + event.anchor)} stands above this alias")
                if type(data) is dict and key is None:
                    self._stop(event, "an alias can not be a key")
                value, count, depth = self._anchors[event.anchor]  # shared, not copied: what is read here is never changed
                nodes += count
                deepest = max(deepest, len(stack) + depth)
                if deepest > MAX_DEPTH:
                    self._stop(event, f"with aliases expanded it is nested more than {MAX_DEPTH} deep")
            else:
                if kind is yaml.DocumentStartEvent:
                    documents += 1
                    if documents > 1:
                        self._stop(event, "a second document begins here: one file holds one")
                    if event.version or event.tags:
                        self._stop(event, "directives (%) are not used here")
                continue
            if nodes > MAX_NODES:
                self._stop(event, f"with aliases expanded there are more than {MAX_NODES:,} values")
            here = place
            if positions is not None:
                at = (event.start_mark.line + 1, event.start_mark.column + 1)
                if data is not root:
                    here = (*place, len(data) if key is None else key)
                positions[here] = (at if key is None else key_position, at)
            if key is None:
                data.append(value)
            else:
                data[key] = value
                key = None
            if kind is mapping or kind is sequence:
                stack.append((data, key, lines, anchor, anchored_at, deepest, place))
                data, lines, place, deepest = value, {}, here, len(stack)
                anchor, anchored_at = event.anchor, nodes - 1
                if anchor:
                    open_anchors.add(anchor)
        if not root or root[0] is None:
            self._problems.append(Problem(self._name, 1, 1, "", "is empty"))
        return root[0] if root else None

    def _key(self, event: Any, key: str, lines: dict[str, int]) -> str:
        if not event.style:
            if key == "<<":
                self._add_problem(event, "merge keys (<<) are not used here: write the keys out")
            elif not isinstance(self._plain(event, key), str):
                self._add_problem(event, f"the key {_short(key)} must be text: write it in quotes")
        if key in lines:
            self._add_problem(event, f"the key {_short(key)} stands twice; first in line {lines[key]}")
        else:
            lines[key] = event.start_mark.line + 1
        return key

    def _plain(self, event: Any, value: str) -> Any:
        """What a scalar without quotes means, if every YAML agrees on it."""
        if value in _CONSTANTS:
            return _CONSTANTS[value]
        if value[0] in "+-.0123456789":
            if _INTEGER.fullmatch(value):
                if len(value.lstrip("-")) > _MAX_DIGITS:
                    self._add_problem(event, f"a number of {len(value)} digits: write it in quotes if it is text")
                    return value
                return int(value)
            if len(value) <= _MAX_DIGITS + 2 and _DECIMAL.fullmatch(value):
                return Decimal(value)
            if _NUMBER_IN_SOME_YAML.fullmatch(value):
                self._add_problem(event, f"{_short(value)} is read as a number by some and not by others: write it in quotes")
        elif len(value) <= 5 and value.lower() in _WORDS_IN_SOME_YAML:
            self._add_problem(event, f"{value} is true, false or null to some and text to others: write it in quotes")
        elif value in ("=", "<<"):
            self._add_problem(event, f"{value} has a meaning of its own to some: write it in quotes")
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

    def _stop(self, event: Any, message: str) -> NoReturn:
        self._add_problem(event, message)
        raise _StopReading


class _StopReading(Exception):  # noqa: N818 - no error by itself: the problem is recorded
    """Nothing sensible can be read after this."""


def _key_text(key: str) -> str:
    return key if key.isprintable() and len(key) <= 60 else _short(key)


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 50 else f"{shown[:47]}…'"
