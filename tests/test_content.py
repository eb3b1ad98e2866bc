"""What the repository's own recipes and pages hold: facts that must not change by accident, and the author's guide put to use."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.synthetic import repository
from schema.docs import field_docs
from schema.loading import ROOT, load_all
from schema.models import Recipe
from sitebuild import built_site
from support import Repository
from theme import packs, reference
from theme.pages import recipe_page

RECIPES = {loaded.identity: loaded for loaded in load_all(ROOT)}
GAUDI = RECIPES["amd/Kimi-K2.7-Code-MXFP4"]
SGLANG = RECIPES["moonshotai/Kimi-K2.7-Code"]


def test_what_is_still_to_come() -> None:
    """These paths are named by a recipe and not here yet; whoever brings one takes it off the recipe's list and off this one."""
    assert GAUDI.recipe.pending == ["ports/kimi-k2-7/PORT.md"]
    assert SGLANG.recipe.pending == []


def test_nothing_is_called_measured_here() -> None:
    assert {evidence.status for loaded in RECIPES.values() for evidence in loaded.recipe.evidence} == {"reported"}
    assert not any(evidence.own_code for loaded in RECIPES.values() for evidence in loaded.recipe.evidence)


def test_the_guide_names_nothing_that_is_not_here() -> None:
    for loaded in RECIPES.values():
        for path in re.findall(r"\b(?:fixes|ports|tests|benchmarks)/[\w./-]+", loaded.guide):
            assert (ROOT / path).exists(), f"{loaded.identity}: {path}"


def test_the_first_line_names_the_schema() -> None:
    for file in sorted((ROOT / "recipes").glob("*/*/recipe.yaml")):
        first = file.read_text("utf-8").split("\n", 1)[0]
        match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
        assert match and (file.parent / match[1]).resolve() == ROOT / "schema/recipe.schema.json"


def test_every_field_says_what_it_means() -> None:
    models = [Recipe]
    for model in models:
        for field in model.model_fields.values():
            models += [found for found in reference._models(field.annotation) if found not in models]  # type: ignore[misc]
        assert set(model.model_fields) <= set(field_docs(model)), model.__name__
    assert len(models) > 30


def _blocks(page: str, title: str) -> str:
    text = (ROOT / "site" / page).read_text("utf-8")
    match = re.search(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    assert match
    return match[1]


def test_the_author_s_guide_has_a_recipe_that_passes(repo: Repository) -> None:
    recipe = _blocks("write-a-recipe.md", "recipes/example/Tiny-Chat/recipe.yaml")
    guide = _blocks("write-a-recipe.md", "recipes/example/Tiny-Chat/guide.md")
    repo.write("recipes/example/Tiny-Chat/recipe.yaml", recipe)
    repo.write("recipes/example/Tiny-Chat/guide.md", guide)
    [loaded] = load_all(repo.root, [repo.root / "recipes/example/Tiny-Chat/recipe.yaml"])
    assert loaded.identity == "example/Tiny-Chat"
    text = (ROOT / "site/write-a-recipe.md").read_text("utf-8")
    evidence = re.search(r"^```yaml\n(evidence:.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert evidence
    repo.write("recipes/example/Tiny-Chat/recipe.yaml", recipe + "\n" + evidence[1])
    repo.write("recipes/example/Tiny-Chat/guide.md", guide + "\n{{ checks }}\n\n{{ evidence }}\n")
    repo.write("benchmarks/records/tiny-chat.json", "{}")
    [loaded] = load_all(repo.root, [repo.root / "recipes/example/Tiny-Chat/recipe.yaml"])
    assert "Verified" in recipe_page(loaded, repo.root).body


def test_pins_are_written_once() -> None:
    """Hand-written pages take commits from the recipes."""
    for page in sorted((ROOT / "site").glob("*.md")):
        text = page.read_text("utf-8")
        assert "058f107" not in text and "ced6857a" not in text and "1.24.1" not in text, page.name


def test_the_page_as_markdown_has_every_part() -> None:
    text = recipe_page(GAUDI).markdown
    for part in (
        "## Launch",
        "| Streams |",
        "| 8 | 7.5 | 56.0 | 14.8 | 95.5 | 1.97 |",
        "Reported",
        "KIMI_MXK=0",
        "## What not to do",
    ):
        assert part in text, part
    assert "{{" not in text


PROFILE = """{"name": "v9", "summary": "For one image.", "image": {"vllm": {"commit": "abc1234"}},
 "fixes": ["alpha"], "opt_in": ["beta"]}"""
FIX = """{"name": "%s", "title": "Title of %s", "symptom": "It breaks.", "cause": "A reason.", "change": "One line.",
 "shown": "It was read.",
 "upstream": ["https://example.org/1"], "files": ["vllm/a.py"]}"""


def test_profiles_and_ports_become_pages(repo: Repository) -> None:
    repo.write("fixes/profiles/v9.json", PROFILE)
    repo.write("fixes/alpha/fix.json", FIX % ("alpha", "alpha"))
    repo.write("fixes/beta/fix.json", FIX % ("beta", "beta"))
    repo.write("ports/some-model/PORT.md", "# How it was ported\n\nWords.\n")
    pages = packs.pages(Path(repo.root))
    assert set(pages) == {"fixes/v9.md", "ports/some-model.md"}
    assert pages["ports/some-model.md"].startswith("# How it was ported")
    profile = pages["fixes/v9.md"]
    for part in (
        "# Fix profile v9",
        "`abc1234`",
        "| 1 | [alpha](#alpha) | Title of alpha |",
        "| opt-in | [beta](#beta)",
        "It breaks.",
    ):
        assert part in profile, part


def test_their_pages_are_built_and_linked(tmp_path: Path) -> None:
    root = repository(tmp_path / "repository", 1)
    (root / "ports/kimi-k2-7").mkdir(parents=True)
    (root / "ports/kimi-k2-7/PORT.md").write_text("# How it was ported\n\nWords.\n", "utf-8")
    recipe = next(root.glob("recipes/*/*/recipe.yaml"))
    recipe.write_text(recipe.read_text("utf-8").replace("pending:\n  - ports/kimi-k2-7/PORT.md\n", ""), "utf-8")
    site = built_site(tmp_path / "site", root)
    profile = (site / "fixes/v0.30.0/index.html").read_text("utf-8")
    for name in ("prompt-order", "rank-exception-fatal"):
        assert f'id="{name}"' in profile
    assert "How it was ported" in (site / "ports/kimi-k2-7/index.html").read_text("utf-8")
    page = next(site.glob("recipes/*/*/index.html")).read_text("utf-8")
    assert 'href="../../../fixes/v0.30.0/#prompt-order"' in page
    assert 'href="../../../ports/kimi-k2-7/"' in page and 'href="../../../fixes/v0.30.0/"' in page
