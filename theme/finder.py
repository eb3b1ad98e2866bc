"""The home page's finder: a card for each recipe, and the facets that filter the cards."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from markupsafe import Markup

from schema import vocabulary
from schema.block import selections
from schema.export import hardware_names, precision_names, status
from schema.facts import chosen, memory_gb, weights_gb
from schema.loading import LoadedRecipe
from schema.models import HardwareOption, VariantOption
from theme.pages import environment


@dataclass(frozen=True)
class Fit:
    """One way to run a recipe, as the finder asks for it.  ``need_gb``: the memory of all the cards that it is launched on."""

    hardware: str
    precision: str
    need_gb: int


@dataclass(frozen=True)
class Card:
    """What the home page and the listings for programs say of a recipe."""

    identity: str
    summary: str
    engine: str
    engine_title: str
    hardware: list[str]
    precisions: list[str]
    weights: str
    level: str
    status: str
    selections: int
    fits: list[Fit]

    @property
    def words(self) -> str:
        """What a word typed into the finder is looked for in."""
        return " ".join([self.identity, self.engine_title, *self.hardware, *self.precisions])

    @property
    def fits_json(self) -> str:
        """The fits for the finder's script."""
        return json.dumps([[fit.hardware, fit.precision, fit.need_gb] for fit in self.fits], separators=(",", ":"))


def card(loaded: LoadedRecipe) -> Card:
    """The card of a recipe."""
    fits: dict[Fit, None] = {}
    weights: dict[str, None] = {}
    every = selections(loaded.program)
    for selection in every:
        options = chosen(loaded.recipe, selection)
        hardware = next((option.hardware for option in options if isinstance(option, HardwareOption)), "")
        precision = next((option.precision for option in options if isinstance(option, VariantOption)), "")
        size = weights_gb(loaded.recipe, selection)
        if size is not None:
            weights[f"{size:,f} GB in {vocabulary.precisions()[precision].title}"] = None
        fits[Fit(hardware, precision, memory_gb(loaded.recipe, selection))] = None
    return Card(
        identity=loaded.identity,
        summary=loaded.figures.fill(loaded.recipe.summary),
        engine=loaded.recipe.engine,
        engine_title=vocabulary.engines()[loaded.recipe.engine].title,
        hardware=[vocabulary.hardware()[name].title for name in hardware_names(loaded)],
        precisions=[vocabulary.precisions()[name].title for name in precision_names(loaded)],
        weights=" / ".join(weights),
        level=status(loaded)[0],
        status=status(loaded)[1],
        selections=len(every),
        fits=list(fits),
    )


def card_from(data: dict[str, object]) -> Card:
    """A card from what :func:`card_data` gave."""
    fits = [Fit(**fit) for fit in data["fits"]]  # type: ignore[attr-defined]
    return Card(**{**data, "fits": fits})  # type: ignore[arg-type]


def card_data(item: Card) -> dict[str, object]:
    """A card as plain data, for the cache."""
    return asdict(item)


def finder(cards: list[Card]) -> Markup:
    """The finder's HTML: the facets that the recipes have, and every card."""
    hardware = {fit.hardware: vocabulary.hardware()[fit.hardware].title for item in cards for fit in item.fits if fit.hardware}
    precisions = {
        fit.precision: vocabulary.precisions()[fit.precision].title for item in cards for fit in item.fits if fit.precision
    }
    facets = [
        ("engine", "Engine", {item.engine: item.engine_title for item in cards}),
        ("hardware", "Hardware", hardware),
        ("precision", "Precision", precisions),
    ]
    return Markup(environment().get_template("finder.html").render(cards=cards, facets=facets))  # noqa: S704 - autoescaped


def llms_txt(cards: list[Card], name: str, description: str) -> str:
    """``llms.txt`` (llmstxt.org): what is here, for a reader that is a program; addresses are relative to the file."""
    lines = [f"# {name}", "", f"> {description}", ""]
    lines += [
        "Each recipe's folder holds `launch.sh` (the launch block of the default selection), `recipe.json` (every selection",
        "with its environment, argv and block) and `index.md` (the page as Markdown). `recipes.json` lists all recipes.",
        "",
        "## Recipes",
        "",
    ]
    for item in cards:
        about = f"{item.engine_title}; {', '.join(item.hardware)}; {', '.join(item.precisions)}; {item.status}"
        lines.append(f"- [{item.identity}](recipes/{item.identity}/index.md): {item.summary} ({about})")
    return "\n".join(lines) + "\n"


def recipes_json(cards: list[Card]) -> str:
    """``recipes.json``: the list of all recipes, with where each one's data lies."""
    recipes = [
        {
            "id": item.identity,
            "summary": item.summary,
            "engine": item.engine,
            "hardware": list(dict.fromkeys(fit.hardware for fit in item.fits)),
            "precisions": list(dict.fromkeys(fit.precision for fit in item.fits)),
            "status": item.status,
            "selections": item.selections,
            "page": f"recipes/{item.identity}/",
            "json": f"recipes/{item.identity}/recipe.json",
            "shell": f"recipes/{item.identity}/launch.sh",
            "markdown": f"recipes/{item.identity}/index.md",
        }
        for item in cards
    ]
    return json.dumps({"recipes": recipes}, indent=1, ensure_ascii=False) + "\n"
