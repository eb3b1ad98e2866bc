"""Recipes for programs and for the terminal: the JSON Schema, the listing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schema import models, vocabulary
from schema.block import selections
from schema.docs import field_docs, model_docs
from schema.facts import badge
from schema.loading import ROOT, LoadedRecipe, load_all
from schema.models import HardwareOption, Recipe, VariantOption
from schema.problems import Problem

SCHEMA_FILE = "schema/recipe.schema.json"


def json_schema() -> str:
    """The JSON Schema (2020-12) of ``recipe.yaml``, generated from the models."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema()}
    for name, part in {"Recipe": schema, **schema["$defs"]}.items():
        docs = field_docs(getattr(models, name)) if hasattr(models, name) else {}
        if name in model_docs():
            # In one order, whether pydantic found the docstring or a Python without docstrings had none to find.
            ordered = sorted(
                {**part, "description": model_docs()[name]}.items(), key=lambda item: (item[0] != "$schema", item[0])
            )
            part.clear()
            part.update(ordered)
        for field, properties in part.get("properties", {}).items():
            if field in docs:
                properties["description"] = docs[field].replace("``", "`")
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def schema_problems(root: Path = ROOT) -> Iterator[Problem]:
    """A problem if the committed JSON Schema is not the one that the models give."""
    file = root / SCHEMA_FILE
    try:
        current = file.read_text(encoding="utf-8") == json_schema()
    except (OSError, UnicodeDecodeError):
        current = False
    if not current:
        cure = f"run: python build_site.py --schema -o {SCHEMA_FILE}"
        yield Problem(SCHEMA_FILE, 1, 1, "", f"is not what the models give; {cure}")


def hardware_names(loaded: LoadedRecipe) -> list[str]:
    """The kinds of hardware that a recipe offers, in its order."""
    options = [o for axis in loaded.recipe.axes for o in axis.options if isinstance(o, HardwareOption)]
    return list(dict.fromkeys(option.hardware for option in options))


def precision_names(loaded: LoadedRecipe) -> list[str]:
    """The precisions that a recipe offers, in its order."""
    options = [o for axis in loaded.recipe.axes for o in axis.options if isinstance(o, VariantOption)]
    return list(dict.fromkeys(option.precision for option in options))


def status(loaded: LoadedRecipe) -> tuple[str, str]:
    """The best badge of any selection of a recipe, as level and text; the text says of how many, if it is not all."""
    levels = ("verified", "measured", "reported", "failed", "none")
    badges = [badge(loaded.recipe, selection) for selection in selections(loaded.program)]
    best = min(badges, key=lambda item: levels.index(item.level))
    count = sum(item.level == best.level for item in badges)
    return best.level, best.text if count == len(badges) else f"{best.text} ({count} of {len(badges)})"


def listing(root: Path = ROOT) -> str:
    """A table of all recipes for the terminal."""
    rows = [("RECIPE", "ENGINE", "HARDWARE", "PRECISION", "SELECTIONS", "STATUS")]
    for loaded in load_all(root):
        rows.append(
            (
                loaded.identity,
                vocabulary.engines()[loaded.recipe.engine].title,
                ", ".join(vocabulary.hardware()[name].title for name in hardware_names(loaded)),
                ", ".join(vocabulary.precisions()[name].title for name in precision_names(loaded)),
                str(len(selections(loaded.program))),
                status(loaded)[1],
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n" for row in rows)
