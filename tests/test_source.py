"""The YAML reader: what it accepts, what it says of the rest, and where."""

from __future__ import annotations

import os
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schema import source
from schema.problems import Problem, ProblemsError, as_text
from schema.source import MAX_BYTES, MAX_DEPTH, MAX_NODES, Loc, Source, read_text, read_yaml

Read = Callable[[str | bytes], Source]
SAME_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read what stands in a file."""

    def read_it(content: str | bytes) -> Source:
        file = tmp_path / "recipe.yaml"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_yaml(file, "recipe.yaml")

    return read_it


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, read: Read) -> Read:
    """Read with libyaml, and without."""
    monkeypatch.setattr(source, "_LOADER", request.param)
    return read


def problems_of(read: Read, content: str | bytes) -> list[Problem]:
    with pytest.raises(ProblemsError) as caught:
        read(content)
    for problem in caught.value.problems:
        check_form(problem, content)
    return caught.value.problems


def check_form(problem: Problem, content: str | bytes) -> None:
    assert problem.path == "recipe.yaml"
    assert problem.message
    assert not problem.message[0].isupper()
    assert str(problem).isprintable()
    assert len(str(problem)) < 1000 + len(problem.field)
    assert as_text([problem]).count("\n") == 1
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").split("\n")
    assert 1 <= problem.line <= len(lines)
    assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1


def said(read: Read, content: str | bytes) -> str:
    """The one problem, as it is printed after the file's name."""
    (problem,) = problems_of(read, content)
    return str(problem).removeprefix("recipe.yaml:")


# Values


def test_values(either: Read) -> None:
    text = """\
    # a comment
    text: some text
    quoted: ["8", 'on', "0193", "", 'null']
    block: |
      on
    folded: >-
      1
      2
    numbers: [0, 8, -3, 123456789012345678]
    decimals: [1.50, -0.0, 17.9]
    constants: [true, false, null, ~, ]
    nothing:
    dates: [2026-08-21, 2001-12-14t21:59:43.10-05:00]
    versions: [v0.30.0, 0.30.0, 1.2.3, 12:99, 10.0.0.1:80, 1e, 0x, "-", a=b, 5%]
    ? key
    : value
    """
    data = either(text.replace("\n    ", "\n").lstrip()).data
    assert data == {
        "text": "some text",
        "quoted": ["8", "on", "0193", "", "null"],
        "block": "on\n",
        "folded": "1 2",
        "numbers": [0, 8, -3, 123456789012345678],
        "decimals": [Decimal("1.50"), Decimal("-0.0"), Decimal("17.9")],
        "constants": [True, False, None, None],
        "nothing": None,
        "dates": ["2026-08-21", "2001-12-14t21:59:43.10-05:00"],
        "versions": ["v0.30.0", "0.30.0", "1.2.3", "12:99", "10.0.0.1:80", "1e", "0x", "-", "a=b", "5%"],
        "key": "value",
    }
    assert isinstance(data, dict)
    assert list(map(str, data["decimals"])) == ["1.50", "-0.0", "17.9"]
    assert list(map(type, data["constants"][:2] + data["numbers"][:2])) == [bool, bool, int, int]


SWITCHES = [cased for word in ("yes", "no", "on", "off", "y", "n") for cased in (word, word.upper(), word.title())]
NUMBERS = ["0193", "00", "-01", "0o17", "0x1F", "0b1", "1_000", "1_0.5", "1:30", "190:20:30", "190:20:30.15", "0:30"]
FLOATS = ["+12", "+1.5", "1.", ".5", "-.5", "007.5", "1e3", "1.5e3", "1.5E+3", ".inf", "-.inf", "+.INF", ".nan", ".NaN"]


@pytest.mark.parametrize("word", [*SWITCHES, *NUMBERS, *FLOATS, "True", "FALSE", "Null", "NULL", "=", "<<"])
def test_what_is_read_in_two_ways_has_to_be_quoted(read: Read, word: str) -> None:
    for content, field in [(f"- {word}", "[0]"), (f"é: {{a: {word}}}", "é.a"), (f"? {word}\n: x", "")]:
        line = said(read, content)
        column = content.index(word) + 1
        assert line.startswith(f"1:{column}: {field}{field and ': '}{word!r} "), line
        assert "quote it" in line or "merge keys are not used here" in line
    assert read(f"- \"{word}\"\n- '{word}'\n- |-\n  {word}\n").data == [word] * 3


def as_yaml_1_2(text: str) -> object:
    """What the core schema of YAML 1.2.2, section 10.3.2, makes of a plain scalar."""
    if re.fullmatch("null|Null|NULL|~|", text):
        return None
    if re.fullmatch("true|True|TRUE|false|False|FALSE", text):
        return text.lower() == "true"
    if re.fullmatch("[-+]?[0-9]+", text):
        return int(text)
    if re.fullmatch("0o[0-7]+|0x[0-9a-fA-F]+", text):
        return int(text, 0)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan") if text[-1] in "fn" else text.lower().lstrip("."))
    return text


@SAME_FOLDER
@given(
    st.from_regex(r"[-+]?[0-9_.:eEoxXb]{1,8}", fullmatch=True)
    | st.from_regex(r"[-+.]?[0-9A-Fa-f_.:]{1,6}([eE][-+]?[0-9]{1,2})?", fullmatch=True)
    | st.from_regex("(?i)[-+]?(0[xob])?[.]?(inf|nan|yes|no|on|off|y|n|true|false|null|~|=|<<)[.]?", fullmatch=True)
)
@example("1e3")
@example("1:30")
@example("0o17")
def test_accepted_scalars_mean_the_same_in_yaml_1_1_and_1_2(read: Read, text: str) -> None:
    document = f"- {text}\n"
    try:
        ours: Any = read(document).data
    except ProblemsError:
        return
    old = yaml.safe_load(document)
    new: Any = [as_yaml_1_2(text)]
    if isinstance(ours[0], dict):
        new = [{as_yaml_1_2(text.removesuffix(":")): None}]
    assert old == new
    assert ours == [Decimal(text)] if isinstance(new[0], float) else ours == new
    assert type(old[0]) is type(new[0])


def test_long_numbers(either: Read) -> None:
    assert "'1111" in said(either, "1" * 5000)
    assert (
        said(either, f"a: {'9' * 19}") == f"1:4: a: '{'9' * 19}' has more than 18 digits: write fewer, or quote it if it is text"
    )
    assert "digits" in said(either, f"a: 0.{'9' * 900_000}")
    assert either(f"a: -{'9' * 18}").data == {"a": -(10**18 - 1)}


# Keys


def test_keys_are_text(either: Read) -> None:
    problems = problems_of(either, "8: a\ntrue: b\n~: c\n1.5: d\non: e\n? [x]\n: f\n? {x: 1}\n: g\n8: h\nok: off\n")
    assert [str(problem) for problem in problems] == [
        "recipe.yaml:1:1: the key '8' is not text in YAML: quote it",
        "recipe.yaml:2:1: the key 'true' is not text in YAML: quote it",
        "recipe.yaml:3:1: the key '~' is not text in YAML: quote it",
        "recipe.yaml:4:1: the key '1.5' is not text in YAML: quote it",
        "recipe.yaml:5:1: 'on' is true or false in YAML 1.1, text in YAML 1.2: quote it",
        "recipe.yaml:6:3: a key can not be a list, a mapping or an alias: write it as text",
        "recipe.yaml:8:3: a key can not be a list, a mapping or an alias: write it as text",
        "recipe.yaml:10:1: the key '8' stands twice, first in line 1: remove one",
        "recipe.yaml:11:5: ok: 'off' is true or false in YAML 1.1, text in YAML 1.2: quote it",
    ]
    assert either("'8': a\n\"\": b\n").data == {"8": "a", "": "b"}
    assert "alias" in said(either, "- &a b\n- {*a : c}")


def test_every_key_that_stands_twice_is_named(either: Read) -> None:
    problems = problems_of(either, "a: 1\nb:\n  - {c: 1, 'c': 2}\n'a': 2\nb: 3\n\"a\": 4\n")
    assert [(p.line, p.column, p.field, p.message) for p in problems] == [
        (3, 12, "b[0]", "the key 'c' stands twice, first in line 3: remove one"),
        (4, 1, "", "the key 'a' stands twice, first in line 1: remove one"),
        (5, 1, "", "the key 'b' stands twice, first in line 2: remove one"),
        (6, 1, "", "the key 'a' stands twice, first in line 1: remove one"),
    ]


def test_what_is_shown_of_the_file_stays_short_and_in_its_line(read: Read) -> None:
    line = said(read, '"a\\nb": {? "' + "x" * 5000 + '"\n : on}')
    assert line.startswith("2:4: 'a\\nb'.'xxxx")
    assert len(line) < 200
    assert len(said(read, "- " + "1" * 5000)) < 200
    assert len(said(read, "*" + "b" * 900)) < 200
    assert len(said(read, "!" + "b" * 900)) < 200


# Aliases


def test_aliases_share_what_they_repeat(either: Read) -> None:
    data = either("a: &x {b: [1]}\nc: *x\nd: [*x, &y z, *y]\n").data
    assert data == {"a": {"b": [1]}, "c": {"b": [1]}, "d": [{"b": [1]}, "z", "z"]}
    assert isinstance(data, dict)
    assert data["a"] is data["c"]
    assert either("&k a: 1\nb: *k\n").data == {"a": 1, "b": "a"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("*a", "1:1: repeats no anchor above, '*a': quote it if it is text"),
        ("x: [*later, &later z]", "1:5: x[0]: repeats no anchor above, '*later': quote it if it is text"),
        ("&a [*a]", "1:5: [0]: this alias stands inside what it repeats: write the value out"),
        ("x: &a {b: {c: *a}}", "1:15: x.b.c: this alias stands inside what it repeats: write the value out"),
        ("- &a 1\n- &a 2", "2:3: [1]: the anchor '&a' is already used above: give it another name"),
        ("x: **bold**", "1:4: & and * begin an anchor or an alias: quote it if it is text"),
    ],
)
def test_aliases_that_can_not_be(either: Read, content: str, line: str) -> None:
    assert said(either, content) == line


def bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


def test_a_bomb_costs_nothing(either: Read) -> None:
    tracemalloc.start()
    begin = time.process_time()
    line = said(either, bomb(30, 10))
    spent, memory = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert line.startswith("6:")
    assert line.endswith("more than 100,000 values, with those that aliases repeat: make the file smaller")
    assert spent < 1
    assert memory < 10_000_000


def test_the_bound_counts_what_aliases_repeat(read: Read) -> None:
    half = MAX_NODES // 2 - 3
    exactly = f"- &a [{'x, ' * half}]\n- *a\n- p\n- q\n- r\n"
    assert read(exactly).data
    assert "100,000 values" in said(read, f"{exactly}- s\n")
    assert "100,000 values" in said(read, "[" + "x, " * MAX_NODES + "]")


def test_depth(either: Read) -> None:
    assert either("[" * MAX_DEPTH + "]" * MAX_DEPTH).data
    line = said(either, "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert line.startswith(f"1:{MAX_DEPTH + 1}: " + "[0]" * MAX_DEPTH)
    assert line.endswith(": is nested more than 40 deep: flatten it")
    assert "deep" in said(either, "- " * (MAX_DEPTH + 1) + "x")


def test_depth_counts_through_aliases(either: Read) -> None:
    def chain(links: int) -> str:
        return "- &a0 [x]\n" + "".join(f"- &a{i} [*a{i - 1}]\n" for i in range(1, links))

    data: Any = either(chain(MAX_DEPTH - 1)).data
    depth = 0
    while isinstance(data, list):
        data, depth = data[-1], depth + 1
    assert depth == MAX_DEPTH
    assert said(either, chain(MAX_DEPTH)).startswith(f"{MAX_DEPTH}:")


# What is no YAML, or none that is used here


@pytest.mark.parametrize("content", ["", "\n\n", "# only\n# comments", "---", "--- # x\n", "null", "&a", "...", "--- \n...\n"])
def test_empty_files(either: Read, content: str) -> None:
    line = said(either, content)
    assert "is empty" in line or content.startswith("...")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a:\n\tb: 1", "2:1: a tab can not stand here: indent with spaces, not tabs"),
        ("a: 1\n\tb: 2", "2:1: a tab can not stand here: indent with spaces, not tabs"),
        ("a: |\n  x\n\ty", "3:1: a tab can not stand here: indent with spaces, not tabs"),
        ("a: 1\n---\nb: 2", "2:1: a second document begins here: put it into a file of its own, or remove this line"),
        ("%YAML 1.2\n---\na", "1:1: directives (%) are not used here: remove the line"),
        ("%TAG !e! x\n---\na", "1:1: directives (%) are not used here: remove the line"),
        ("%\n", "1:1: directives (%) are not used here: quote it if it is text"),
        ("a: !!str b", "1:4: a: tags are not used here: remove '!!str'"),
        ("- !!python/object:os.system x", "1:3: [0]: tags are not used here: remove '!!python/object:os.system'"),
        ("a: !foo [b]", "1:4: a: tags are not used here: remove '!foo'"),
        ("!foo\na: b", "1:1: tags are not used here: remove '!foo'"),
        ("é: !e!foo b", "1:4: tags are not used here: quote it if it is text"),
        ("x: 'it's'", "1:8: does not belong to the list or mapping from line 1: check the indentation and the quotes"),
        ("é: 'open\n", "1:4: this quote is never closed: close it"),
        ("é: [x,\n  z", "2:4: a comma or a closing bracket is missing: the bracket in line 1 is still open"),
        ("a: [", "1:5: a value is missing here, or a bracket above is not closed"),
        ("a: b: c", "1:5: a key can not stand here: quote a text that holds a colon, or indent as in the lines above"),
        ("a: - b", "1:4: a list or mapping can not begin here: put it into the lines below"),
        ("漢: @b", "1:4: '@' can not begin a value: quote it"),
        ("a: %b", "1:4: '%' can not begin a value: quote it"),
        ("a: {b}}", "1:7: does not belong to the list or mapping from line 1: check the indentation and the quotes"),
        ("a: 1\nlost\nb: 2", "2:1: a key has no colon: write it as key: value, or check the indentation"),
        ("a: |x\n b", "1:5: only the lines below | or > are its text: begin there, or quote it"),
        ("a\n...\nb", "3:1: does not belong to what stands above: check the indentation and the quotes"),
    ],
)
def test_what_can_not_be_read(either: Read, content: str, line: str) -> None:
    assert said(either, content) == line


def test_escapes(either: Read) -> None:
    assert either(r'"\t\u00e9\U0001f600\0\x41"').data == "\té😀\0A"
    for escape in (r"\z", r"\x4", r"\U00110000", r"\UFFFFFFFF", r"\ud800"):
        assert "escape" in said(either, f'a: "{escape}"')


def test_problems_before_a_fault_of_syntax_are_kept(either: Read) -> None:
    assert [problem.line for problem in problems_of(either, "a: on\na: 1\nb: 'x\n")] == [1, 2, 3]


# Files


def test_text_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_bytes("é\ta\r\n\r\n😀 𠀀 zwj\u200d\n".encode())
    assert read_text(tmp_path / "guide.md", "guide.md") == "é\ta\n\n😀 𠀀 zwj\u200d\n"


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"\xef\xbb\xbfa: 1", "1:1: begins with a byte order mark: save it as UTF-8 without byte order mark"),
        ("a: 1".encode("utf-16"), "1:1: is UTF-16: save it as UTF-8 without byte order mark"),
        (b"\xfe\xff\0a", "1:1: is UTF-16: save it as UTF-8 without byte order mark"),
        ("é\r\nxé".encode() + b"\xff", "2:3: is not text in UTF-8: byte 0xFF can not stand here; save it as UTF-8"),
        (b"\xed\xa0\x80", "1:1: is not text in UTF-8: byte 0xED can not stand here; save it as UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0", "1:1: is not text in UTF-8: byte 0x89 can not stand here; save it as UTF-8"),
        (b"\x7fELF\2\1\1\0\xff", "1:1: is not text: U+007F (control character) can not stand here; remove it"),
        ("é\n\té\0".encode(), "2:3: is not text: U+0000 (control character) can not stand here; remove it"),
        (b"a\rb", "1:2: is not text: U+000D (control character) can not stand here; remove it"),
        ("a\u0085".encode(), "1:2: is not text: U+0085 (control character) can not stand here; remove it"),
        ("a\u2028".encode(), "1:2: is not text: U+2028 (line separator) can not stand here; remove it"),
        ("a\u202e".encode(), "1:2: is not text: U+202E (right-to-left override) can not stand here; remove it"),
        ("a\ufeff".encode(), "1:2: is not text: U+FEFF (zero width no-break space) can not stand here; remove it"),
        ("a\ufdd0".encode(), "1:2: is not text: U+FDD0 (no character) can not stand here; remove it"),
        ("é\U000e0100".encode(), "1:2: is not text: U+E0100 (variation selector-17) can not stand here; remove it"),
        ("😀\U0001ffff".encode(), "1:2: is not text: U+1FFFF (no character) can not stand here; remove it"),
    ],
)
def test_what_is_no_text(read: Read, raw: bytes, line: str) -> None:
    assert said(read, raw) == line


@pytest.mark.parametrize("code", [*range(0x9), 0xB, 0xC, *range(0xE, 0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F),
                                  *range(0x2066, 0x206A), 0xFFFE, 0xFFFF, 0x2FFFE, 0x10FFFF])  # fmt: skip
def test_characters_that_can_not_be_seen(read: Read, code: int) -> None:
    assert f"U+{code:04X} " in said(read, f"a{chr(code)}b")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to-fifo").symlink_to("fifo")
    (tmp_path / "file").write_text("a: 1")
    (tmp_path / "link").symlink_to("file")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(50_000_000)
    expected = {
        "loop": "is a symbolic link that leads back to itself",
        "dangling": "can not be read: no such file or directory",
        "missing": "can not be read: no such file or directory",
        "fifo": "is not a regular file",
        "to-fifo": "is not a regular file",
        ".": "is not a regular file",
        "/dev/zero": "is not a regular file",
        "large": "is 50,000,000 bytes large, and at most 1,000,000 are read: split it",
        "file/x": "can not be read: not a directory",
        "x" * 300: "can not be read: file name too long",
        "a\0b": "can not be read: no file can have this name",
        "\ud800": "can not be read: no file can have this name",
    }
    for name, message in expected.items():
        for reader in (read_text, read_yaml):
            with pytest.raises(ProblemsError) as caught:
                reader(tmp_path / name, "recipe.yaml")
            assert caught.value.problems == [Problem("recipe.yaml", 1, 1, "", message)]
    assert read_yaml(tmp_path / "link", "x").data == {"a": 1}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a")
    (tmp_path / "file").chmod(0)
    with pytest.raises(ProblemsError, match="can not be read: permission denied"):
        read_text(tmp_path / "file", "file")


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("a" * (MAX_BYTES + 1))
    small = os.stat(__file__)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda _: small)
        with pytest.raises(ProblemsError, match="is too large"):
            read_text(tmp_path / "file", "file")
    (tmp_path / "file").write_text("a" * MAX_BYTES)
    assert len(read_text(tmp_path / "file", "file")) == MAX_BYTES


NASTY: dict[str, bytes] = {
    "deep lists": b"[" * 100_000,
    "deep mappings": b"{" * 100_000,
    "deep both": b"[{a: " * 100_000,
    "deep keys": b"? " * 50_000,
    "deep flow keys": b"{? " * 50_000,
    "deep block": b"- " * 50_000,
    "deep indentation": b"".join(b" " * i + b"a:\n" for i in range(1000)),
    "closing": b"]" * 100_000,
    "long plain": b"x" * 999_999,
    "long digits": b"9" * 999_999,
    "long underscores": b"0" + b"_" * 900_000 + b"x",
    "sexagesimal": b"1" + b":1" * 400_000 + b"x",
    "long quote": b"'" * 999_999,
    "many anchors": b"&a " * 300_000,
    "many lines": b"\n" * 999_999,
    "many commas": b"," * 999_999,
    "many colons": b": " * 400_000,
    "many documents": b"---\n" * 200_000,
    "many directives": b"%TAG !a! b\n" * 80_000,
    "many comments": b"#\n" * 400_000,
    "many keys twice": b"a: 1\n" * 40_000,
    "many items": b"- on\n" * 90_000,
    "bomb": bomb(100, 50).encode(),
    "nuls": b"\0" * 900_000,
    "noise": bytes(range(256)) * 3000,
}
SHORT = [
    *(
        "%",
        "? ",
        "*a",
        "&a *a",
        "&a [*a]",
        "'",
        '"',
        "'a\n",
        '"\\',
        "\x85",
        "!",
        "! a",
        "!<",
        "!!",
        "&",
        "*",
        "@",
        "`",
        "|",
    ),
    *("{a: b", "[a, b", "a: b\n c", "---\n...\n...", "&a", "- &a\n- *a", "a: !", "\\", "%YAML", "%YAML 9.9\n---\na"),
    *("? &a [b]\n: *a", "{*a: b}", "[? a]", "[? ]", "{? }", "? ? a", ": :", "- - -", "-", "--- a\n--- b", "\u2028"),
    *("- -\t- a", "a: >9", "a: |0\n", ">", "? |\n a\n: b", "- ? a\n  : b", "&a : b", "{&a : b}", "[a: b, : c]"),
]


def tried(read: Read, content: str | bytes) -> Source | None:
    """What a file holds, or nothing after its problems were looked at; no other exception gets out."""
    try:
        return read(content)
    except ProblemsError as error:
        problems = error.problems
    assert problems
    for problem in {*problems[:100], *problems[-100:]}:
        check_form(problem, content)
    return None


@pytest.mark.parametrize("name", NASTY)
def test_nasty_files(read: Read, name: str) -> None:
    begin = time.process_time()
    tried(read, NASTY[name])
    assert time.process_time() - begin < 10  # they take tenths of a second; what is quadratic would take minutes


@pytest.mark.parametrize("content", SHORT)
def test_nasty_lines(either: Read, content: str) -> None:
    if found := tried(either, content):
        for loc in locs(found.data):
            check_form(found.problem(loc, "is it"), content)


@SAME_FOLDER
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_a_file_holds(read: Read, raw: bytes) -> None:
    tried(read, raw)


PIECES = [
    *(
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "\n",
        "\n  ",
        "\t",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'",
        '"',
        "\\",
        "&a ",
        "*a",
        "!!str ",
        "!x ",
    ),
    *("%", "---\n", "...\n", "|\n", ">-\n", "#", "<<: ", "on", "8", "1.5", "é", "😀", "@", "\\u00e9", "\r\n"),
]


@settings(SAME_FOLDER, max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.sampled_from(LOADERS))
def test_whatever_is_like_yaml(read: Read, text: str, loader: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_LOADER", loader)
        if found := tried(read, text):
            for loc in locs(found.data):
                check_form(found.problem(loc, "is it"), text)


# Positions


class Quoting(yaml.SafeDumper):
    """Dumps every text in double quotes."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))
Quoting.add_representer(Decimal, lambda dumper, number: dumper.represent_scalar("tag:yaml.org,2002:float", f"{number:f}"))

SEEN = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["C", "Z"], exclude_characters='\\"'), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(10**18) + 1, 10**18 - 1) | st.decimals(-100, 100, places=3)


def documents(words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    def holders(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inside, max_size=4) | st.dictionaries(words, inside, max_size=4)

    return holders(st.recursive(SCALARS | words, holders, max_leaves=20))


def locs(data: Any, loc: Loc = ()) -> Iterator[Loc]:
    yield loc
    for step, item in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from locs(item, (*loc, step))


def rest_at(text: str, position: tuple[int, int]) -> str:
    line, column = position
    return text.split("\n")[line - 1][column - 1 :]


@SAME_FOLDER
@given(documents(st.text(max_size=20)), st.booleans())
def test_data_survives_a_dump(read: Read, data: Any, flow: bool) -> None:
    assert read(yaml.dump(data, Dumper=Quoting, default_flow_style=flow)).data == data


@SAME_FOLDER
@given(documents(SEEN), st.booleans())
def test_positions_agree_with_the_text(read: Read, data: Any, flow: bool) -> None:
    found = read(yaml.dump(data, Dumper=Quoting, default_flow_style=flow, allow_unicode=True, width=10**6, sort_keys=False))
    assert found.data == data
    for loc in locs(data):
        value = data
        for step in loc:
            value = value[step]
        at_value = rest_at(found.text, found.value_position(loc))
        if isinstance(value, str):
            assert at_value.startswith(f'"{value}"')
        elif value is None or isinstance(value, bool):
            assert at_value.startswith(str(yaml.safe_dump(value)).split("\n", 1)[0])
        elif isinstance(value, int | Decimal):
            assert at_value.startswith(str(value) if isinstance(value, int) else f"{value:f}")
        if loc and isinstance(loc[-1], str):
            assert rest_at(found.text, found.locate(loc)).startswith(f'"{loc[-1]}"')
        else:
            assert found.locate(loc) == found.value_position(loc)


STEPS = st.text(max_size=3) | st.integers() | st.sampled_from(["a", "b", 0, 1])


@SAME_FOLDER
@given(documents(SEEN), st.lists(STEPS, max_size=5))
def test_any_loc_has_a_place(read: Read, data: Any, steps: list[str | int]) -> None:
    found = read(yaml.dump(data, Dumper=Quoting, allow_unicode=True))
    known = set(locs(data))
    nearest = next(loc for end in range(len(steps), -1, -1) if (loc := tuple(steps[:end])) in known)
    assert found.locate(tuple(steps)) == found.locate(nearest)
    assert found.value_position(tuple(steps)) == found.value_position(nearest)
    problem = found.problem(tuple(steps), "is odd")
    assert (problem.line, problem.column) == found.locate(nearest)
    assert str(problem).isprintable()


def test_places(either: Read) -> None:
    text = """\
    # comment

    launch:
      - env: É
        when: {hardware: &x [a, "é"]}
      - 漢字: *x
        empty:
    "é😀": {ü: [漢, b], c: |
        text
      }
    """.replace("\n    ", "\n").lstrip()
    found = either(text.replace("c: |\n    text\n  }", "c: d}"))
    expected: dict[Loc, tuple[tuple[int, int], tuple[int, int]]] = {
        (): ((3, 1), (3, 1)),
        ("launch",): ((3, 1), (4, 3)),
        ("launch", 0): ((4, 5), (4, 5)),
        ("launch", 0, "when"): ((5, 5), (5, 11)),
        ("launch", 0, "when", "hardware"): ((5, 12), (5, 22)),
        ("launch", 0, "when", "hardware", 1): ((5, 29), (5, 29)),
        ("launch", 1, "漢字"): ((6, 5), (6, 9)),
        ("launch", 1, "漢字", 1): ((6, 9), (6, 9)),
        ("launch", 1, "empty"): ((7, 5), (7, 11)),
        ("é😀", "ü"): ((8, 8), (8, 11)),
        ("é😀", "ü", 1): ((8, 15), (8, 15)),
        ("é😀", "c"): ((8, 19), (8, 22)),
        ("launch", 7, "x"): ((3, 1), (4, 3)),
        ("launch", -1): ((3, 1), (4, 3)),
        ("launch", "x", 0): ((3, 1), (4, 3)),
        ("nothing",): ((3, 1), (3, 1)),
        (0,): ((3, 1), (3, 1)),
    }
    assert {loc: (found.locate(loc), found.value_position(loc)) for loc in expected} == expected


def test_problems_of_a_source(read: Read) -> None:
    found = read("launch:\n- {}\n- when: {hardware: x}\n")
    assert str(found.problem(("launch", 1, "when", "hardware"), "is odd")) == (
        "recipe.yaml:3:10: launch[1].when.hardware: is odd"
    )
    assert str(found.problem((), "is odd")) == "recipe.yaml:1:1: is odd"
    assert found.name == "recipe.yaml"
    assert found.path.name == "recipe.yaml"
    assert found.text.startswith("launch:")


def test_positions_cost_nothing_until_they_are_asked_for(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []

    def counted(text: str, loader: Any = source._LOADER) -> Any:
        passes.append(text)
        return loader(text)

    monkeypatch.setattr(source, "_LOADER", counted)
    found = read("a: 1")
    assert len(passes) == 1
    found.locate(("a",))
    found.locate(("b",))
    assert passes == ["a: 1", "a: 1"]
