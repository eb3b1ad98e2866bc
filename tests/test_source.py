"""The reader: strict text, strict YAML, positions."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from schema import source
from schema.problems import Problem, ProblemsError
from schema.source import MAX_BYTES, MAX_DEPTH, Source, read_text, read_yaml

Read = Callable[[str | bytes], Source]


@pytest.fixture(params=["libyaml", "pure"])
def read(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Write and read a file, with PyYAML's C parser and with its own."""
    if request.param == "pure":
        monkeypatch.setattr(source, "_LOADER", yaml.SafeLoader)

    def write_and_read(content: str | bytes) -> Source:
        file = tmp_path / "recipe.yaml"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_yaml(file, "recipe.yaml")

    return write_and_read


def wrong(read: Read, content: str | bytes) -> list[Problem]:
    with pytest.raises(ProblemsError) as caught:
        read(content)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: text", {"a": "text"}),
        ("a: 12", {"a": 12}),
        ("a: -3", {"a": -3}),
        ("a: -100000000000000000", {"a": -(10**17)}),
        ("a: 1.50", {"a": Decimal("1.50")}),
        ("a: true\nb: false", {"a": True, "b": False}),
        ("a: null\nb: ~\nc:", {"a": None, "b": None, "c": None}),
        ("a: 2026-08-21", {"a": "2026-08-21"}),
        ("a: 0.30.0", {"a": "0.30.0"}),
        ("a: 058f107", {"a": "058f107"}),
        ('a: "0193"', {"a": "0193"}),
        ("a: 'on'", {"a": "on"}),
        ("a: |\n  12\n", {"a": "12\n"}),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
        ("a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
        ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
        ("a: 日本 👩‍👧", {"a": "日本 👩‍👧"}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ],
)
def test_what_is_read(read: Read, text: str, data: object) -> None:
    assert read(text).data == data


def test_a_decimal_keeps_its_digits(read: Read) -> None:
    assert str(read("a: 0.950").data["a"]) == "0.950"  # type: ignore[index]


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "Yes",
        "NO",
        "on",
        "Off",
        "y",
        "N",
        "True",
        "FALSE",
        "Null",
        "0193",
        "00",
        "-01",
        "0o17",
        "0x1F",
        "0b1",
        "1_000",
        "1:30",
        "190:20:30",
        "+12",
        "+1.5",
        "1.",
        ".5",
        "1e3",
        "1.5E+3",
        ".inf",
        "-.INF",
        ".NaN",
        "=",
        "<<",
    ],
)
def test_what_is_read_in_two_ways_has_to_be_quoted(read: Read, value: str) -> None:
    [problem] = wrong(read, f"ok: fine\na: {value}\n")
    assert (problem.line, problem.column) == (2, 4) and "quotes" in problem.message
    assert read(f"a: '{value}'").data == {"a": value}


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", (1, 1), "is empty"),
        ("# nothing\n", (1, 1), "is empty"),
        ("---\n", (1, 1), "is empty"),
        ("a: 1\nb: 2\na: 3", (3, 1), "the key 'a' stands twice; first in line 1"),
        ("{a: 1, a: 2}", (1, 8), "stands twice"),
        ("a:\n\t- b", (2, 1), "indent with spaces"),
        ("\ta: 1", (1, 1), "indent with spaces"),
        ("a: !!str x", (1, 4), "tags such as"),
        ("a: !!python/object/apply:os.system [x]", (1, 4), "tags such as"),
        ("a: !mine x", (1, 4), "tags such as"),
        ("a: &x {b: 1}\nc:\n  <<: *x", (3, 3), "merge keys"),
        ("on: 1", (1, 1), "quotes"),
        ("8: 1", (1, 1), "the key '8' must be text"),
        ("null: 1", (1, 1), "must be text"),
        ("[a]: 1", (1, 1), "can not be a key"),
        ("{a: b}: 1", (1, 1), "can not be a key"),
        ("a: *b", (1, 4), "no anchor"),
        ("&a [*a]", (1, 5), "stands inside what it refers to"),
        ("a: 1\n---\nb: 2", (2, 1), "a second document"),
        ("%YAML 1.2\n---\na: 1", (1, 1), "directives"),
        ("a: 'open", (1, 4), "is not YAML"),
        ("a: {b: c", (1, 4), "is not YAML"),
        ("a: 1234567890123456789", (1, 4), "19 digits"),
        ("a: \u202eb", (1, 4), "U+202E"),
    ],
)
def test_what_is_refused(read: Read, text: str, place: tuple[int, int], said: str) -> None:
    [problem] = wrong(read, text)
    assert said in problem.message and (problem.line, problem.column) == place, problem
    assert "\n" not in str(problem)


def test_every_fault_is_named_in_one_run(read: Read) -> None:
    found = wrong(read, "a: on\nb: 0193\na: !x y\nc: 1_0\n")
    assert [problem.line for problem in found] == [1, 2, 3, 3, 3, 4]


@pytest.mark.parametrize(
    ("content", "place", "said"),
    [
        (b"a: 1\nb: \xff", (2, 4), "is not UTF-8 text: byte 0xff"),
        (b"\xef\xbb\xbfa: 1", (1, 1), "byte order mark"),
        ("a: 1".encode("utf-16"), (1, 1), "is UTF-16"),
        (b"a: \x00", (1, 4), "U+0000"),
        (b"\x7fELF\x02\x01\x00\x00", (1, 1), "U+007F"),
        (bytes(range(256)), (2, 118), "is not UTF-8 text"),
    ],
)
def test_what_is_no_text(read: Read, content: bytes, place: tuple[int, int], said: str) -> None:
    [problem] = wrong(read, content)
    assert said in problem.message and (problem.line, problem.column) == place, problem


def refused(path: Path) -> str:
    with pytest.raises(ProblemsError) as caught:
        read_text(path, "name")
    [problem] = caught.value.problems
    return problem.message


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "missing")
    assert refused(tmp_path) == "is not a regular file"
    os.mkfifo(tmp_path / "fifo")
    assert refused(tmp_path / "fifo") == "is not a regular file"
    assert refused(Path("/dev/zero")) == "is not a regular file"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "leads back to itself" in refused(tmp_path / "loop")
    assert "can not be read" in refused(Path("a\0b"))
    with (tmp_path / "large").open("wb") as file:
        file.truncate(50_000_000)
    assert "50,000,000 bytes" in refused(tmp_path / "large")


def test_a_file_as_large_as_allowed_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a" * MAX_BYTES)
    assert len(read_text(tmp_path / "file", "name")) == MAX_BYTES


def test_bombs_cost_nothing(read: Read) -> None:
    """Nine lists of nine aliases each would be a billion values."""
    names = "abcdefghij"
    lines = ["a: &a [" + ", ".join("x" * 9) + "]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in itertools.pairwise(names)]
    [problem] = wrong(read, "\n".join(lines))
    assert "with aliases expanded there are more than 100,000 values" in problem.message


@pytest.mark.parametrize("text", ["[" * 100_000, "{" * 5_000, "- " * 50_000, "a: &b " * 200, "? " * 3_000])
def test_depth_ends_early(read: Read, text: str) -> None:
    assert wrong(read, text)


def test_depth_counts_through_aliases(read: Read) -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60))]
    [problem] = wrong(read, "\n".join(lines))
    assert f"nested more than {MAX_DEPTH} deep" in problem.message
    assert MAX_DEPTH - 3 < problem.line < MAX_DEPTH + 3


TEXT = """\
# a comment
naïve:   # with a comment
  - k: "é" # and another
    l: [1, {m: 2}]
  - second
other: &x
  deep: 3
again: *x
"""


@pytest.mark.parametrize(
    ("loc", "key", "value"),
    [
        ((), (2, 1), (2, 1)),
        (("naïve",), (2, 1), (3, 3)),
        (("naïve", 0), (3, 5), (3, 5)),
        (("naïve", 0, "k"), (3, 5), (3, 8)),
        (("naïve", 0, "l", 1), (4, 12), (4, 12)),
        (("naïve", 0, "l", 1, "m"), (4, 13), (4, 16)),
        (("naïve", 1), (5, 5), (5, 5)),
        (("other", "deep"), (7, 3), (7, 9)),
        (("again",), (8, 1), (8, 8)),
        (("again", "deep"), (8, 1), (8, 8)),
        (("naïve", 9, "k"), (2, 1), (3, 3)),
        (("nothing", "at", 3), (2, 1), (2, 1)),
    ],
)
def test_positions(read: Read, loc: tuple[Any, ...], key: tuple[int, int], value: tuple[int, int]) -> None:
    it = read(TEXT)
    assert (it.locate(loc), it.value_position(loc)) == (key, value)


def test_a_problem_names_the_field(read: Read) -> None:
    it = read("launch:\n- a: 1\n- b:\n    c: 2\n")
    assert str(it.problem(("launch", 1, "b", "c"), "is wrong")) == "recipe.yaml:4:5: launch[1].b.c: is wrong"
    assert "\n" not in str(it.problem(("a\nb",), "is wrong"))


VALUES = st.recursive(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Co", "Cn", "Zl", "Zp"]), max_size=12)
    | st.integers(-(10**9), 10**9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcXYZé _-", min_size=1, max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(data: object, loc: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, object]] = []
    if isinstance(data, dict):
        inner = list(data.items())
    elif isinstance(data, list):
        inner = list(enumerate(data))
    return [loc, *(found for step, value in inner for found in places(value, (*loc, step)))]


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=6), VALUES, min_size=1, max_size=4), st.booleans())
def test_data_and_positions_agree_with_the_text(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any], flow: bool
) -> None:
    file = tmp_path_factory.mktemp("yaml") / "recipe.yaml"
    text = yaml.safe_dump(data, allow_unicode=True, default_style='"', default_flow_style=flow, width=10**6)
    text = text.replace("!!int ", "")
    file.write_text(text, "utf-8")
    it = read_yaml(file, "recipe.yaml")
    lines = text.split("\n")
    for loc in places(it.data):
        line, column = it.locate(loc)
        rest = lines[line - 1][column - 1 :]
        if loc and isinstance(loc[-1], str):
            assert rest.startswith((f'"{loc[-1]}"', "? ")), (loc, rest)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(str.encode)
    | st.text("[]{}:,-&*!?|>'\"%@`# \n\tab01", max_size=60).map(str.encode)
)
def test_any_bytes_give_data_or_problems(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "recipe.yaml"
    file.write_bytes(content)
    try:
        it = read_yaml(file, "recipe.yaml")
    except ProblemsError as error:
        found = error.problems
    else:
        found = [it.problem(("x", 0, "y"), "is wrong")]
    assert found
    assert all(problem.line >= 1 and problem.column >= 1 and "\n" not in str(problem) for problem in found)
