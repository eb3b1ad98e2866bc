"""What is wrong with a recipe is said once, at its place, with what would cure it; and a good one passes."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.block import selections
from schema.loading import LoadedRecipe, load, load_all
from schema.problems import ProblemsError
from schema.source import read_yaml
from support import GAUDI, GUIDE, MINIMAL, RICH, ROOT, SGLANG, Repository, as_yaml, changed
from wrong_recipes import ALL, GUIDES, Wrong
from wrong_recipes import SGLANG as INLINE


@pytest.mark.parametrize("text", [MINIMAL, RICH, INLINE])
def test_good_recipes_pass(repo: Repository, text: str) -> None:
    assert repo.problems(text, GUIDE if text == RICH else None) == []
    assert len(selections(repo.load(text).program)) == (6 if text == RICH else 1)


@pytest.mark.parametrize("wrong", ALL, ids=lambda wrong: wrong.name)
def test_one_fault_is_one_problem(repo: Repository, wrong: Wrong) -> None:
    for path, content in wrong.files.items():
        repo.write(path, content)
    text = wrong.text if wrong.files and wrong.old == wrong.new else changed(wrong.text, wrong.old, wrong.new)
    problems = repo.problems(text)
    assert [problem.field for problem in problems] == [wrong.place], "\n".join(map(str, problems))
    assert wrong.message in problems[0].message
    assert problems[0].path == "recipes/acme/Small/recipe.yaml"
    assert "\n" not in str(problems[0])


def test_the_wrong_recipes_are_many() -> None:
    assert len(ALL) >= 70
    assert len({wrong.name for wrong in ALL}) == len(ALL)


@pytest.mark.parametrize(("name", "old", "new", "line", "message"), GUIDES, ids=[guide[0] for guide in GUIDES])
def test_one_fault_of_a_guide(repo: Repository, name: str, old: str, new: str, line: int, message: str) -> None:
    problems = repo.problems(RICH, changed(GUIDE, old, new))
    assert [(problem.path, problem.line) for problem in problems] == [("recipes/acme/Small/guide.md", line)], problems
    assert message in problems[0].message


def test_a_problem_stands_at_its_line_and_column(repo: Repository) -> None:
    text = changed(RICH, 'when: {cache: "on"}}', "when: {cash: a}}")
    [problem] = repo.problems(text)
    line = text.splitlines()[problem.line - 1]
    assert line[problem.column - 1 :].startswith("cash: a")
    place = f"recipes/acme/Small/recipe.yaml:{problem.line}:{problem.column}"
    assert str(problem).startswith(f"{place}: launch[1].when.cash: no axis")


def test_problems_of_all_files_come_in_one_run(repo: Repository) -> None:
    repo.recipe(changed(MINIMAL, "kind: dense", "kind: sparse"), identity="acme/Other")
    repo.recipe(changed(changed(RICH, "value: /models/small", "value: 1"), "title: Prefix cache", "title: 2"), GUIDE)
    repo.recipe("a: [", identity="acme/Torn")
    found = [(problem.path.split("/")[2], problem.field) for problem in repo.all_problems()]
    assert found == [("Other", "model.kind"), ("Small", "axes[2].title"), ("Small", "launch[0].value"), ("Torn", "")]


def test_faults_of_recipe_and_guide_come_together(repo: Repository) -> None:
    text = changed(RICH, "related: [acme/Other]", "related: [acme/None]")
    problems = repo.problems(text, changed(GUIDE, "{{ checks }}", ""))
    assert [problem.path.rpartition("/")[2] for problem in problems] == ["guide.md", "recipe.yaml"]


def test_a_table_that_can_not_be_computed_is_one_problem(repo: Repository) -> None:
    more = "values: [10, 20]}\n    derived: [{name: x, title: X, compute: same, of: [speed.gain]}]"
    text = changed(
        RICH, "rows: {name: task, title: Task, values: [Reading, Writing]}", "rows: {name: s, title: S, values: [1, 2]}"
    )
    text = changed(changed(text, "values: [0.5, 0.25]}", more), "values: [5, null]", "values: [0, null]")
    [problem] = repo.problems(text, changed(GUIDE, "{{ checks }}", "{{ checks }}\n{{ performance.words.x[1] }}"))
    assert (problem.field, problem.message) == ("performance[0]", "column gain, row 1: divides by zero")


def test_recipes_come_in_their_order(repo: Repository) -> None:
    repo.recipe(changed(MINIMAL, "engine:", "order: 2\nengine:"), identity="zeta/First")
    repo.recipe(changed(MINIMAL, "engine:", "order: 3\nengine:"), identity="acme/second")
    assert [loaded.identity for loaded in load_all(repo.root)] == ["zeta/First", "acme/second", "acme/Other"]


def test_the_cookbook_s_own_recipes_pass() -> None:
    assert [loaded.identity for loaded in load_all()] == [GAUDI, SGLANG]


# --- files and folders -----------------------------------------------------------------------------------------------

LINK = ('url: "https://example.org/acme/Small"', "path: docs/{}")


def test_a_path_that_exists_passes(repo: Repository) -> None:
    repo.write("docs/page.md", "")
    assert repo.problems(changed(RICH, LINK[0], LINK[1].format("page.md"))) == []


def test_a_link_out_of_the_repository(repo: Repository) -> None:
    repo.write("docs/page.md", "")
    (repo.root / "docs/out").symlink_to(repo.root.parent)
    (repo.root / "docs/in").symlink_to("page.md")
    [problem] = repo.problems(changed(RICH, LINK[0], LINK[1].format("out/x")))
    assert (problem.field, problem.message) == ("links[0].path", "docs/out/x leads out of this repository")
    assert repo.problems(changed(RICH, LINK[0], LINK[1].format("in"))) == []


def test_a_link_that_leads_to_itself(repo: Repository) -> None:
    repo.write("docs/page.md", "")
    (repo.root / "docs/round").symlink_to("round")
    [problem] = repo.problems(changed(RICH, LINK[0], LINK[1].format("round")))
    assert problem.field == "links[0].path"


def test_a_guide_out_of_the_repository(repo: Repository) -> None:
    file = repo.recipe()
    outside = repo.root.parent / "guide.md"
    outside.write_text("## Of somebody else\n", encoding="utf-8")
    (file.parent / "guide.md").symlink_to(outside)
    [problem] = repo.all_problems()
    assert str(problem) == "recipes/acme/Small/guide.md:1:1: is a link that leads out of this repository"


def test_without_a_guide_the_page_has_every_part(repo: Repository) -> None:
    guide = repo.load(RICH).guide
    for part in ("configuration", "checks", "measurements", "performance.speed", "performance.words", "known_issues", "avoid"):
        assert f"\n{{{{ {part} }}}}\n" in guide
    assert guide.rstrip().endswith("## Evidence\n\n{{ evidence }}")
    assert "checks" not in repo.load(MINIMAL).guide


@pytest.mark.parametrize(
    "guide",
    [
        "`[x](y)`\n",
        "```python\n# a comment\nx[0](y)\n```\n",
        "~~~\n```\n~~~\n",
        "Braces: \\{{ left alone and \\{{ alone }}.\n",
        "[x](https://example.org) [y](#checks)\n",
        "    # indented, so code\n",
        "#hash\n",
    ],
)
def test_what_a_guide_may_say(repo: Repository, guide: str) -> None:
    assert repo.problems(MINIMAL, guide) == []


def test_what_would_never_be_read_is_named(repo: Repository) -> None:
    repo.recipe()
    for path in ("recipes/acme/recipe.yaml", "recipes/acme/Small/old/recipe.yaml", "recipes/acme/Other/recipe.yml"):
        repo.write(path, MINIMAL)
    assert [str(problem) for problem in sorted(repo.all_problems())] == [
        f"{path}:1:1: is not read here: a recipe is recipes/OWNER/NAME/recipe.yaml"
        for path in ("recipes/acme/Other/recipe.yml", "recipes/acme/Small/old/recipe.yaml", "recipes/acme/recipe.yaml")
    ]


def test_ids_that_differ_in_case_alone(repo: Repository) -> None:
    repo.recipe()
    repo.recipe(identity="ACME/small")
    [problem] = repo.all_problems()
    assert str(problem) == "recipes/acme/Small/recipe.yaml:1:1: ACME/small has this id but for its case: give it another"


def test_a_dangling_guide(repo: Repository) -> None:
    file = repo.recipe(RICH)
    (file.parent / "guide.md").symlink_to("none.md")
    [problem] = repo.problems(RICH)
    assert problem.path == "recipes/acme/Small/guide.md"
    assert "can not be read" in problem.message


def test_a_broken_profile_is_said_of_the_profile(repo: Repository) -> None:
    repo.write("fixes/profiles/v1.json", '{"name": "v1",\n "fixes": [}')
    [problem] = repo.problems(changed(RICH, "fixes/profiles/v1.json, ", ""))
    assert (problem.path, problem.line) == ("fixes/profiles/v1.json", 2)
    repo.write("fixes/profiles/v1.json", '{"name": "v1", "fixes": "first-fix"}')
    [problem] = repo.problems(changed(RICH, "fixes/profiles/v1.json, ", ""))
    assert (problem.path, problem.field) == ("fixes/profiles/v1.json", "fixes")


def test_an_image_that_the_profile_is_not_for(repo: Repository) -> None:
    repo.with_fixes()
    folder = ROOT / "recipes" / GAUDI
    text = (folder / "recipe.yaml").read_text("utf-8").replace("related: [moonshotai/Kimi-K2.7-Code]\n", "")
    guide = (folder / "guide.md").read_text("utf-8")
    assert repo.problems(text, guide, GAUDI) == []
    [problem] = repo.problems(changed(text, 'commit: "058f107"', 'commit: "b059f9c"'), guide, GAUDI)
    assert problem.field.endswith("components[0].commit")
    assert problem.message == "fix profile v0.30.0 is for vllm-gaudi at 058f107, not b059f9c"


def test_a_fix_of_the_profile_passes(repo: Repository) -> None:
    repo.write("fixes/profiles/v1.json", '{"name": "v1", "fixes": ["first-fix"]}')
    assert repo.problems(changed(RICH, "fixes/profiles/v1.json, ", "")) == []


@pytest.mark.parametrize("identity", ["acme/-x", "acme/a b", ".hidden/x", "acme/a$(b)", "ac'me/x"])
def test_a_folder_that_is_no_id(repo: Repository, identity: str) -> None:
    [problem] = repo.problems(MINIMAL, identity=identity)
    assert "can not be part of an id owner/name" in problem.message


def test_a_recipe_is_named_by_its_folder_however_it_is_reached(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    file = repo.recipe()
    monkeypatch.chdir(file.parent)
    for path in ("recipe.yaml", "./recipe.yaml", "../Small/recipe.yaml", "../Other/../Small/recipe.yaml"):
        assert load(file.parent.joinpath(path), repo.root).identity == "acme/Small"
        assert load(type(file)(path), repo.root).identity == "acme/Small"


# --- what is right ---------------------------------------------------------------------------------------------------

RIGHT = {
    "flag repeated on purpose": (
        '{arg: --port, value: "8000"}',
        '{arg: --a, value: "1", repeat: true}\n  - {arg: --a, value: "2", repeat: true}',
    ),
    "value with a dash": ('{arg: --port, value: "8000"}', '{arg: --seed, value: "-1", equals: true}'),
    "several values": ('{arg: --port, value: "8000"}', "{arg: --a, values: [x, y z]}"),
    "empty value": ('{arg: --port, value: "8000"}', '{arg: --a, value: ""}'),
    "variable out of a variable": ('{env: CACHE, value: "1",', "{env: CACHE, value: {join: [{var: DIR}, /x]},"),
    "condition on several options": ("when: {hardware: four}", "when: {hardware: [four, two]}"),
    "flag of another tool in a note": ("`--max-model-len`", "`--frobnicate`"),
    "serve command of each choice": (
        "- serve: [vllm, serve, {var: DIR}]",
        '- {serve: [vllm, serve, a], when: {cache: "on"}}\n  - {serve: [vllm, serve, b], when: {cache: "off"}}',
    ),
    "cards of both nodes": ("{name: four, hardware: gaudi2, cards: 4}", "{name: four, hardware: gaudi2, cards: 4, nodes: 2}"),
    "as many ranks as cards": ("hardware: gaudi2, cards: 2}", "hardware: gaudi2, cards: 3}"),
    "day of the calendar": ("status: reported", "status: reported\n    measured_on: 2024-02-29"),
    "month": ("status: reported", "status: reported\n    measured_on: 2024-02"),
    "value that looks like a reference": ("value: hermes", 'value: "{{ a }}"'),
}


@pytest.mark.parametrize(("old", "new"), RIGHT.values(), ids=RIGHT)
def test_what_is_right_passes(repo: Repository, old: str, new: str) -> None:
    assert repo.problems(changed(RICH, old, new)) == []


# --- whatever the data -----------------------------------------------------------------------------------------------

DATA = [read_yaml(ROOT / f"recipes/{name}/recipe.yaml", name).data for name in (GAUDI, SGLANG)]
GUIDE_TEXTS = [(ROOT / f"recipes/{name}/guide.md").read_text(encoding="utf-8") for name in (GAUDI, SGLANG)]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**17), 10**17),
    st.sampled_from([Decimal("1." + "3" * 60), Decimal("0." + "0" * 400 + "1"), Decimal("9" * 40 + ".5"), Decimal("-0.0")]),
    st.text(max_size=8),
    st.sampled_from(["", "on", "kernels", "gaudi2", "MXFP4", "hardware", "{{ performance.decode.speedup }}", "{{", "-1"]),
    st.sampled_from(["../..", "/", "x/y", "x/../y", "decode.speedup", "stock", "--port", "COOKBOOK", "2026-02-30"]),
    st.sampled_from(["\0", "\ud800", "\u202e", "a" * 5000]),
)
keys = st.sampled_from(["var", "join", "when", "low", "high", "value", "values", "env", "arg", "run", "serve", "comment", "name"])
nodes = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every container of data with every key or index in it."""
    if not isinstance(data, dict | list):
        return []
    inside = list(data) if isinstance(data, dict) else list(range(len(data)))
    return [(data, key) for key in inside] + [place for key in inside for place in places(data[key])]


@st.composite
def mutations(draw: st.DrawFn) -> tuple[Any, str]:
    """A recipe of the cookbook in which a few places are left out, replaced, moved or added to."""
    which = draw(st.integers(0, 1))
    data = copy.deepcopy(DATA[which])
    for _ in range(draw(st.integers(1, 4))):
        every = places(data)
        holder, key = every[draw(st.integers(0, len(every) - 1))]
        change = draw(st.sampled_from(["delete", "replace", "insert", "move"]))
        if change == "delete":
            del holder[key]
        elif change == "replace":
            holder[key] = draw(nodes)
        elif change == "move":
            other, other_key = every[draw(st.integers(0, len(every) - 1))]
            holder[key] = copy.deepcopy(other[other_key])
        elif isinstance(holder, list):
            holder.insert(key, draw(nodes))
        else:
            holder[draw(keys | st.text(max_size=4))] = draw(nodes)
    return data, draw(st.sampled_from([GUIDE_TEXTS[which], "{{ performance.decode }}", "{{ checks.golden.stock / model.kind }}"]))


@settings(max_examples=150)
@given(mutations())
def test_any_data_is_a_recipe_or_has_problems(repo: Repository, mutation: tuple[Any, str]) -> None:
    data, guide = mutation
    file = repo.recipe(as_yaml(data), guide, identity=GAUDI)
    try:
        loaded = load(file, repo.root)
    except ProblemsError as error:
        problems = error.problems
        assert problems
        assert all(problem.line >= 1 and problem.column >= 1 and problem.message for problem in problems)
    else:
        assert isinstance(loaded, LoadedRecipe)
        assert selections(loaded.program)
