"""Colours for a launch block, line by line.  The text of the HTML is the line itself, to the byte."""

from __future__ import annotations

import re
from html import escape

_EXPORT = re.compile(r"(export )?([A-Za-z_]\w*)(=)(.*)", re.DOTALL)
_FLAG = re.compile(r"( *)(--?[A-Za-z][\w.-]*)(.*)", re.DOTALL)
_TOKEN = re.compile(r"""("[^"]*"|\$?'(?:[^'\\]|\\.)*'|--?[A-Za-z][\w-]*|[^\s"']+|\s+|.)""", re.DOTALL)


def line(text: str) -> str:
    """One line of a block as HTML.

    Its classes: ``c`` comment, ``k`` keyword, ``n`` name, ``f`` flag, ``v`` value, ``x`` reference in quotes.
    """
    if text.startswith("#"):
        return f'<span class="c">{escape(text)}</span>'
    if match := _EXPORT.fullmatch(text):
        export, name, equals, value = match.groups()
        keyword = f'<span class="k">{export}</span>' if export else ""
        return f'{keyword}<span class="n">{name}</span>{equals}{_value(value)}'
    if match := _FLAG.fullmatch(text):
        indent, flag, rest = match.groups()
        return f'{indent}<span class="f">{flag}</span>{_words(rest)}'
    return _words(text)


def _words(text: str) -> str:
    out = []
    for index, token in enumerate(_TOKEN.findall(text)):
        if token.isspace():
            out.append(escape(token, quote=False))
        elif token.startswith("-"):
            out.append(f'<span class="f">{escape(token, quote=False)}</span>')
        elif index == 0:
            out.append(f'<span class="k">{escape(token, quote=False)}</span>')
        else:
            out.append(_value(token))
    return "".join(out)


def _value(text: str) -> str:
    kind = "x" if text.startswith('"') else "v"
    return f'<span class="{kind}">{escape(text, quote=False)}</span>' if text else ""
