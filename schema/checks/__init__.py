"""What a recipe can be wrong about as a whole: names that refer to nothing, commands that can not work, missing files.

Each check is a generator of problems over one recipe that is well formed; every reachable selection is looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from schema.checks import choices, evidence, flags, launch, paths, texts
from schema.checks.texts import check_guide
from schema.compiling import compile_axes
from schema.figures import Figures
from schema.models import Recipe
from schema.problems import Problem
from schema.selecting import reachable
from schema.source import Source

__all__ = ["MAX_SELECTIONS", "check", "check_guide"]

MAX_SELECTIONS = 4096


def check(recipe: Recipe, source: Source, folder: Path, root: Path, figures: Figures | None = None) -> Iterator[Problem]:
    """Everything but the guide.  ``folder`` holds the recipe, ``root`` is the repository."""
    figures = figures or Figures(recipe)
    yield from paths.place(source, folder)
    axes_problems = list(choices.axes(recipe, source))
    yield from axes_problems
    yield from (source.problem(loc, message) for loc, message in flags.check_accepts(recipe))
    if not axes_problems:
        axes = compile_axes(recipe)
        selections = list(itertools.islice(reachable(axes), MAX_SELECTIONS + 1))
        if len(selections) > MAX_SELECTIONS:
            yield source.problem(("axes",), f"give more than {MAX_SELECTIONS:,} selections: split the recipe")
        else:
            yield from choices.options_reached(recipe, source, selections)
            yield from launch.launch(recipe, source, selections)
        yield from evidence.evidence(recipe, source, axes)
    yield from evidence.results(recipe, source)
    yield from evidence.tables(recipe, source, figures)
    yield from paths.paths(recipe, source, folder, root)
    yield from texts.texts(recipe, source, figures)
