"""Figures, badges and facts: computed from the data, exactly."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schema.block import argv, selections
from schema.export import SCHEMA_FILE, json_schema, schema_problems
from schema.facts import badge, configuration, launch_facts, memory_gb, port, served_name, weights_gb
from schema.figures import FigureError, Figures, cards_of, figure, number, share_of
from schema.loading import LoadedRecipe, load
from schema.models import HardwareOption
from schema.selecting import resolve
from schema.vocabulary import engines
from support import GAUDI, MINIMAL, RICH, ROOT, SGLANG, Repository, changed


@cache
def loaded(identity: str) -> LoadedRecipe:
    """One of the cookbook's recipes."""
    return load(ROOT / "recipes" / identity / "recipe.yaml")


def cells(identity: str, table: str, column: str) -> list[str]:
    return loaded(identity).figures.table(table).column(column).cells


# --- derived values --------------------------------------------------------------------------------------------------


def test_speedup_of_the_kernels() -> None:
    assert cells(GAUDI, "decode", "speedup") == ["2.49", "2.67", "2.39", "1.97"]


def test_per_card_against_two_nodes() -> None:
    assert cells(GAUDI, "two_nodes", "one_node_card") == ["5.6", "8.6", "11.7", "14.8"]
    assert cells(GAUDI, "two_nodes", "fp8_card") == ["2.3 to 2.4", "4.5 to 4.6", "7.3", "10.4 to 10.7"]
    assert cells(GAUDI, "two_nodes", "one_node") == ["44.5", "34.5", "23.4", "14.8"]
    assert cells(GAUDI, "two_nodes", "fp8_stream") == ["36.4 to 38.2", "36.2 to 36.4", "29.1 to 29.2", "20.7 to 21.4"]


def test_output_per_gpu_and_gain_of_the_model() -> None:
    assert cells(SGLANG, "latency", "output_card") == ["104.1", "167.7", "240.9", "332.4", "435.1"]
    assert cells(SGLANG, "model_card", "gain") == ["11.1", "5.3", "8.4", "4.0", "6.6", "8.3"]


def test_published_digits_are_kept() -> None:
    assert cells(SGLANG, "gsm8k", "accuracy") == ["0.951", "0.953", "0.942", "0.950"]
    assert cells(SGLANG, "latency", "ttft_median")[1] == "199.00"
    assert cells(SGLANG, "latency", "total")[4] == "15,759.18"
    assert loaded(SGLANG).figures.table("gsm8k").rows == ["100", "300", "600", "1,200"]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("performance.decode.kernels_stream[1]", "44.5"),
        ("performance.decode.kernels_stream", "44.5 / 34.5 / 23.4 / 14.8"),
        ("performance.two_nodes.fp8_stream[8]", "20.7 to 21.4"),
        ("performance.decode.kernels_stream[1] / performance.decode.stock_stream[1]", "2.49"),
        ("performance.decode.kernels_stream[1] - performance.decode.stock_stream[1]", "26.6"),
        ("performance.decode.kernels_stream[8] - performance.two_nodes.fp8_stream[8]", "-6.6 to -5.9"),
        ("checks.golden.stock", "12/12"),
        ("checks.parity.stock", "0.0048 to 0.0055"),
        ("checks.top1.kernels", "7,826/8,198"),
        ("checks.top1.kernels.share", "0.955"),
        ("checks.nll.kernels - checks.nll.stock", "0.0010"),
        ("measurements.kv_pool.either", "260,480"),
        ("measurements.weight_load.stock / measurements.weight_load.kernels", "2.17"),
        ("model.context_tokens", "262,144"),
        ("model.active_parameters_b", "32"),
    ],
)
def test_figures_in_prose(expression: str, text: str) -> None:
    assert loaded(GAUDI).figures.value(expression) == text
    assert loaded(GAUDI).figures.fill(f"a {{{{ {expression} }}}} b {{{{{expression}}}}}") == f"a {text} b {text}"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "is not of the form"),
        ("decode", "is not of the form"),
        ("performence.decode.speedup[1]", "did you mean performance?"),
        ("performance.decod.speedup[1]", "no table 'decod', did you mean decode?"),
        ("performance.decode.speed[1]", "no column 'speed', did you mean speedup?"),
        ("performance.decode.speedup[3]", "has no row '3' (rows: 1, 2, 4, 8)"),
        ("performance.decode", "names no column"),
        ("performance.decode.kernels_stream / performance.decode.stock_stream", "needs a row"),
        ("checks.golden", "names no arm"),
        ("checks.golden.stok", "no arm 'stok', did you mean stock?"),
        ("checks.parity.kernels.share", "has no passed and of"),
        ("checks.tools.stock", "has no figure"),
        ("checks.golden.stock[1]", "says too much"),
        ("measurements.ttft.stock.share", "says too much"),
        ("measurements.ttf.stock", "no measurement 'ttf', did you mean ttft?"),
        ("model.contxt_tokens", "did you mean context_tokens?"),
        ("model.base", "no number of the model 'base'"),
        ("model.context_tokens.x", "says too much"),
        ("checks.golden.stock - checks.golden.kernels", "has no figure"),
        ("model.context_tokens - model.context_tokens - model.context_tokens", "one - or / between two figures"),
        ("model.context_tokens + model.context_tokens", "is not of the form"),
    ],
)
def test_what_is_no_figure(expression: str, message: str) -> None:
    with pytest.raises(FigureError) as error:
        loaded(GAUDI).figures.value(expression)
    assert message in str(error.value)


numbers = st.decimals("0.01", "9999.99", places=2)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5))
def test_columns_are_computed_over_ranges(repo: Repository, pairs: list[tuple[Decimal, Decimal]]) -> None:
    ranges = [f"{{low: {min(pair)}, high: {max(pair)}}}" for pair in pairs]
    text = changed(RICH, "values: [10, {low: 20, high: 21}]", f"values: [{', '.join(ranges)}]")
    text = changed(text, "values: [1, 2]", f"values: [{', '.join(str(i + 1) for i in range(len(pairs)))}]")
    text = changed(text, "values: [5, null]", f"values: [{', '.join(str(pair[0]) for pair in pairs)}]")
    text = changed(
        text,
        "    charts:",
        "      - {name: sum, title: S, compute: sum, of: [fast, slow]}\n"
        "      - {name: less, title: D, compute: difference, of: [fast, slow]}\n"
        "      - {name: card, title: P, compute: per_card, of: [fast], times_rows: true, digits: 3}\n"
        "      - {name: same, title: E, compute: same, of: [gain]}\n"
        "    charts:",
    )
    table = repo.load(text).figures.table("speed")
    for row, (a, b) in enumerate(pairs):
        low, high = min(a, b), max(a, b)
        expected = {
            "fast": (low, high),
            "gain": (cut(low / a, 2), cut(high / a, 2)),
            "sum": (low + a, high + a),
            "less": (low - a, high - a),
            "card": (cut(low * (row + 1) / 2, 3), cut(high * (row + 1) / 2, 3)),
            "same": (cut(low / a, 2), cut(high / a, 2)),
        }
        assert {name: table.column(name).numbers[row] for name in expected} == expected


def cut(value: Decimal, digits: int) -> Decimal:
    return round(value, digits)


def test_what_was_not_measured_stays_missing(repo: Repository) -> None:
    table = repo.load(RICH).figures.table("speed")
    assert table.column("slow").cells == ["5", "–"]
    assert table.column("gain").cells == ["2.00", "–"]
    assert table.column("gain").numbers[1] is None


def test_numbers_and_figures_as_text() -> None:
    assert number(Decimal("1234567.50")) == "1,234,567.50"
    assert number(Decimal("1E+3")) == "1,000"
    assert figure((Decimal(1), Decimal("1.0"))) == "1"
    assert figure((Decimal(-1), Decimal(1))) == "-1 to 1"
    assert figure(None) == "–"


def test_cards_of_an_arm(repo: Repository) -> None:
    recipe = repo.load(RICH).recipe
    assert (cards_of(recipe, "base"), cards_of(recipe, "old"), cards_of(recipe, "none")) == (2, None, None)
    assert cards_of(loaded(GAUDI).recipe, "fp8_pair") == 16


# --- badges ----------------------------------------------------------------------------------------------------------

BASE = {"hardware": "two", "variant": "plain", "cache": "off"}
MEASURED = "status: measured\n    measured_on: 2026-08-21\n    commit: 0123abc\n    command: run it"


def test_reported_for_the_exact_selection_only(repo: Repository) -> None:
    loaded = repo.load(changed(RICH, "{passed: 11, of: 12}", "{passed: 12, of: 12}"))
    levels = {tuple(selection.values()): badge(loaded.recipe, selection).level for selection in selections(loaded.program)}
    assert levels.pop(("two", "plain", "off")) == "reported"
    assert set(levels.values()) == {"none"}
    assert badge(loaded.recipe, BASE).text == "Reported"
    assert badge(loaded.recipe, {**BASE, "cache": "on"}).text == "Not verified"
    assert badge(loaded.recipe, {name: BASE[name] for name in ("hardware", "variant")}).level == "none"


def measured(own_code: str, result: str) -> str:
    """The rich recipe with measured evidence, and that result of its one check."""
    text = changed(RICH, "status: reported", MEASURED)
    text = changed(text, "own_code: false", f"own_code: {own_code}")
    text = changed(text, "source: The page", "source: Its log\n    source_url: https://example.org/log")
    return changed(text, "{passed: 11, of: 12}", result)


@pytest.mark.parametrize(
    ("result", "level"),
    [
        ("{outcome: pass}", "verified"),
        ("{passed: 12, of: 12}", "verified"),
        ("{outcome: pass, passed: 11, of: 12, detail: One answer is spelt otherwise}", "verified"),
        ("{passed: 11, of: 12}", "failed"),
        ("{passed: 0, of: 12}", "failed"),
        ("{value: 1}", "measured"),
        ("{detail: It ran}", "measured"),
        ("{outcome: fail}", "failed"),
        ("{outcome: fail, passed: 11, of: 12}", "failed"),
    ],
)
def test_verified_needs_a_check_that_passed(repo: Repository, result: str, level: str) -> None:
    loaded = repo.load(measured("true", result))
    assert badge(loaded.recipe, BASE).level == level
    assert badge(loaded.recipe, {**BASE, "hardware": "four"}).level == "none"


def test_measured_by_other_code_is_refused(repo: Repository) -> None:
    [problem] = repo.problems(measured("false", "{outcome: pass}"))
    assert (problem.field, problem.message.split(" ")[0]) == ("evidence[0].own_code", "measured")


def test_a_failed_check_outweighs_reports_whoever_made_them(repo: Repository) -> None:
    found = badge(repo.load(changed(RICH, "{passed: 11, of: 12}", "{outcome: fail}")).recipe, BASE)
    assert (found.level, found.text) == ("failed", "Fails a check")
    assert found.evidence is not None
    assert found.evidence.name == "page"


def test_without_evidence_nothing_is_verified(repo: Repository) -> None:
    loaded = repo.load(MINIMAL)
    assert [badge(loaded.recipe, s).level for s in selections(loaded.program)] == ["none"]


def test_nothing_of_the_cookbook_is_called_verified() -> None:
    for identity, reported in ((GAUDI, 2), (SGLANG, 1)):
        levels = [badge(loaded(identity).recipe, s).level for s in selections(loaded(identity).program)]
        assert levels.count("reported") == reported
        assert set(levels) <= {"reported", "none"}


# --- facts -----------------------------------------------------------------------------------------------------------


def rows(identity: str, choices: dict[str, str]) -> dict[str, str]:
    recipe, program = loaded(identity).recipe, loaded(identity).program
    selection = resolve(program["axes"], choices)
    return dict(configuration(recipe, selection, argv(program, selection)))


def test_configuration_of_the_gaudi_recipe() -> None:
    assert rows(GAUDI, {}) == {
        "Model": "amd/Kimi-K2.7-Code-MXFP4 (from moonshotai/Kimi-K2.7-Code)",
        "Hardware": "8 × Gaudi 2 · TP 8 · EP",
        "Image": "vllm-gaudi releases/v0.30.0 @ 058f107 · vLLM 0.30.0 @ ced6857a · Gaudi software 1.24.1",
        "Precision": "MXFP4 · Routed experts MXFP4 (E2M1, one E8M0 scale per 32), everything else BF16 · 659 GB of weights",
        "Context": "131,072 tokens served (262,144 native)",
        "Concurrency": "8 requests at once",
        "Parsers": "reasoning kimi_k2 · tools kimi_k2",
        "Licence": "Modified MIT",
    }


def test_configuration_follows_the_selection() -> None:
    found = rows(SGLANG, {"hardware": "H200", "dp-attention": "on", "reasoning-parser": "off"})
    assert found["Hardware"] == "8 × H200 · TP 8 · DP 8 · DP attention"
    assert found["Parsers"] == "tools kimi_k2"
    assert found["Context"] == "262,144 tokens (native)"
    assert "Image" not in found
    assert rows(SGLANG, {"hardware": "MI355X"})["Parsers"] == "none"
    assert rows(SGLANG, {"hardware": "MI355X"})["Hardware"] == "4 × MI355X · TP 4"


def test_memory_and_weights_of_a_selection() -> None:
    recipe, program = loaded(SGLANG).recipe, loaded(SGLANG).program
    found = {
        name: (weights_gb(recipe, selection), memory_gb(recipe, selection))
        for name in ("H200", "MI300X", "MI355X")
        for selection in [resolve(program["axes"], {"hardware": name})]
    }
    assert found["H200"] == (Decimal(595), 8 * 141)
    assert found["MI300X"] == (Decimal(595), 4 * 192)
    assert found["MI355X"] == (None, 4 * 288)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--tensor-parallel-size", "8"], {"tensor_parallel": "8"}),
        (["--tensor-parallel-size=8", "--port=80"], {"tensor_parallel": "8", "port": "80"}),
        (["-tp", "2", "-ep"], {"tensor_parallel": "2", "expert_parallel": "yes"}),
        (["--port"], {}),
        (["--ports", "1"], {}),
        (["--served-model-name", "a/b", "--model", "c"], {"served_name": "a/b", "model": "c"}),
    ],
)
def test_facts_are_read_from_the_command(words: list[str], facts: dict[str, str]) -> None:
    assert launch_facts(engines()["vllm-gaudi"], ["vllm", "serve", *words]) == facts


def test_name_and_port_that_clients_use() -> None:
    vllm = engines()["vllm-gaudi"]
    assert served_name(vllm, ["vllm", "serve", "acme/x", "--port", "1"]) == "acme/x"
    assert served_name(vllm, ["vllm", "serve", "--model", "acme/y"]) == "acme/y"
    assert served_name(vllm, ["vllm", "serve", "acme/x", "--served-model-name", "z"]) == "z"
    assert (port(vllm, ["vllm", "serve"]), port(vllm, ["vllm", "serve", "--port", "9"])) == ("8000", "9")
    for selection in selections(loaded(SGLANG).program):
        command = argv(loaded(SGLANG).program, selection)
        assert served_name(engines()["sglang"], command) == command[command.index("--model-path") + 1]


def test_every_recipe_s_hardware_is_its_engine_s() -> None:
    for identity in (GAUDI, SGLANG):
        recipe = loaded(identity).recipe
        options = [o for axis in recipe.axes for o in axis.options if isinstance(o, HardwareOption)]
        assert {option.hardware for option in options} <= set(engines()[recipe.engine].hardware)


# --- for editors -----------------------------------------------------------------------------------------------------


def checker() -> Any:
    schema = json.loads(json_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("identity", [GAUDI, SGLANG])
def test_the_json_schema_takes_the_recipes(identity: str) -> None:
    data = yaml.safe_load((ROOT / "recipes" / identity / "recipe.yaml").read_text(encoding="utf-8"))
    assert [error.message for error in checker().iter_errors(data)] == []


@pytest.mark.parametrize("text", [MINIMAL, RICH])
def test_the_json_schema_takes_the_recipes_of_these_tests(text: str) -> None:
    assert [error.message for error in checker().iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("engine: vllm-gaudi", "engine: vllm-gaudi\nextra: 1"),
        ("engine: vllm-gaudi", "engine: vllm"),
        ("kind: dense", "kind: sparse"),
        ("cards: 2}", "cards: 0}"),
        ("cards: 2}", 'cards: "2"}'),
        ("hardware: gaudi2, cards: 2}", "hardware: gaudi9, cards: 2}"),
        ("cards: 2}", "cards: 2, colour: red}"),
        ("  base: acme/Small\n", ""),
        ("serve: [vllm, serve, acme/Small]", "serve: vllm serve acme/Small"),
        ("total_parameters_b: 7", "total_parameters_b: -7"),
    ],
)
def test_the_json_schema_refuses(old: str, new: str) -> None:
    assert list(checker().iter_errors(yaml.safe_load(changed(MINIMAL, old, new))))


def test_the_committed_json_schema_is_the_models_own() -> None:
    assert (ROOT / SCHEMA_FILE).read_text(encoding="utf-8") == json_schema()
    assert list(schema_problems()) == []


def test_another_json_schema_is_a_problem(repo: Repository) -> None:
    [missing] = schema_problems(repo.root)
    repo.write(SCHEMA_FILE, json_schema() + " ")
    [other] = schema_problems(repo.root)
    assert missing == other
    assert "--schema -o schema/recipe.schema.json" in other.message


def test_figures_of_a_recipe_are_made_once() -> None:
    figures = Figures(loaded(GAUDI).recipe)
    assert figures.table("decode") is figures.table("decode")


def test_every_term_is_taken_times_its_row(repo: Repository) -> None:
    text = changed(RICH, "compute: ratio, of: [fast, slow]}", "compute: sum, of: [fast, fast], times_rows: true}")
    assert repo.load(text).figures.table("speed").column("gain").cells == ["20.00", "80.00 to 84.00"]


def test_cards_of_a_mixed_column_are_none(repo: Repository) -> None:
    text = changed(
        RICH,
        "compute: ratio, of: [fast, slow]}",
        "compute: sum, of: [fast, slow]}\n      - {name: each, title: E, compute: per_card, of: [gain]}",
    )
    [problem] = repo.problems(text)
    assert "column gain is of arms with different numbers of cards" in problem.message


@pytest.mark.parametrize(
    ("passed", "of", "share"), [(4999, 5000, "0.999"), (5000, 5000, "1.000"), (1, 5000, "0.001"), (0, 9, "0.000")]
)
def test_a_share_is_whole_only_if_all_passed(passed: int, of: int, share: str) -> None:
    assert str(share_of(passed, of)) == share
