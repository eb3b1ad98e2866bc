"""What a page states about one selection: read from the options chosen and from the command itself, never typed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from schema import vocabulary
from schema.compiling import components, hardware_title
from schema.figures import number
from schema.models import Arm, Evidence, HardwareOption, ImageOption, Option, Recipe, Result, VariantOption
from schema.vocabulary import Engine


@dataclass(frozen=True)
class Badge:
    """What the evidence says of one exact selection.  ``level``: verified, measured, reported, failed or none."""

    level: str
    text: str
    evidence: Evidence | None = None


def chosen(recipe: Recipe, selection: Mapping[str, str]) -> list[Option]:
    """The options of a selection, in the order of the axes."""
    return [o for axis in recipe.axes for o in axis.options if selection.get(axis.name) == o.name]


def launch_facts(engine: Engine, argv: Sequence[str]) -> dict[str, str]:
    """The engine's facts that a command states, by name; a switch that is given has the value ``yes``."""
    by_flag, switches = engine.fact_of_flag, engine.fact_of_switch
    facts: dict[str, str] = {}
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag in by_flag and (equals or index + 1 < len(argv)):
            facts[by_flag[flag]] = value if equals else argv[index + 1]
        elif flag in switches:
            facts[switches[flag]] = "yes"
    return facts


def served_name(engine: Engine, argv: Sequence[str]) -> str:
    """The model name that clients ask the server for."""
    facts = launch_facts(engine, argv)
    positional = [word for word in argv[2:3] if not word.startswith("-")]
    return facts.get("served_name") or facts.get("model") or (positional or [""])[0]


def port(engine: Engine, argv: Sequence[str]) -> str:
    """The port that the server listens on."""
    return launch_facts(engine, argv).get("port", str(engine.port))


def badge(recipe: Recipe, selection: Mapping[str, str]) -> Badge:
    """The badge of one selection: only evidence whose arm ran exactly this selection counts."""
    covering = [(e, arm) for e in recipe.evidence for arm in e.arms if arm.selection == dict(selection)]
    if not covering:
        return Badge("none", "Not verified")
    statuses = vocabulary.statuses()
    for evidence, arm in covering:
        if _failed(recipe, arm):
            return Badge("failed", "Fails a check", evidence)
    measured = [(evidence, arm) for evidence, arm in covering if evidence.status == "measured" and evidence.own_code]
    for evidence, arm in measured:
        if _passed(recipe, arm):
            return Badge("verified", statuses["measured"].badge, evidence)
    if measured:
        return Badge("measured", statuses["measured"].title, measured[0][0])
    return Badge("reported", statuses["reported"].badge, covering[0][0])


def passes(result: Result) -> bool | None:
    """Whether a result is a pass: as it says itself, else by its count, which must be full; None if it says neither."""
    if result.outcome is not None:
        return result.outcome == "pass"
    return None if result.of is None else result.passed == result.of


def _failed(recipe: Recipe, arm: Arm) -> bool:
    return any(passes(check.results[arm.name]) is False for check in recipe.checks if arm.name in check.results)


def _passed(recipe: Recipe, arm: Arm) -> bool:
    return any(passes(check.results[arm.name]) for check in recipe.checks if arm.name in check.results)


def configuration(recipe: Recipe, selection: Mapping[str, str], argv: Sequence[str]) -> list[tuple[str, str]]:
    """The configuration table of one selection, as headings and plain text."""
    engine = vocabulary.engines()[recipe.engine]
    facts = launch_facts(engine, argv)
    rows: list[tuple[str, str]] = []
    parallel = [
        f"TP {facts['tensor_parallel']}" if "tensor_parallel" in facts else "",
        f"DP {facts['data_parallel']}" if "data_parallel" in facts else "",
        "EP" if "expert_parallel" in facts else "",
        "DP attention" if "dp_attention" in facts else "",
    ]
    for option in chosen(recipe, selection):
        if isinstance(option, VariantOption):
            origin = "" if option.model == recipe.model.base else f" (from {recipe.model.base})"
            rows.append(("Model", option.model + origin))
        elif isinstance(option, HardwareOption):
            rows.append(("Hardware", " · ".join(filter(None, [hardware_title(option), *parallel]))))
        elif isinstance(option, ImageOption):
            rows.append(("Image", " · ".join(filter(None, [option.reference, components(option)]))))
    rows.sort(key=lambda row: row[0] != "Model")
    for option in chosen(recipe, selection):
        if isinstance(option, VariantOption):
            weights = f" · {number(option.weights_gb)} GB of weights" if option.weights_gb else ""
            title = vocabulary.precisions()[option.precision].title
            rows.append(("Precision", " · ".join(filter(None, [title, option.summary])) + weights))
    native = f"{recipe.model.context_tokens:,}"
    context = facts.get("context_tokens", "")
    rows.append(
        ("Context", f"{int(context):,} tokens served ({native} native)" if context.isdecimal() else f"{native} tokens (native)")
    )
    if "concurrency" in facts:
        rows.append(("Concurrency", f"{facts['concurrency']} requests at once"))
    parsers = [
        f"{what} {facts[f'{fact}_parser']}"
        for what, fact in (("reasoning", "reasoning"), ("tools", "tool"))
        if f"{fact}_parser" in facts
    ]
    rows.append(("Parsers", " · ".join(parsers) or "none"))
    rows.append(("Licence", recipe.model.licence.name))
    return rows


def weights_gb(recipe: Recipe, selection: Mapping[str, str]) -> Decimal | None:
    """Size of the selected weights in GB (1e9 bytes), if the recipe says."""
    for option in chosen(recipe, selection):
        if isinstance(option, VariantOption):
            return option.weights_gb
    return None


def memory_gb(recipe: Recipe, selection: Mapping[str, str]) -> int:
    """Memory of all the selected cards together in GB (1e9 bytes); 0 if the recipe has no hardware axis."""
    return sum(
        option.cards * vocabulary.hardware()[option.hardware].memory_gb
        for option in chosen(recipe, selection)
        if isinstance(option, HardwareOption)
    )
