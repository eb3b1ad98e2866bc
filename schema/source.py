"""Reading files: strict UTF-8 text, and strict YAML with positions on demand.

YAML is built from the parser's events, so that nothing happens which is not asked for here: no tags, no merge keys, no
key twice, and no unquoted scalar that YAML 1.1 and YAML 1.2 read differently (``on``, ``0193``, ``1_000``, ``1:30``).
Numbers with a point come as :class:`~decimal.Decimal` and keep their digits; dates stay text.  Aliases are allowed and
bounded: the value of an alias is the very object of its anchor, so what is read here must not be changed in place.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from schema.problems import Problem, ProblemsError

Loc = tuple[str | int, ...]
"""Keys and indices from the root of a file to a place in it."""
Position = tuple[int, int]
"""Line and column, both from 1; columns count characters."""

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 40
_MAX_DIGITS = 18

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # only its events are used; a PyYAML can lack libyaml

_FOREIGN = {b"\xef\xbb\xbf": "begins with a byte order mark", b"\xff\xfe": "is UTF-16", b"\xfe\xff": "is UTF-16"}
_UNSEEN = re.compile(  # of the planes from 4 on, which hold tags and private use, all
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufdd0-\ufdef\ufeff"
    "\ufffe\uffff\U0001fffe-\U0001ffff\U0002fffe-\U0002ffff\U0003fffe-\U0010ffff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")

_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_SPECIAL = {
    **dict.fromkeys(("y", "n", "yes", "no", "on", "off"), "is true or false in YAML 1.1, text in YAML 1.2: quote it"),
    **{word: f"is not the way to spell it: write {word}, or quote it" for word in ("true", "false", "null")},
    "=": "has a meaning of its own in YAML 1.1: quote it",
    "<<": "begins a merge, and merge keys are not used here: write the keys out",
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?")
_NUMBER_TO_SOME = re.compile(
    r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-f_]+|\.inf|\.nan"
    r"|(?:[0-9][0-9_]*(?::[0-5]?[0-9])*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:e[-+]?[0-9]+)?)",
    re.IGNORECASE,
)

_TOO_DEEP = f"is nested more than {MAX_DEPTH} deep: flatten it"
_TOO_MANY = f"more than {MAX_NODES:,} values, with those that aliases repeat: make the file smaller"
_SYNTAX = {  # what libyaml or PyYAML says (">" for what is best shown where the construct begins): what is said here
    "nesting depth": _TOO_DEEP,
    "mapping values": "a key can not stand here: quote a text that holds a colon, or indent as in the lines above",
    ">quoted scalar.*unexpected": "this quote is never closed: close it",
    "quoted scalar": r"an escape that YAML does not know: write \\ for a backslash, or use single quotes",
    "expected ',' or": "a comma or a closing bracket is missing: the bracket in line {line} is still open",
    ">simple key": "a key has no colon: write it as key: value, or check the indentation",
    ">an anchor|an alias": "& and * begin an anchor or an alias: quote it if it is text",
    ">directive": "directives (%) are not used here: quote it if it is text",
    r">\btag\b": "tags are not used here: quote it if it is text",
    "block scalar": "only the lines below | or > are its text: begin there, or quote it",
    "start any token": "{char} can not begin a value: quote it",
    "sequence entries|mapping keys": "a list or mapping can not begin here: put it into the lines below",
    "document start": "does not belong to what stands above: check the indentation and the quotes",
    "block": "does not belong to the list or mapping from line {line}: check the indentation and the quotes",
    "node content": "a value is missing here, or a bracket above is not closed",
}


@dataclass(frozen=True, eq=False)
class Source:
    """One YAML file, read once.  Made by :func:`read_yaml` alone: the text is known to be good."""

    path: Path
    name: str
    """The path as problems show it."""
    text: str
    data: object

    def locate(self, loc: Loc) -> Position:
        """Where a place is: its key, or an item of a list itself.  What does not exist is at its nearest ancestor.

        What an alias repeats is at the alias.  Never raises.
        """
        return self._find(loc)[0]

    def value_position(self, loc: Loc) -> Position:
        """Where the value at a place begins; otherwise as :meth:`locate`."""
        return self._find(loc)[1]

    def problem(self, loc: Loc, message: str) -> Problem:
        """A problem at a place of this file."""
        return Problem(self.name, *self.locate(loc), _dotted(loc), message)

    @cached_property
    def _root(self) -> _Place:
        return _places(self.text)

    def _find(self, loc: Loc) -> tuple[Position, Position]:
        place = self._root
        for step in loc:
            if place.kind is yaml.AliasEvent:
                return place.value, place.value
            if step not in place.children:
                break
            place = place.children[step]
        return place.key, place.value


def read_text(path: Path, name: str) -> str:
    r"""Read a text file; ``name`` is how problems show it.  Line ends become ``\n``, tabs stay.

    Raises :class:`ProblemsError` with one problem for what is no regular file, is too large, is not UTF-8, or holds a
    character that can not be seen.
    """

    def fail(message: str, at: Position = (1, 1)) -> NoReturn:
        raise ProblemsError([Problem(name, *at, "", message)]) from None

    try:
        status = os.stat(path)  # before opening, which would block on a FIFO
        if not stat.S_ISREG(status.st_mode):
            fail("is not a regular file")
        if status.st_size > MAX_BYTES:
            fail(f"is {status.st_size:,} bytes large, and at most {MAX_BYTES:,} are read: split it")
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            fail("is a symbolic link that leads back to itself")
        fail(f"can not be read: {(error.strerror or type(error).__name__).lower()}")
    except ValueError:  # a NUL or a lone surrogate in the path
        fail("can not be read: no file can have this name")
    if len(raw) > MAX_BYTES:
        fail(f"is too large, at most {MAX_BYTES:,} bytes are read: split it")
    for mark, what in _FOREIGN.items():
        if raw.startswith(mark):
            fail(f"{what}: save it as UTF-8 without byte order mark")
    stray = ""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text = raw[: error.start].decode()
        stray = f"is not text in UTF-8: byte 0x{raw[error.start]:02X} can not stand here; save it as UTF-8"
    text = text.replace("\r\n", "\n")
    # What is printable needs no search.  To Python that includes variation selectors of plane 14, whose bytes begin with F3.
    printable = text.replace("\n", "").isprintable() and b"\xf3" not in raw
    if not printable and (match := _UNSEEN.search(text)):
        called = unicodedata.name(match[0], "control character" if match[0] < "\u0100" else "no character").lower()
        stray = f"is not text: U+{ord(match[0]):04X} ({called}) can not stand here; remove it"
        text = text[: match.start()]
    if stray:
        fail(stray, (text.count("\n") + 1, len(text) - text.rfind("\n")))
    return text


def read_yaml(path: Path, name: str) -> Source:
    """Read a YAML file; ``name`` is how problems show it.

    The data is made of dict with keys of text, list, str, int, Decimal, bool and None; it is not None as a whole.
    Raises :class:`ProblemsError` with all that is wrong up to where reading can not go on, and no other exception.
    """
    text = read_text(path, name)
    return Source(path, name, text, _Builder(text, name).build())


def _events(text: str) -> Iterator[Any]:
    return iter(_LOADER(text).get_event, None)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def _dotted(loc: Loc) -> str:
    def shown(step: str | int) -> str:
        if isinstance(step, int):
            return f"[{step}]"
        return f".{step if step.isprintable() and len(step) <= 40 else _short(step)}"

    return "".join(map(shown, loc)).removeprefix(".")


@dataclass(slots=True)
class _Place:
    """Where a node stands, and those inside it."""

    key: Position
    value: Position
    kind: type[yaml.Event] = yaml.SequenceStartEvent
    children: dict[str | int, _Place] = field(default_factory=dict)


def _places(text: str) -> _Place:
    """The root's place, in a text that :class:`_Builder` found nothing wrong with."""
    stack = [_Place((1, 1), (1, 1))]  # holds the root as if in a list
    key: tuple[str, Position] | None = None
    for event in _events(text):
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            mark: Any = event.start_mark
            at = (mark.line + 1, mark.column + 1)
            holder = stack[-1]
            if holder.kind is yaml.MappingStartEvent and key is None:
                key = (getattr(event, "value", ""), at)
                continue
            step, key_at = key or (len(holder.children), at)
            key = None
            holder.children[step] = place = _Place(key_at, at, type(event))
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append(place)
    return stack[0].children[0]


class _Anchored(NamedTuple):
    """What an alias repeats: of how many nodes and levels it is, with all aliases in it written out."""

    value: Any
    nodes: int
    levels: int


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being built."""

    event: Any
    data: Any
    lines: dict[str, int]  # of the keys
    nodes_before: int
    levels: int = 1
    key: str | None = None  # that waits for its value


class _Builder:
    """Builds the data of one file from its events."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._problems: list[Problem] = []
        self._documents = 0
        self._nodes = 0
        self._stack = [_Open(None, [], {}, 0)]  # holds the root as if in a list
        self._anchors: dict[str, _Anchored | None] = {}  # None while what it names is open

    def build(self) -> Any:
        """Return the data, or raise :class:`ProblemsError`."""
        try:
            self._read()
        except yaml.MarkedYAMLError as error:
            self._problems.append(self._syntax(error))
        except (yaml.YAMLError, ValueError, OverflowError):  # without libyaml, for "\U00110000" and the like
            self._problems.append(Problem(self._name, 1, 1, "", "is not YAML: check the escapes in double quotes"))
        root = self._stack[0].data
        if root in ([], [None]) and not self._problems:
            self._problems.append(Problem(self._name, 1, 1, "", "is empty: write the keys and values of the file"))
        if self._problems:
            raise ProblemsError(self._problems)
        return root[0]

    def _read(self) -> None:
        """Put every node where it belongs.

        A check of all recipes spends much of its time here: so it is one loop, which calls no function for the usual nodes.
        """
        stack = self._stack
        holder = stack[-1]
        for event in _events(self._text):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                value = event.value
                if not event.style:
                    # Most words begin with a letter, and mean themselves if they are none of the few special ones.
                    if not value or not value[0].isalpha() or (len(value) <= 5 and value.lower() in _SPECIAL):
                        value = self._plain(event)
                elif event.style == '"' and not value.isascii() and _SURROGATE.search(value):  # without libyaml only
                    self._add(event, "an escape that is no character: write it as one \\U escape")
                self._nodes += 1
                if self._nodes > MAX_NODES:
                    self._stop(event, _TOO_MANY)
                if event.tag is not None or event.anchor:
                    self._properties(event, _Anchored(value, 1, 0))
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if len(stack) > MAX_DEPTH:
                    self._stop(event, _TOO_DEEP)
                self._nodes += 1
                if self._nodes > MAX_NODES:
                    self._stop(event, _TOO_MANY)
                if event.tag is not None or event.anchor:
                    self._properties(event, None)
                holder = _Open(event, {} if kind is yaml.MappingStartEvent else [], {}, self._nodes - 1)
                stack.append(holder)
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = stack.pop()
                holder = stack[-1]
                event, value = done.event, done.data
                if event.anchor:
                    self._anchors[event.anchor] = _Anchored(value, self._nodes - done.nodes_before, done.levels)
                if holder.levels <= done.levels:
                    holder.levels = done.levels + 1
            elif kind is yaml.AliasEvent:
                value = self._alias(event)
            else:
                if kind is yaml.DocumentStartEvent:
                    self._document(event)
                continue
            if holder.key is not None:
                holder.data[holder.key] = value
                holder.key = None
            elif type(holder.data) is list:
                holder.data.append(value)
            elif kind is yaml.ScalarEvent and type(value) is str and value not in holder.lines:
                holder.lines[value] = event.start_mark.line + 1
                holder.key = value
            else:
                self._key(event, holder, value)

    def _document(self, event: Any) -> None:
        if self._documents:
            self._stop(event, "a second document begins here: put it into a file of its own, or remove this line")
        if event.version or event.tags:
            self._stop(event, "directives (%) are not used here: remove the line")
        self._documents += 1

    def _alias(self, event: Any) -> Any:
        """What is repeated; None after a problem."""
        if event.anchor not in self._anchors:
            self._add(event, f"repeats no anchor above, {_short('*' + event.anchor)}: quote it if it is text")
        elif (anchored := self._anchors[event.anchor]) is None:
            self._add(event, "this alias stands inside what it repeats: write the value out")
        else:
            # What is repeated is shared, so a bomb takes no memory here; the bounds are for those who walk the data.
            value, nodes, levels = anchored
            self._nodes += nodes
            if self._nodes > MAX_NODES:
                self._stop(event, _TOO_MANY)
            if len(self._stack) - 1 + levels > MAX_DEPTH:
                self._stop(event, _TOO_DEEP)
            self._stack[-1].levels = max(self._stack[-1].levels, levels + 1)
            return value
        return None

    def _key(self, event: Any, holder: _Open, value: Any) -> None:
        key = getattr(event, "value", None)
        if key is None:
            self._add(event, "a key can not be a list, a mapping or an alias: write it as text")
            holder.key = ""
            return
        if key in holder.lines:
            self._add(event, f"the key {_short(key)} stands twice, first in line {holder.lines[key]}: remove one")
        elif not isinstance(value, str):
            self._add(event, f"the key {_short(key)} is not text in YAML: quote it")
        holder.lines.setdefault(key, event.start_mark.line + 1)
        holder.key = key

    def _plain(self, event: Any) -> Any:
        """What a scalar without quotes means, where every YAML agrees."""
        value: str = event.value
        if value in _CONSTANTS:
            return _CONSTANTS[value]
        if value[0] in "-+.0123456789":
            if number := _NUMBER.fullmatch(value):
                if len(value) <= _MAX_DIGITS or sum(map(str.isdigit, value)) <= _MAX_DIGITS:
                    return Decimal(value) if number[1] else int(value)
                self._add(event, f"{_short(value)} has more than {_MAX_DIGITS} digits: write fewer, or quote it if it is text")
            elif _NUMBER_TO_SOME.fullmatch(value):
                self._add(event, f"{_short(value)} may be read as a number: quote it, or write it in plain digits")
        elif len(value) <= 5 and (message := _SPECIAL.get(value.lower())):
            self._add(event, f"{_short(value)} {message}")
        return value

    def _properties(self, event: Any, anchored: _Anchored | None) -> None:
        if event.tag is not None:
            self._add(event, f"tags are not used here: remove {_short(event.tag.replace('tag:yaml.org,2002:', '!!'))}")
        if event.anchor in self._anchors:
            self._add(event, f"the anchor {_short('&' + event.anchor)} is already used above: give it another name")
        if event.anchor:
            self._anchors[event.anchor] = anchored

    def _add(self, event: Any, message: str) -> None:
        steps = [len(holder.data) if type(holder.data) is list else holder.key for holder in self._stack[1:]]
        field = _dotted(tuple(step for step in steps if step is not None))
        mark = event.start_mark
        self._problems.append(Problem(self._name, mark.line + 1, mark.column + 1, field, message))

    def _stop(self, event: Any, message: str) -> NoReturn:
        self._add(event, message)
        raise ProblemsError(self._problems)

    def _syntax(self, error: yaml.MarkedYAMLError) -> Problem:
        """Say in our words what the parser says in its own."""
        said = " ".join(f"{error.context or ''}: {error.problem or ''}".split())
        mark: Any = error.problem_mark or error.context_mark
        opening: Any = error.context_mark or mark
        lines = self._text.split("\n")
        char = lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""
        if char == "\t":
            known, message = "", "a tab can not stand here: indent with spaces, not tabs"
        else:
            found = (item for item in _SYNTAX.items() if re.search(item[0].lstrip(">"), said))
            known, message = next(found, ("", f"is not YAML: {said}"))
        at = opening if known.startswith(">") else mark
        line, column = at.line + 1, at.column + 1
        if line > len(lines):  # the end of a file without a last line end
            line, column = len(lines), len(lines[-1]) + 1
        message = message.replace("{line}", str(opening.line + 1)).replace("{char}", _short(char))
        return Problem(self._name, line, column, "", message)
