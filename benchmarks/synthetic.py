"""Repositories of many recipes for the benchmarks: the first recipe's own files over and over, each with figures of its own."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_MODEL = ROOT / "recipes/amd/Kimi-K2.7-Code-MXFP4"
_FIGURE = re.compile(r"(?<=[ \[])\d+\.\d(?=[,\]])")


def write_recipe(root: Path, number: int) -> Path:
    """Write recipe ``number``: as large as the real one, with other figures and another name.  Returns its ``recipe.yaml``."""
    chance = random.Random(number)
    folder = root / "recipes" / f"owner-{number % 40:02d}" / f"Model-{number:05d}"
    folder.mkdir(parents=True, exist_ok=True)
    text = (_MODEL / "recipe.yaml").read_text("utf-8")
    text = text.replace("related: [moonshotai/Kimi-K2.7-Code]\n", "")
    text = text.replace("Kimi-K2.7-Code-MXFP4", f"Model-{number:05d}").replace("order: 1\n", f"order: {number}\n")
    text = _FIGURE.sub(lambda match: f"{max(float(match[0]), 1) * chance.uniform(0.8, 1.2):.1f}", text)
    # A range's low end must stay below its high end, and a sweep's figures are all that changes.
    text = re.sub(r"\{low: ([\d.]+), high: [\d.]+\}", lambda match: f"{{low: {match[1]}, high: {float(match[1]) + 1:.1f}}}", text)
    guide = (_MODEL / "guide.md").read_text("utf-8")
    words = " ".join(chance.choices(re.sub(r"[{}]", "", guide).split(), k=60))
    guide += f"\n## Log\n\nThis is recipe {number}; {words}\n"
    (folder / "recipe.yaml").write_text(text, "utf-8")
    (folder / "guide.md").write_text(guide, "utf-8")
    return folder / "recipe.yaml"


def repository(folder: Path, recipes: int) -> Path:
    """A repository with this one's code and site, and so many recipes instead of its own."""
    for name in ("schema", "theme", "site", "fixes"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "build_site.py"):
        shutil.copy2(ROOT / name, folder / name)
    # Hand-written pages link to the real recipes, which are not here.
    for page in (folder / "site").glob("*.md"):
        text = page.read_text("utf-8")
        text = re.sub(r"\]\(recipe:[^)]*\)", "](index.md)", text)
        page.write_text(re.sub(r"\{\{ *[\w.-]+/[\w.-]+:[^}]*\}\}", "a pin", text), "utf-8")
    (folder / "recipes").mkdir(exist_ok=True)
    for number in range(recipes):
        write_recipe(folder, number)
    return folder


def peers(folder: Path, built: Path) -> Path:
    """The same pages' text as a plain project of Material, which Zensical reads as well: one Markdown file a recipe."""
    docs = folder / "docs"
    docs.mkdir(parents=True)
    nav = ["- index.md"]
    (docs / "index.md").write_text("# Recipes\n", "utf-8")
    for page in sorted((built / "recipes").glob("*/*/index.md")):
        place = docs / "recipes" / page.parent.parent.name / f"{page.parent.name}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, place)
        nav.append(f"- {page.parent.name}: {place.relative_to(docs).as_posix()}")
    config = [
        "site_name: Peers",
        "site_url: http://localhost/",
        "theme: {name: material, font: false, features: [content.code.copy]}",
        "plugins: [search]",
        "markdown_extensions: [tables, pymdownx.highlight, pymdownx.superfences]",
        "nav:",
        *(f"  {line}" for line in nav),
    ]
    (folder / "mkdocs.yml").write_text("\n".join(config) + "\n", "utf-8")
    return folder
