"""Quoting for POSIX shells and bash: a word of a launch block reaches the process exactly as it stands in the data.

A word is a list of pieces: literal text, or a reference to a variable.  Literal text is never seen by the shell as anything
but itself; a reference is the only thing that is ever expanded, and never split.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

Piece = str | dict[str, str]
"""Literal text, or ``{"var": NAME}``."""
Word = list[Piece]

_SAFE = re.compile(r"[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*")
_SAFE_TAIL = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_COMMAND = re.compile(r"[A-Za-z0-9_./-]+")
_KEYWORDS = frozenset("case coproc do done elif else esac fi for function if in select then time until while".split())  # noqa: SIM905
_BUILTINS = frozenset(
    ". : alias bg bind break builtin cd command continue declare dirs disown enable eval exec exit export fc fg"  # noqa: SIM905
    " getopts hash jobs kill let local logout mapfile popd printf pushd read readarray readonly return set shift"
    " shopt source suspend test times trap typeset ulimit umask unalias unset wait".split()
)
_VARIABLES = re.compile(
    "_|BASH.*|CDPATH|CHILD_MAX|COMP_.*|COPROC|DIRSTACK|ENV|E?UID|EPOCH.*|EXECIGNORE|FCEDIT|FIGNORE|FUNCNAME|FUNCNEST|GLOB(IGNORE|SORT)"
    "|GROUPS|HIST.*|HOSTFILE|IFS|IGNOREEOF|INPUTRC|LINENO|MAPFILE|OLDPWD|OPT(ARG|ERR|IND)|PATH|PIPESTATUS|POSIXLY_CORRECT|PPID"
    "|PROMPT_(COMMAND|DIRTRIM)|PS[0-4]|PWD|RANDOM|READLINE_.*|REPLY|SECONDS|SHELLOPTS|SHLVL|SRANDOM|TIMEFORMAT|TMOUT|auto_resume|histchars"
)
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "'": r"\'", "\\": r"\\"}


def unspeakable(text: str) -> str | None:
    """Name what no process argument can hold, or None: NUL ends a C string, a lone surrogate is no character."""
    if text.isprintable():
        return None
    for character in text:
        if character == "\0":
            return "a NUL character"
        if 0xD800 <= ord(character) <= 0xDFFF:
            return f"a lone surrogate (U+{ord(character):04X})"
    return None


def is_command(word: str) -> bool:
    """Whether a word can stand where a command's name does: plain, no keyword or builtin that changes the shell, no option."""
    return bool(_COMMAND.fullmatch(word)) and word not in _KEYWORDS | _BUILTINS and not word.startswith("-")


def is_shells_own(variable: str) -> bool:
    """Whether bash sets a variable itself, refuses to have it set, or reads the rest of the block by it."""
    return bool(_VARIABLES.fullmatch(variable))


def _plain_to_read(character: str) -> bool:
    """Whether a character shows as itself: no control, format (bidi, zero width), private or separator but a space."""
    return character == " " or unicodedata.category(character) not in {"Cc", "Cf", "Co", "Cn", "Zl", "Zp", "Zs"}


def quote(text: str) -> str:
    r"""Quote literal text: bare where it is safe, else in single quotes, else as ``$'…'`` so that it stays on one line.

    Source: POSIX.1-2024, Shell Command Language 2.2 (quoting; ``$'…'`` with ``\\xHH`` is 2.2.4).
    """
    if _SAFE.fullmatch(text):
        return text
    if text.isprintable() or all(map(_plain_to_read, text)):
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if _plain_to_read(character):
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())  # bash takes at most two digits after each \x


def quote_word(word: Sequence[Piece]) -> str:
    """Quote a word of pieces; references go into double quotes, together with safe text beside them.

    ``[{"var": "COOKBOOK"}, "/fixes"]`` gives ``"$COOKBOOK/fixes"``.
    """
    if not any(isinstance(piece, dict) for piece in word):
        return quote("".join(piece for piece in word if isinstance(piece, str)))
    word = [piece for piece in word if piece]  # an empty text would hide from a reference what follows it
    done: list[str] = []
    inside = ""
    for piece, following in zip(word, [*word[1:], ""]):
        if isinstance(piece, dict):
            inside += _reference(piece["var"], following)
        elif _SAFE_TAIL.fullmatch(piece):
            inside += piece
        else:
            if inside:
                done.append(f'"{inside}"')
            done.append(quote(piece))
            inside = ""
    if inside:
        done.append(f'"{inside}"')
    return "".join(done)


def _reference(name: str, following: Piece) -> str:
    """``$NAME`` where the name plainly ends, before the end of the quotes or a slash, else ``${NAME}``."""
    ends = isinstance(following, str) and (following[:1] in ("", "/") or not _SAFE_TAIL.fullmatch(following))
    return f"${name}" if ends else f"${{{name}}}"
