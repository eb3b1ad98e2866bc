"""One recipe's page: its body as HTML, the same as Markdown, and what the search finds of it.

A pure library over a loaded recipe; it knows nothing of MkDocs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from schema import vocabulary
from schema.block import argv, render
from schema.export import hardware_names, precision_names
from schema.facts import (
    Badge,
    badge,
    configuration,
    launch_facts,
    passes,
    port,
    served_name,
    weights_gb,
)
from schema.figures import Figures, Table, figure, interval, number, share_of
from schema.fixes import Fix, read_fix
from schema.loading import ROOT, LoadedRecipe
from schema.models import ArgItem, Arm, Check, EnvItem, Evidence, Figure, HardwareOption, Result
from schema.problems import ProblemsError
from schema.quoting import quote
from schema.selecting import Selection, offered, resolve
from theme import charts, highlight, markdown

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class RecipePage:
    """What is written for a recipe.  ``search`` holds (anchor, heading, text) of each section."""

    identity: str
    description: str
    body: str
    markdown: str
    search: list[tuple[str, str, str]]


@cache
def environment() -> jinja2.Environment:
    """The Jinja environment of the page templates; templates that changed on disk are read again."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=jinja2.select_autoescape(("html",)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters.update(inline=markdown.inline, number=number, slug=markdown.slug, cell=_cell)
    env.globals.update(figure_text=lambda value: figure(interval(value)), chart=charts.draw)
    return env


def _cell(text: str) -> str:
    """A text that stands in a cell of a Markdown table, where a bar would end it."""
    return text.replace("|", r"\|")


def recipe_page(loaded: LoadedRecipe, root: Path = ROOT) -> RecipePage:
    """Render the page of a recipe that passed its checks."""
    view = View(loaded, root)
    parts = environment().get_template("parts.html").make_module({"v": view})
    guide, headings, texts = _guide(view, parts)
    body = environment().get_template("recipe.html").render(v=view, parts=parts, guide=guide, headings=headings)
    text = environment().get_template("recipe.md").render(v=view, guide=view.guide_markdown())
    search = [("", loaded.identity, f"{view.summary} {view.keywords}"), *texts]
    return RecipePage(loaded.identity, view.summary, body, text, search)


def _guide(view: View, parts: Any) -> tuple[Markup, list[tuple[int, str, str]], list[tuple[str, str, str]]]:
    """The guide as HTML, its headings, and its sections for the search."""
    taken = {"launch", "checks-passed", "notes", "guide", "lines"}
    html: list[str] = []
    headings: list[tuple[int, str, str]] = []
    texts: list[tuple[str, str, str]] = []
    for part in view.loaded.parts:
        if part.directive is None:
            made, found = markdown.block(view.figures.fill(part.text), taken)
            html.append(made)
            headings += found
            texts += [(anchor, title, "") for _, anchor, title in found]
        else:
            html.append(getattr(parts, part.directive)() if "." not in part.directive else _table(view, parts, part.directive))
    return Markup("".join(html)), headings, texts  # noqa: S704 - made of Markup


def _table(view: View, parts: Any, directive: str) -> str:
    return str(parts.performance(view.figures.table(directive.removeprefix("performance."))))


@dataclass(frozen=True)
class ArmResult:
    """A check's result on one arm, as text."""

    text: str
    good: bool | None


class View:
    """What the templates ask of a recipe."""

    def __init__(self, loaded: LoadedRecipe, root: Path) -> None:
        self.loaded = loaded
        self.root = root
        self.identity = loaded.identity
        self.owner, self.name = loaded.identity.split("/")
        self.recipe = loaded.recipe
        self.figures: Figures = loaded.figures
        self.engine = vocabulary.engines()[self.recipe.engine]
        self.program = loaded.program
        self.default: Selection = resolve(self.program["axes"], {})
        self.argv = argv(self.program, self.default)
        self.badge: Badge = badge(self.recipe, self.default)
        self.summary = self.figures.fill(self.recipe.summary)
        self.statuses = vocabulary.statuses()
        self.arms: dict[str, tuple[Evidence, Arm]] = {arm.name: (e, arm) for e in self.recipe.evidence for arm in e.arms}

        self._lines: dict[str, str] = {}

    # --- the head of the page ---

    @property
    def keywords(self) -> str:
        """What a reader may search for that stands in no heading."""
        names = [vocabulary.hardware()[name].title for name in hardware_names(self.loaded)]
        names += [vocabulary.precisions()[name].title for name in precision_names(self.loaded)]
        items = self.recipe.launch
        names += [item.env if isinstance(item, EnvItem) else item.arg for item in items if isinstance(item, EnvItem | ArgItem)]
        names += [item.value for item in items if isinstance(item, ArgItem) and isinstance(item.value, str)]
        names += [check.title for check in self.recipe.checks] + [found.title for found in self.recipe.measurements]
        names += [table.title for table in self.recipe.performance]
        names += [reason.name for reason in self.recipe.fixes.required] if self.recipe.fixes else []
        return " ".join([self.engine.title, *dict.fromkeys(names), self.recipe.model.base])

    @property
    def tags(self) -> list[str]:
        """Short facts under the title that hold for every selection."""
        model = self.recipe.model
        size = _billions(model.total_parameters_b)
        if model.active_parameters_b:
            size += f" / {_billions(model.active_parameters_b)} active"
        precisions = [vocabulary.precisions()[name].title for name in precision_names(self.loaded)]
        context = launch_facts(self.engine, self.argv).get("context_tokens")
        served = f"{int(context):,} tokens served" if context else f"{model.context_tokens:,} tokens"
        inputs = (
            f"{' and '.join(filter(None, [', '.join(model.inputs[:-1]), model.inputs[-1]]))} input"
            if len(model.inputs) > 1
            else f"{model.inputs[0]} only"
        )
        kind = {"moe": "MoE", "dense": "dense"}[model.kind]
        return [f"{kind} {size}", served, " / ".join(precisions), self.engine.title, inputs]

    @property
    def pending(self) -> list[str]:
        """Paths that the recipe names and that are still to come."""
        return self.recipe.pending

    # --- the builder ---

    @property
    def axes(self) -> list[dict[str, Any]]:
        """The axes with their options, and whether each is offered beside the default choices."""
        shown = []
        for axis, compiled in zip(self.recipe.axes, self.program["axes"]):
            names = offered(compiled, self.default)
            options = [
                {
                    **program_option,
                    "summary": option.summary,
                    "detail": _detail(option),
                    "offered": program_option["name"] in names,
                    "chosen": self.default.get(axis.name) == program_option["name"],
                }
                for option, program_option in zip(axis.options, compiled["options"])
            ]
            shown.append({**compiled, "options": options, "offered": bool(names)})
        return shown

    @cached_property
    def block(self) -> str:
        """The block of the default selection."""
        return render(self.program, self.default)

    @property
    def block_html(self) -> Markup:
        """The same with colours."""
        return Markup("".join([self._coloured(text) + end for text, end in _lines(self.block)]))  # noqa: S704 - escaped there

    @property
    def every_line(self) -> list[Markup]:
        """Each line of the program with colours, in the order in which the script counts them."""
        lines = [*self.program["header"]]
        for paragraph in self.program["paragraphs"]:
            lines += [*paragraph["comments"], *paragraph["lines"]]
        return [Markup(self._coloured(line["text"])) for line in lines]  # noqa: S704 - escaped there

    def _coloured(self, text: str) -> str:
        if text not in self._lines:
            self._lines[text] = highlight.line(text)
        return self._lines[text]

    @property
    def data(self) -> str:
        """What the page's script is given: axes, the conditions of the lines, and the facts of each selection."""
        facts: list[Any] = []
        index: dict[str, int] = {}
        for described in self.loaded.described["selections"]:
            selection = described["selection"]
            fact = self._fact(selection, described["argv"])
            if fact not in facts:
                facts.append(fact)
            index[_key(selection)] = facts.index(fact)
        data = {
            "id": self.identity,
            "axes": [
                {**axis, "options": [_without_empty(option) for option in axis["options"]]} for axis in self.program["axes"]
            ],
            "header": [line["when"] for line in self.program["header"]],
            "paragraphs": [
                {
                    "join": paragraph["join"],
                    "comments": [line["when"] for line in paragraph["comments"]],
                    "lines": [line["when"] for line in paragraph["lines"]],
                }
                for paragraph in self.program["paragraphs"]
            ],
            "facts": facts,
            "index": index,
        }
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")

    def _fact(self, selection: Selection, words: list[str]) -> dict[str, Any]:
        found = badge(self.recipe, selection)
        return {
            "badge": [found.level, found.text],
            "configuration": configuration(self.recipe, selection, words),
            "client": self.client(words),
        }

    @property
    def lines_explained(self) -> list[tuple[str, str]]:
        """The lines of the block that the recipe explains, and what each is for; with the value where a name has several."""
        items = [item for item in self.recipe.launch if isinstance(item, EnvItem | ArgItem)]
        names = [item.env if isinstance(item, EnvItem) else item.arg for item in items]
        lines = []
        for item, name in zip(items, names):
            if item.means:
                several = names.count(name) > 1 and isinstance(item.value, str)
                lines.append((f"{name}{'=' if isinstance(item, EnvItem) else ' '}{item.value}" if several else name, item.means))
        return lines

    @property
    def export_command(self) -> str:
        """How the same block is had without a browser."""
        return f"python build_site.py --export-shell {quote(self.identity)}"

    # --- the guide's parts ---

    @property
    def configuration_rows(self) -> list[tuple[str, str]]:
        """The configuration table of the default selection."""
        return configuration(self.recipe, self.default, self.argv)

    def client(self, words: list[str] | None = None) -> str:
        """A first request to the server of a selection."""
        words = self.argv if words is None else words
        body = {
            "model": served_name(self.engine, words),
            "messages": [{"role": "user", "content": "Reverse a linked list in C."}],
        }
        return (
            f"curl http://localhost:{port(self.engine, words)}/v1/chat/completions \\\n"
            "  -H 'Content-Type: application/json' \\\n"
            f"  -d {quote(json.dumps(body, ensure_ascii=False))}\n"
        )

    @cached_property
    def check_arms(self) -> list[Arm]:
        """The arms that have a column of their own in the table of checks: those with more than one result."""
        counts = {name: sum(name in check.results for check in self.recipe.checks) for name in self.arms}
        several = [arm for name, (_, arm) in self.arms.items() if counts[name] > 1]
        return several or [arm for name, (_, arm) in self.arms.items() if counts[name]]

    def results(self, check: Check) -> list[tuple[str, ArmResult | None]]:
        """A check's cells: one an arm with a column; or one across all, with its arm named, if none of them has a result."""
        own = [(arm.title, _result(check.results.get(arm.name))) for arm in self.check_arms]
        if any(result for _, result in own):
            return own
        return [(self.arms[name][1].title, _result(result)) for name, result in check.results.items()][:1]

    @property
    def checks_at_a_glance(self) -> list[tuple[Check, list[tuple[str, ArmResult]]]]:
        """Each check with the results that it has."""
        return [
            (check, [(self.arms[name][1].title, result) for name, r in check.results.items() if (result := _result(r))])
            for check in self.recipe.checks
        ]

    @cached_property
    def measurement_arms(self) -> list[Arm]:
        """The arms that measurements are given for, in the evidence's order."""
        return [arm for name, (_, arm) in self.arms.items() if any(name in m.values for m in self.recipe.measurements)]

    def arm_cell(self, values: Mapping[str, Figure], arm: Arm) -> str:
        """One measurement on one arm, as text."""
        return figure(interval(values.get(arm.name)))

    def table_evidence(self, table: Table) -> list[Evidence]:
        """The evidence of a table's columns, each once."""
        found = []
        for column in table.columns:
            evidence = self.arms[column.arm][0]
            if evidence not in found:
                found.append(evidence)
        return found

    def arm_text(self, arm: Arm) -> str:
        """What ran on an arm: the selection, or the setup."""
        if arm.setup:
            setup = arm.setup
            cards = f"{setup.cards} × {vocabulary.hardware()[setup.hardware].title}" if setup.hardware and setup.cards else ""
            nodes = f"{setup.nodes} nodes" if setup.nodes and setup.nodes > 1 else ""
            return ". ".join(filter(None, [setup.description, ", ".join(filter(None, [cards, nodes]))]))
        return " · ".join(f"{axis}={option}" for axis, option in (arm.selection or {}).items())

    def fill(self, text: str) -> Markup:
        """A text of the recipe with its figures, as HTML."""
        return markdown.inline(self.figures.fill(text))

    @cached_property
    def fixes(self) -> list[tuple[Fix | None, str, str]]:
        """The required fixes: the fix if it is in the repository, its name, and why this model needs it."""
        rows = []
        for reason in self.recipe.fixes.required if self.recipe.fixes else []:
            try:
                fix = read_fix(self.root, reason.name)
            except ProblemsError:
                fix = None
            rows.append((fix, reason.name, reason.because))
        return rows

    @cached_property
    def profile_exists(self) -> bool:
        """Whether the recipe's fix profile is in the repository."""
        return bool(self.recipe.fixes) and f"fixes/profiles/{self.recipe.fixes.profile}.json" not in self.pending  # type: ignore[union-attr]

    @property
    def weights(self) -> str:
        """Size of the default selection's weights in GB, as text, or nothing."""
        weights = weights_gb(self.recipe, self.default)
        return f"{number(weights)} GB" if weights else ""

    def guide_markdown(self) -> str:
        """The guide with its figures and tables, as Markdown."""
        parts = environment().get_template("parts.md").make_module({"v": self})
        made = []
        for part in self.loaded.parts:
            if part.directive is None:
                made.append(self.figures.fill(part.text))
            elif "." in part.directive:
                made.append(parts.performance(self.figures.table(part.directive.removeprefix("performance."))))  # type: ignore[attr-defined]
            else:
                made.append(getattr(parts, part.directive)())
        return "".join(made).strip() + "\n"


def _lines(block: str) -> list[tuple[str, str]]:
    """A block's lines, each with what ends it: a newline, or a backslash and a newline."""
    lines = []
    for text in block.removesuffix("\n").split("\n"):
        bare = text.removesuffix(" \\")
        lines.append((bare, " \\\n" if bare != text else "\n"))
    return lines


def _without_empty(option: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in option.items() if value or key == "when"}


def _key(selection: Selection) -> str:
    return "&".join(f"{axis}={option}" for axis, option in selection.items())


def _detail(option: object) -> str:
    if isinstance(option, HardwareOption):
        nodes = f", {option.nodes} nodes" if option.nodes > 1 else ""
        noun = vocabulary.hardware()[option.hardware].card
        return f"{option.cards} {noun}{'s' if option.cards > 1 else ''}{nodes}"
    return ""


def _result(result: Result | None) -> ArmResult | None:
    if result is None:
        return None
    parts: list[str] = []
    good = passes(result)
    if result.outcome and not result.detail:
        parts.append(result.outcome)
    if result.detail:
        parts.append(result.detail)
    if result.passed is not None and result.of is not None:
        share = "" if result.passed == result.of else f" ({share_of(result.passed, result.of)})"
        parts.append(f"{result.passed:,}/{result.of:,}{share}")
    if result.value is not None:
        parts.append(figure(interval(result.value)))
    return ArmResult(" · ".join(parts), good)


def _billions(count: Any) -> str:
    return f"{number(count / 1000).rstrip('0').rstrip('.')}T" if count >= 1000 else f"{number(count)}B"
