"""What a version of an engine accepts on its command line: option names, choices and parser names, in ``NAME.json`` here.

The files are facts read from wheels by ``python -m schema.catalogs``.  Words are judged as the engine's own parser would judge
them, with what argparse does by itself: a beginning that only one option has stands for that option.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from schema.problems import Problem, ProblemsError, did_you_mean

FOLDER = Path(__file__).parent
UNTOLD = "\0"
"""Stands for a value that is not known before the block runs; any would do."""

TITLES = {"vllm": "vLLM", "sglang": "SGLang"}
VALUES = ("none", "one", "many", "any", "optional")
PARSERS: dict[str, tuple[Literal["tool", "reasoning"], str]] = {
    "--tool-call-parser": ("tool", "--tool-parser-plugin"),
    "--reasoning-parser": ("reasoning", "--reasoning-parser-plugin"),
}
"""The options that name a parser, and the one that brings others than the engine's own."""


class Option(NamedTuple):
    """One spelling of an option.

    ``value``: ``none``, ``one``, ``many`` (one or more), ``any`` (none or more) or ``optional`` (none or one).  ``choices`` are
    those that are declared; ``folded`` if their case does not matter and a dash is an underscore.
    """

    value: str
    choices: tuple[str | int, ...] | None = None
    folded: bool = False


@dataclass(frozen=True, eq=False)
class Catalog:
    """What one version of an engine accepts.  ``source`` is the wheel it was read from."""

    engine: str
    version: str
    source: str
    options: dict[str, Option]
    tool_parsers: tuple[str, ...]
    reasoning_parsers: tuple[str, ...]

    @property
    def title(self) -> str:
        """Engine and version as a reader knows them."""
        return f"{TITLES.get(self.engine, self.engine)} {self.version}"


class Fault(NamedTuple):
    """What is wrong with a flag (``at`` is ``arg``) or with its value."""

    at: Literal["arg", "value"]
    message: str


# --- reading -----------------------------------------------------------------------------------------------------------


@cache
def names() -> tuple[str, ...]:
    """The names of the catalogs there are."""
    return tuple(sorted(file.name.removesuffix(".json") for file in FOLDER.glob("*.json")))


@cache
def catalog(name: str) -> Catalog:
    """The catalog of that name, read when it is first asked for.

    Raises :class:`KeyError` if there is none, and :class:`~schema.problems.ProblemsError` if its file is damaged.
    """
    if name not in names():
        raise KeyError(name)
    return read_catalog(FOLDER / f"{name}.json", f"schema/catalogs/{name}.json")


def read_catalog(file: Path, shown: str) -> Catalog:
    """Read one catalog; ``shown`` is how problems name the file.  Raises :class:`~schema.problems.ProblemsError`."""

    def damaged(message: str, line: int = 1, column: int = 1, at: str = "") -> ProblemsError:
        cure = "make it anew with python -m schema.catalogs"
        return ProblemsError([Problem(shown, line, column, at, f"{message}: {cure}")])

    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise damaged(f"can not be read ({(error.strerror or str(error)).lower()})") from None
    except UnicodeDecodeError:
        raise damaged("is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise damaged(f"is not JSON ({error.msg})", error.lineno, error.colno) from None
    except RecursionError:
        raise damaged("is nested too deeply") from None
    if not isinstance(data, dict):
        raise damaged("must be an object")
    for key in ("engine", "version", "source"):
        if not isinstance(data.get(key), str):
            raise damaged("must be text", at=key)
    for key in ("tool_parsers", "reasoning_parsers"):
        if not isinstance(data.get(key), list) or not all(isinstance(item, str) for item in data[key]):
            raise damaged("must be a list of names", at=key)
    if not isinstance(data.get("options"), dict):
        raise damaged("must be an object", at="options")
    options = {}
    for flag, entry in data["options"].items():
        option = _option(entry)
        if option is None:
            raise damaged("is no option", at=f"options.{flag}")
        options[flag] = option
    return Catalog(
        data["engine"], data["version"], data["source"], options, tuple(data["tool_parsers"]), tuple(data["reasoning_parsers"])
    )


_PLAIN = {value: Option(value) for value in VALUES}


def _option(entry: Any) -> Option | None:
    if isinstance(entry, dict) and len(entry) == 1 and isinstance(value := entry.get("value"), str):
        return _PLAIN.get(value)
    if not isinstance(entry, dict) or entry.keys() - {"value", "choices", "folded"} or entry.get("value") not in VALUES:
        return None
    choices, folded = entry.get("choices"), entry.get("folded", False)
    if choices is not None and not (isinstance(choices, list) and all(type(choice) in (str, int) for choice in choices)):
        return None
    return Option(entry["value"], None if choices is None else tuple(choices), folded) if isinstance(folded, bool) else None


# --- judging -----------------------------------------------------------------------------------------------------------


def problems_of(catalog: Catalog, flags: Sequence[tuple[str, Sequence[str]]]) -> Iterator[tuple[int, str]]:
    """What is wrong with the flags of one command, each given with its values: the flag's index and what is to be said."""
    for index, fault in faults_of(catalog, [(flag, tuple(values)) for flag, values in flags]):
        yield index, fault.message


def faults_of(catalog: Catalog, flags: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[int, Fault]]:
    """The same, with whether the flag or its value is at fault."""
    brought = frozenset(_meant(catalog, flag)[0] for flag, _ in flags if "plugin" in flag)
    for index, (flag, values) in enumerate(flags):
        fault = _fault(catalog, flag, values, brought)
        if fault is not None:
            yield index, fault


@lru_cache(maxsize=4096)
def _fault(catalog: Catalog, flag: str, values: tuple[str, ...], plugins: frozenset[str]) -> Fault | None:
    """The first thing that is wrong with one flag."""
    name, attached = _meant(catalog, flag)
    option = catalog.options.get(name)
    if option is None:
        candidates = _beginning_with(catalog, name)
        if len(candidates) > 1:
            some = " or ".join(candidates[:3]) + (" or another" if len(candidates) > 3 else "")
            return Fault("arg", f"{flag} is short for more than one flag of {catalog.title}, {some}: write it out")
        return Fault("arg", f"{catalog.title} has no flag {flag}{_nearest(name, catalog.options)}")
    if attached is not None:
        values = (attached, *values)
    count = len(values)
    if option.value == "none" and count:
        return Fault("value", f"{flag} takes no value")
    if option.value in ("one", "many") and not count:
        return Fault("arg", f"{flag} needs a value")
    if option.value in ("one", "optional") and count > 1:
        return Fault("value", f"{flag} takes one value, not {count}")
    if "." in flag:
        return None  # one key of a JSON value
    for value in values:
        if value != UNTOLD and (message := _wrong_value(catalog, name, option, flag, value, plugins)):
            return Fault("value", message)
    return None


def _wrong_value(catalog: Catalog, name: str, option: Option, flag: str, value: str, plugins: frozenset[str]) -> str | None:
    if name in PARSERS:
        kind, plugin = PARSERS[name]
        known = catalog.tool_parsers if kind == "tool" else catalog.reasoning_parsers
        accepted = known if option.choices is None else tuple(map(str, option.choices))
        if value in accepted or plugin in plugins:
            return None
        return f"{catalog.title} has no {kind} parser {value!r}{did_you_mean(value, accepted)}"
    if option.choices is None or _is_choice(value, option):
        return None
    if all(isinstance(choice, int) for choice in option.choices):
        return f"{flag} does not take {value!r} (known: {', '.join(map(str, option.choices))})"
    return f"{flag} does not take {value!r}{did_you_mean(value, map(str, option.choices), everything_up_to=12)}"


def _is_choice(value: str, option: Option) -> bool:
    for choice in option.choices or ():
        if isinstance(choice, int):
            try:
                if int(value) == choice:
                    return True
            except ValueError:
                continue
        elif value == choice or (option.folded and value.lower().replace("-", "_") == choice):
            return True
    return False


@lru_cache(maxsize=4096)
def _meant(catalog: Catalog, flag: str) -> tuple[str, str | None]:
    """The option that a word means, and a value that is written to it without a space; the word itself if it means none.

    vLLM's own parser (``vllm/utils/argparse_utils.py``) takes ``_`` for ``-``, ``-O3`` for a level of optimization, and
    ``--config.key`` for one key of a JSON value.  The rest is argparse.
    """
    vllm = catalog.engine == "vllm"
    word = flag
    if vllm:
        if flag.startswith("-O"):
            return "--optimization-level", flag[2:] or None
        word = flag.partition(".")[0]
        word = word.replace("_", "-") if word.startswith("--") else word
    if word in catalog.options:
        return word, None
    candidates = _beginning_with(catalog, word)
    if not word.startswith("--") and len(word) > 2 and word[:2] in catalog.options:
        return (word, None) if candidates else (word[:2], word[2:])
    return (candidates[0] if len(candidates) == 1 else word), None


def _beginning_with(catalog: Catalog, word: str) -> list[str]:
    """The options that a word may be short for."""
    return [name for name in catalog.options if name.startswith(word) and name.startswith("--") == word.startswith("--")]


def _nearest(flag: str, known: dict[str, Option]) -> str:
    """A hint at the flags that were meant: those that are as near as the nearest one, or almost."""
    near = difflib.get_close_matches(flag, list(known), n=3, cutoff=0.6)
    likeness = {name: difflib.SequenceMatcher(None, name, flag).ratio() for name in near}
    best = max(likeness.values(), default=0.0)
    return did_you_mean(flag, [name for name in near if likeness[name] > best - 0.04], everything_up_to=0)
