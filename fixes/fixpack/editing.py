"""Python source that is searched by its syntax tree and changed as text, so that what is not edited stays byte for byte."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from textwrap import dedent, indent
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef

MARK = "# gaudi-cookbook: "
"""How each inserted piece begins, with the name of its fix."""


BYTE_ORDER_MARK = "\ufeff"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""A line as Python counts it; :meth:`str.splitlines` ends lines at form feeds and other separators as well."""


class PlaceError(Exception):
    """A place that an edit needs is not there, or is there more than once."""


class Module:
    """One source file, and the changes to it.  Positions are those of the text as it was given.

    Raises :class:`PlaceError` if the text is not Python, or nested too deep for this Python.
    """

    def __init__(self, text: str, fix: str) -> None:
        self._mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        self.text = text = text.removeprefix(BYTE_ORDER_MARK)
        self._fix = fix
        self._changes: list[tuple[int, int, str]] = []
        self.tree = parsed(text)
        self._lines = _LINE.findall(text)
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line))
        self._starts = starts
        self._newline = "\r\n" if "\r\n" in text else "\n"

    # --- finding ---

    def function(self, path: str) -> Function:
        """The one function of that dotted path: ``name``, or ``Class.name``."""
        scope: ast.AST = self.tree
        for name in path.split("."):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            scope = only([node for node in ast.iter_child_nodes(scope) if isinstance(node, kinds) and node.name == name], path)
        if isinstance(scope, ast.ClassDef):
            raise PlaceError(f"{path} is a class")
        assert isinstance(scope, Function)
        return scope

    def method(self, name: str) -> Function:
        """The one method of that name, of whatever class."""
        classes = [node for node in self.tree.body if isinstance(node, ast.ClassDef)]
        return only([node for owner in classes for node in owner.body if isinstance(node, Function) and node.name == name], name)

    def calls(self, scope: ast.AST, name: str) -> list[ast.Call]:
        """Every call of a dotted name below a node, as ``torch.cat`` or ``self.run``."""
        return [node for node in walk(scope, ast.Call) if dotted(node.func) == name]

    def statement(self, scope: ast.AST, inner: ast.AST) -> ast.stmt:
        """The innermost statement below ``scope`` that holds a node."""
        return min(
            (node for node in walk(scope, ast.stmt) if any(found is inner for found in ast.walk(node))),
            key=lambda node: self._span(node)[1] - self._span(node)[0],
        )

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self._span(node)
        return self.text[start:end]

    # --- changing ---

    def before(self, statement: ast.stmt, code: str, gap: int = 0) -> None:
        """Insert lines before a statement, indented as it is, with so many empty lines between."""
        first = min([statement, *getattr(statement, "decorator_list", [])], key=lambda node: node.lineno)
        start = self._starts[first.lineno - 1]
        self._changes.append((start, start, self._inserted(code, self._indent(statement)) + gap * self._newline))

    def after(self, statement: ast.stmt, code: str) -> None:
        """Insert lines after a statement, indented as it is."""
        end = self._span(statement)[1]
        line_end = self._starts[statement.end_lineno or statement.lineno]
        if self.text[end:line_end].split("#")[0].strip():
            raise PlaceError(f"line {statement.end_lineno}: another statement follows on the same line")
        self._changes.append((line_end, line_end, self._inserted(code, self._indent(statement))))

    def instead(self, statement: ast.stmt, code: str) -> None:
        """Put lines in the place of a statement."""
        margin = self._indent(statement)
        end = self._starts[statement.end_lineno or statement.lineno]
        if self.text[self._span(statement)[1] : end].split("#")[0].strip():
            raise PlaceError(f"line {statement.end_lineno}: another statement follows on the same line")
        self._changes.append((self._starts[statement.lineno - 1], end, self._inserted(code, margin)))

    def replace(self, node: ast.AST, code: str) -> None:
        """Put an expression in the place of a node."""
        self._changes.append((*self._span(node), code))

    def append(self, node: ast.AST, code: str) -> None:
        """Put text right behind a node."""
        end = self._span(node)[1]
        self._changes.append((end, end, code))

    def cut(self, start: ast.AST, end: ast.AST) -> None:
        """Take out what stands between the end of one node and the end of another."""
        self._changes.append((self._span(start)[1], self._span(end)[1], ""))

    def result(self) -> str:
        """The text with every change made.  Raises :class:`PlaceError` if the changes overlap."""
        text = self.text
        last = len(text) + 1
        for start, end, code in sorted(self._changes, key=lambda change: change[:2], reverse=True):
            if end > last:
                raise PlaceError("two changes meet in one place")
            text = text[:start] + code + text[end:]
            last = start
        return self._mark + text

    def _inserted(self, code: str, margin: str) -> str:
        lines = indent(f"{MARK}{self._fix}\n{dedent(code).strip()}\n", margin)
        if not self.text.endswith(("\n", "\r")):
            raise PlaceError("the last line has no end")
        return lines.replace("\n", self._newline)

    def _indent(self, statement: ast.stmt) -> str:
        start = self._span(statement)[0]
        margin = self.text[self._starts[statement.lineno - 1] : start]
        if margin.strip():
            raise PlaceError(f"line {statement.lineno}: the statement does not begin its line")
        return margin.rpartition("\f")[2]  # as Python counts it

    def _span(self, node: ast.AST) -> tuple[int, int]:
        lineno, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        end_lineno, end_column = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return self._offset(lineno, column), self._offset(end_lineno, end_column)

    def _offset(self, lineno: int, column: int) -> int:
        """Columns of the syntax tree count the bytes of UTF-8."""
        line = self._lines[lineno - 1]
        return self._starts[lineno - 1] + len(line.encode()[:column].decode())


Edit = Callable[[Module], None]
"""What a fix does to one file."""


def only(found: Sequence[N], what: str) -> N:
    """The one node that was looked for.  Raises :class:`PlaceError` if there is none, or more than one."""
    if len(found) != 1:
        raise PlaceError(f"{what}: found {len(found)} times, expected once")
    return found[0]


def walk(scope: ast.AST, kind: type[N]) -> Iterator[N]:
    """Every node of a kind below a node, in the order of the text."""
    found = [node for node in ast.walk(scope) if isinstance(node, kind)]
    return iter(sorted(found, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))))


def dotted(node: ast.AST) -> str:
    """A name with its attributes, as ``self.input_batch``; empty for anything else."""
    attributes = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(attributes)]) if isinstance(node, ast.Name) else ""


def parsed(text: str) -> ast.Module:
    """The syntax tree of a source that compiles.  Raises :class:`PlaceError`."""
    try:
        tree = ast.parse(text)
        compile(text, "the source", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise PlaceError(f"is not Python: {error}") from None
    except (RecursionError, MemoryError):
        raise PlaceError("is nested too deep for this Python") from None
    return tree
