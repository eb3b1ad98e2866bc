"""Bar charts as inline SVG, made at build time.

Positions and lengths are percentages, text is in pixels: a chart fills whatever width there is and its text stays readable.
Colours come from the style sheet by class.
"""

from __future__ import annotations

from decimal import Decimal
from html import escape

from markupsafe import Markup

from schema.figures import Table, TableColumn, figure
from schema.models import Chart

_BAR, _GAP, _LABEL, _BETWEEN = 16, 3, 20, 12
_WIDEST = Decimal(80)


def draw(table: Table, chart: Chart) -> Markup:
    """A chart of some columns of a table: one group a row, one bar a column, a range as a paler end of its bar."""
    columns = [table.column(name) for name in chart.columns]
    largest = max((cell[1] for column in columns for cell in column.numbers if cell), default=Decimal(0))
    scale = _WIDEST / largest if largest > 0 else Decimal(0)
    parts, y = [], 0
    for row, title in enumerate(table.rows):
        label = f"{table.row_title} {title}" if title[:1].isdecimal() else title
        parts.append(f'<text class="cb-row" x="0" y="{y + 14}">{escape(label)}</text>')
        y += _LABEL
        for series, column in enumerate(columns):
            parts.append(_bar(column, row, series, y, scale))
            y += _BAR + _GAP
        y += _BETWEEN
    unit = next((column.unit for column in columns if column.unit), "")
    better = {"higher": "higher is better", "lower": "lower is better"}.get(columns[0].better, "")
    about = ", ".join(filter(None, [unit, better]))
    keys = "".join(f'<li class="cb-s{series}">{escape(column.title)}</li>' for series, column in enumerate(columns))
    caption = escape(chart.title) + (f" <small>{escape(about)}</small>" if about else "")
    legend = f'<ul class="cb-legend">{keys}</ul>' if len(columns) > 1 else ""
    single = " cb-single" if len(columns) == 1 else ""
    return Markup(  # noqa: S704 - escaped
        f'<figure class="cb-chart{single}"><figcaption>{caption}</figcaption>{legend}'
        f'<svg width="100%" height="{y - _BETWEEN}" role="img" aria-label="{escape(chart.title)}: the figures of the table">'
        f"{''.join(parts)}</svg></figure>"
    )


def _bar(column: TableColumn, row: int, series: int, y: int, scale: Decimal) -> str:
    cell = column.numbers[row]
    if cell is None:
        return f'<text class="cb-none" x="0" y="{y + 13}">not measured</text>'
    low, high = (max(value, Decimal(0)) * scale for value in cell)
    paler = (
        f'<rect class="cb-s{series} cb-range" x="{low:.2f}%" y="{y}" width="{high - low:.2f}%" height="{_BAR}"/>'
        if high > low
        else ""
    )
    return (
        f'<rect class="cb-s{series}" x="0" y="{y}" width="{low:.2f}%" height="{_BAR}" rx="2"/>{paler}'
        f'<text class="cb-num" x="{high:.2f}%" dx="6" y="{y + 12}">{escape(figure(cell))}</text>'
    )
