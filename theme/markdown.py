"""Markdown to HTML, as the guides and the texts of recipes use it: CommonMark with tables, raw HTML shown as text."""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

_FORMATTER = HtmlFormatter(nowrap=True)


@cache
def _lexer(language: str) -> Lexer:
    """Looking one up takes longer than what it then does."""
    try:
        return get_lexer_by_name(language or "text", stripall=False, ensurenl=False)
    except ClassNotFound:
        return get_lexer_by_name("text", ensurenl=False)


def _highlighted(code: str, language: str, _attributes: str) -> str:
    """Highlight a fenced block; an unknown language is shown plain, with the same frame."""
    inner = highlight(code.rstrip("\n"), _lexer(language), _FORMATTER)
    return f'<pre><code tabindex="0">{inner.rstrip()}\n</code></pre>'


TABLE_OPENS = '<div class="cb-scroll" tabindex="0" role="region" aria-label="Table"><table class="cb-plain">'
TABLE_CLOSES = "</table></div>"
"""A table scrolls sideways in a frame that can be reached with the keyboard."""

_MARKED = re.compile(r"[*_`\[\]<>&!\\\n]")
"""What may be markup in a line; a text without any of it is itself."""


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "typographer": False}).enable("table")
    parser.disable(["html_block", "html_inline"])  # without html they find nothing, in every line
    parser.disable("image")  # nothing is loaded from elsewhere; the checks refuse them with a reason
    renderer: Any = parser.renderer
    rules = renderer.rules

    def fence(tokens: Any, index: int, options: Any, env: Any) -> str:
        return f'<div class="highlight">{_highlighted(tokens[index].content, tokens[index].info.strip(), "")}</div>\n'

    rules["fence"] = fence
    rules["code_block"] = fence
    rules["table_open"] = lambda *_: TABLE_OPENS + "\n"
    rules["table_close"] = lambda *_: TABLE_CLOSES + "\n"
    return parser


def slug(text: str) -> str:
    """The anchor of a heading: lower-case words joined by dashes."""
    plain = unicodedata.normalize("NFKD", re.sub(r"[`*_\[\]]", "", text)).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "section"


def inline(text: str) -> Markup:
    """One paragraph's worth of Markdown, without the paragraph."""
    if not _MARKED.search(text):
        return escape(text)
    return Markup(_parser().renderInline(text))  # noqa: S704 - raw HTML is off in the parser


def block(text: str, taken: set[str] | None = None) -> tuple[Markup, list[tuple[int, str, str]]]:
    """A stretch of Markdown; returns its HTML and its headings as (level, anchor, title).

    ``taken`` holds the anchors used so far on the page, and grows.
    """
    parser = _parser()
    tokens = parser.parse(text)
    taken = set() if taken is None else taken
    headings = []
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            anchor = base = slug(content.content)
            number = 2
            while anchor in taken:
                anchor, number = f"{base}-{number}", number + 1
            taken.add(anchor)
            opening.attrSet("id", anchor)
            headings.append((int(opening.tag[1:]), anchor, content.content))
    return Markup(parser.renderer.render(tokens, parser.options, {})), headings  # noqa: S704 - as above
