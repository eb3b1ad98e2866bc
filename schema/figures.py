"""Figures out of a recipe: tables with their derived columns, and the ``{{ … }}`` of prose.

What is computed is computed here, in decimal arithmetic over the digits that the recipe gives; a range stays a range.

In prose, ``{{ … }}`` is one figure, or ``a - b``, or ``a / b`` of two:

- ``performance.TABLE.COLUMN[ROW]``: one cell, ROW being the row's own value; without ``[ROW]`` all of them, parted by `` / ``
- ``checks.CHECK.ARM``: the value, or ``passed/of``; with ``.share`` passed over of
- ``measurements.MEASUREMENT.ARM``
- ``model.FIELD``: a number of the model
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeAlias, TypeVar

from schema.models import Chart, Derived, Figure, HardwareOption, Performance, Range, Recipe, Result
from schema.problems import did_you_mean

Interval: TypeAlias = tuple[Decimal, Decimal]
Cell: TypeAlias = Interval | None

T = TypeVar("T")

PLACEHOLDER = re.compile(r"\\\{\{|\{\{\s*(.*?)\s*\}\}")
"""A figure in a text, or braces that are kept as they are: ``\\{{``."""
_REFERENCE = re.compile(r"([a-z_]+)\.([a-z0-9_]+)(?:\.([a-z0-9_]+))?(?:\.(share))?(?:\[([^\]]+)\])?")


class FigureError(Exception):
    """An expression that names no figure of the recipe; the message says which part, and what is near."""


class BrokenTableError(FigureError):
    """A table that can not be computed, whatever asks for it; checks say so once, at the table itself."""

    def __init__(self, table: str, message: str) -> None:
        super().__init__(message)
        self.table = table


@dataclass(frozen=True)
class TableColumn:
    """A column ready to be shown: ``cells`` as text, ``numbers`` the same as low and high, None where nothing was measured."""

    name: str
    title: str
    unit: str
    better: str
    arm: str
    derived: bool
    cells: list[str]
    numbers: list[Cell]
    mixed: bool = False
    """Whether it is computed from arms that ran on different numbers of cards."""


@dataclass(frozen=True)
class Table:
    """A performance table ready to be shown."""

    name: str
    title: str
    method: str
    measured_as: str
    row_title: str
    rows: list[str]
    columns: list[TableColumn]
    charts: list[Chart]

    def column(self, name: str) -> TableColumn:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)


def number(value: Decimal) -> str:
    """A number as a reader sees it: the digits it was given with, thousands parted by commas."""
    return f"{value:,f}"


def figure(cell: Cell) -> str:
    """A figure or a range as a reader sees it; a dash where nothing was measured."""
    if cell is None:
        return "–"
    low, high = cell
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def interval(value: Figure | None) -> Cell:
    """A figure of the recipe language as low and high."""
    if value is None:
        return None
    return (value.low, value.high) if isinstance(value, Range) else (value, value)


def cards_of(recipe: Recipe, arm_name: str) -> int | None:
    """The number of cards that an arm of the evidence ran on, over all nodes; None if it is not said."""
    for evidence in recipe.evidence:
        for arm in evidence.arms:
            if arm.name != arm_name:
                continue
            if arm.setup:
                return arm.setup.cards
            for axis in recipe.axes:
                for option in axis.options:
                    if isinstance(option, HardwareOption) and (arm.selection or {}).get(axis.name) == option.name:
                        return option.cards
    return None


def _round(cell: Interval, digits: int) -> Interval:
    step = Decimal(1).scaleb(-digits)
    try:
        return cell[0].quantize(step), cell[1].quantize(step)
    except InvalidOperation:
        raise FigureError("gives a number of too many digits") from None


def _minus(a: Interval, b: Interval) -> Interval:
    return a[0] - b[1], a[1] - b[0]


def _over(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        raise FigureError("divides by zero")
    quotients = [x / y for x in a for y in b]
    return min(quotients), max(quotients)


def _named(kind: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise FigureError(f"no {kind} {name!r}{did_you_mean(name, known)}")
    return known[name]


class Figures:
    """The figures of one recipe.  Every method raises :class:`FigureError` for what the recipe does not hold."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        """A performance table, its derived columns computed."""
        if name not in self._tables:
            table = _named("table", name, {table.name: table for table in self.recipe.performance})
            try:
                self._tables[name] = self._computed(table)
            except BrokenTableError:
                raise
            except FigureError as error:
                raise BrokenTableError(name, str(error)) from None
        return self._tables[name]

    def value(self, expression: str) -> str:
        """What ``{{ expression }}`` stands for, as text."""
        terms = re.split(r"\s+([-/])\s+", expression)
        if len(terms) == 1:
            return self._text(expression)
        if len(terms) != 3:
            raise FigureError("can hold one - or / between two figures, with spaces around it")
        left, right = self._cell(terms[0]), self._cell(terms[2])
        if terms[1] == "-":
            return figure(_minus(left, right))
        return figure(_round(_over(left, right), 2))

    def fill(self, text: str) -> str:
        r"""A text with every ``{{ … }}`` replaced, and every ``\\{{`` without its backslash."""
        return PLACEHOLDER.sub(lambda match: "{{" if match[1] is None else self.value(match[1]), text) if "{{" in text else text

    def _text(self, reference: str) -> str:
        kind, name, part, share, row = self._parsed(reference)
        if kind == "performance" and row is None:
            return " / ".join(self._column(name, part).cells)
        if kind == "checks" and not share:
            result = self._result(name, part)
            if result.value is None and result.passed is not None and result.of is not None:
                return f"{result.passed:,}/{result.of:,}"
        return figure(self._cell(reference))

    def _cell(self, reference: str) -> Interval:
        kind, name, part, share, row = self._parsed(reference)
        cell: Cell = None
        if kind == "performance":
            table, column = self.table(name), self._column(name, part)
            if row is None:
                raise FigureError(f"needs a row, {reference}[ROW] (rows: {', '.join(table.rows)})")
            if row not in table.rows:
                raise FigureError(f"table {name} has no row {row!r} (rows: {', '.join(table.rows)})")
            cell = column.numbers[table.rows.index(row)]
        elif kind == "checks":
            result = self._result(name, part)
            if share:
                if result.passed is None or result.of is None:
                    raise FigureError(f"check {name} has no passed and of for arm {part}")
                cell = (share_of(result.passed, result.of),) * 2
            else:
                cell = interval(result.value)
        elif kind == "measurements":
            measurement = _named("measurement", name, {m.name: m for m in self.recipe.measurements})
            cell = interval(_named("arm", part or "", measurement.values))
        else:
            fields = {k: v for k, v in self.recipe.model if isinstance(v, int | Decimal)}
            cell = (Decimal(_named("number of the model", name, fields)),) * 2
        if cell is None:
            raise FigureError(f"{reference} has no figure")
        return cell

    def _parsed(self, reference: str) -> tuple[str, str, str | None, str | None, str | None]:
        match = _REFERENCE.fullmatch(reference)
        kinds = ("performance", "checks", "measurements", "model")
        if not match:
            raise FigureError(f"{reference!r} is not of the form {' or '.join(f'{kind}.…' for kind in kinds)}")
        kind, name, part, share, row = match.groups()
        if kind not in kinds:
            raise FigureError(f"unknown {kind!r}{did_you_mean(kind, kinds)}")
        if kind != "model" and part is None:
            raise FigureError(f"{reference!r} names no {'column' if kind == 'performance' else 'arm'}")
        if (row and kind != "performance") or (share and kind != "checks") or (part and kind == "model"):
            raise FigureError(f"{reference!r} says too much: {kind}.{name} has no such part")
        return kind, name, part, share, row

    def _column(self, table: str, name: str | None) -> TableColumn:
        return _named("column", name or "", {column.name: column for column in self.table(table).columns})

    def _result(self, check: str, arm: str | None) -> Result:
        found = _named("check", check, {item.name: item for item in self.recipe.checks})
        return _named("arm", arm or "", found.results)

    def _computed(self, table: Performance) -> Table:
        rows = [value if isinstance(value, str) else number(value) for value in table.rows.values]
        columns: list[TableColumn] = []
        for column in table.columns:
            if len(column.values) != len(rows):
                raise FigureError(f"column {column.name} has {len(column.values)} values for {len(rows)} rows")
            numbers = [interval(value) for value in column.values]
            columns.append(
                TableColumn(
                    column.name,
                    column.title,
                    column.unit or "",
                    column.better or "",
                    column.arm,
                    False,
                    [figure(cell) for cell in numbers],
                    numbers,
                )
            )
        for derived in table.derived:
            sources = [self._source(table, columns, name, len(rows)) for name in derived.of]
            numbers = [self._derive(derived, table, sources, row) for row in range(len(rows))]
            columns.append(
                TableColumn(
                    derived.name,
                    derived.title,
                    derived.unit or "",
                    "",
                    sources[0].arm,
                    True,
                    [figure(cell) for cell in numbers],
                    numbers,
                    any(source.mixed for source in sources) or len({cards_of(self.recipe, source.arm) for source in sources}) > 1,
                )
            )
        return Table(table.name, table.title, table.method, table.measured_as, table.rows.title, rows, columns, table.charts)

    def _source(self, table: Performance, own: Sequence[TableColumn], name: str, rows: int) -> TableColumn:
        other, dot, column = name.rpartition(".")
        if not dot:
            return _named("column", name, {item.name: item for item in own})
        above = [item.name for item in self.recipe.performance]
        if other in above and above.index(other) >= above.index(table.name):
            raise FigureError(f"table {other!r} does not stand above this one")
        found = self._column(other, column)
        theirs = next(item for item in self.recipe.performance if item.name == other)
        if theirs.rows.values != table.rows.values:
            raise FigureError(f"table {other!r} has other rows")
        return found

    def _derive(self, derived: Derived, table: Performance, sources: Sequence[TableColumn], row: int) -> Cell:
        wanted = {"ratio": 2, "difference": 2, "per_card": 1, "same": 1}.get(derived.compute)
        if wanted is not None and len(sources) != wanted:
            raise FigureError(f"column {derived.name}: {derived.compute} takes {wanted} of, not {len(sources)}")
        factor = table.rows.values[row] if derived.times_rows else Decimal(1)
        if isinstance(factor, str):
            raise FigureError(f"column {derived.name}: times_rows needs rows that are numbers")
        cells = [source.numbers[row] for source in sources]
        present = [cell for cell in cells if cell is not None]
        if len(present) != len(cells):
            return None
        terms = [(low * factor, high * factor) for low, high in present]
        if derived.compute == "ratio":
            terms[1:] = present[1:]
        try:
            return _round(self._compute(derived, terms[0], terms[1:], sources[0]), derived.digits)
        except FigureError as error:
            raise FigureError(f"column {derived.name}, row {row + 1}: {error}") from None

    def _compute(self, derived: Derived, first: Interval, rest: Sequence[Interval], source: TableColumn) -> Interval:
        if derived.compute == "ratio":
            return _over(first, rest[0])
        if derived.compute == "difference":
            return _minus(first, rest[0])
        if derived.compute == "sum":
            return sum((cell[0] for cell in rest), first[0]), sum((cell[1] for cell in rest), first[1])
        if derived.compute == "per_card":
            if source.mixed:
                raise FigureError(f"column {source.name} is of arms with different numbers of cards")
            cards = cards_of(self.recipe, source.arm)
            if cards is None:
                raise FigureError(f"the evidence does not say how many cards arm {source.arm} ran on")
            return first[0] / cards, first[1] / cards
        return first


def share_of(passed: int, of: int) -> Decimal:
    """A share to three digits.  One that is not whole is never 1.000, and one that is something is never 0.000."""
    share = (Decimal(passed) / of).quantize(Decimal("0.001"))
    if share == 1 and passed < of:
        return Decimal("0.999")
    return Decimal("0.001") if share == 0 and passed else share


def placeholders(text: str) -> Iterator[tuple[int, str]]:
    """Every ``{{ … }}`` of a text: where it starts, and its expression."""
    return ((match.start(), match[1]) for match in PLACEHOLDER.finditer(text) if match[1] is not None)


def prose(recipe: Recipe) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text of a recipe in which ``{{ … }}`` may stand, with its place."""
    yield ("summary",), recipe.summary
    for field in ("notes", "avoid"):
        for index, text in enumerate(getattr(recipe, field)):
            yield (field, index), text
    fields = {
        "requires": ("means",),
        "launch": ("means",),
        "evidence": ("conditions",),
        "checks": ("conditions",),
        "measurements": ("measured_as",),
        "performance": ("method", "measured_as"),
        "known_issues": ("text",),
    }
    for listed, names in fields.items():
        for index, item in enumerate(getattr(recipe, listed)):
            for name in names:
                if text := getattr(item, name):
                    yield (listed, index, name), text
    for index, reason in enumerate(recipe.fixes.required if recipe.fixes else ()):
        yield ("fixes", "required", index, "because"), reason.because
