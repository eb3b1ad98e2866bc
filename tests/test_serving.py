"""``mkdocs serve``: what is edited is served without a restart, and a mistake shows on the page."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from schema.loading import ROOT

GAUDI = "recipes/amd/Kimi-K2.7-Code-MXFP4"


class Served:
    """A copy of the repository, served."""

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self.address = f"http://127.0.0.1:{port}/"

    def shows(self, path: str, text: str, patience: float = 60) -> bool:
        """Whether a page shows a text, now or soon."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(self.address + path, timeout=10) as answer:
                    content = answer.read().decode()
            except urllib.error.HTTPError as error:
                content = error.read().decode()
            except (urllib.error.URLError, OSError):
                content = ""
            if content and text in content:
                return True
            time.sleep(0.1)
        return False

    def gone(self, path: str, text: str, patience: float = 60) -> bool:
        """Whether a page no longer shows a text, now or soon."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if not self.shows(path, text, patience=0.3):
                return True
            time.sleep(0.2)
        return False

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("served")
    for name in ("schema", "theme", "site", "recipes", "fixes"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "mkdocs.yml", root)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (root / "log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "mkdocs", "serve", "-a", f"127.0.0.1:{port}"],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        it = Served(root, port)
        assert it.shows("", "Find the model and the hardware"), (root / "log").read_text()
        yield it
    finally:
        server.terminate()
        server.wait()
    assert "Traceback" not in (root / "log").read_text()


@pytest.mark.xdist_group("serving")
@pytest.mark.parametrize(
    ("file", "old", "new", "page", "shown"),
    [
        (f"{GAUDI}/recipe.yaml", "/models/Kimi-K2.7-Code-MXFP4", "/srv/kimi", f"{GAUDI}/launch.sh", "KIMI_MXFP4_DIR=/srv/kimi"),
        (f"{GAUDI}/guide.md", "Kimi-K2.7-Code is a mixture", "This edited model is a mixture", f"{GAUDI}/", "This edited model"),
        ("theme/templates/recipe.html", "Checks at a glance", "Checks in a word", f"{GAUDI}/", "Checks in a word"),
        (
            "theme/overrides/assets/cookbook.css",
            "--cb-radius: 0.4rem",
            "--cb-radius: 0.41rem",
            "assets/cookbook.css",
            "--cb-radius: 0.41rem",
        ),
        ("site/evidence.md", "# Evidence", "# Evidence, edited", "evidence/", "Evidence, edited"),
    ],
    ids=["recipe", "guide", "template", "style sheet", "page"],
)
def test_an_edit_is_served(served: Served, file: str, old: str, new: str, page: str, shown: str) -> None:
    assert served.shows(page, "") and not served.shows(page, shown, patience=0.2)
    served.edit(file, old, new)
    assert served.shows(page, shown)


@pytest.mark.xdist_group("serving")
def test_a_mistake_shows_on_the_page_and_goes_with_its_cure(served: Served) -> None:
    mistake = "recipe.yaml:3:1: sumary: unknown key, did you mean summary?"
    file = f"{GAUDI}/recipe.yaml"
    served.edit(file, "engine: vllm-gaudi", "sumary: twice\nengine: vllm-gaudi")
    text = (served.root / file).read_text("utf-8").split("\n")
    line = next(number for number, content in enumerate(text, 1) if content.startswith("sumary"))
    assert served.shows(f"{GAUDI}/", mistake.replace(":3:", f":{line}:"))
    assert served.shows(f"{GAUDI}/launch.sh", "vllm serve"), "the pages stay"
    served.edit(file, "sumary: twice\n", "")
    assert served.gone(f"{GAUDI}/", "unknown key")


@pytest.mark.xdist_group("serving")
def test_a_new_recipe_appears(served: Served) -> None:
    folder = served.root / "recipes/acme/Another"
    shutil.copytree(served.root / "recipes/moonshotai/Kimi-K2.7-Code", folder)
    assert served.shows("recipes.json", "acme/Another")
    assert served.shows("recipes/acme/Another/", "acme")
    shutil.rmtree(folder)


@pytest.mark.xdist_group("serving")
@pytest.mark.parametrize(
    ("file", "old", "new", "shown"),
    [
        (
            "schema/vocabulary/statuses.yaml",
            "  title: Measured",
            "  titel: Measured",
            "schema/vocabulary/statuses.yaml:3:3: measured.titel: is no status entry: unknown key",
        ),
        ("theme/overrides/main.html", "{% extends", "{% if %}{% extends", "overrides/main.html:2:1: "),
        ("site/index.md", "# Recipes", "\x00 # Recipes", "site/index.md:"),
    ],
    ids=["vocabulary", "frame", "page"],
)
def test_a_mistake_elsewhere_is_shown_and_goes_with_its_cure(served: Served, file: str, old: str, new: str, shown: str) -> None:
    served.edit(file, old, new)
    assert served.shows("evidence/", shown)
    served.edit(file, new, old)
    assert served.gone("evidence/", shown)
    assert served.shows("", "Find the model and the hardware")


@pytest.mark.xdist_group("serving")
def test_what_mkdocs_says_is_shown(served: Served) -> None:
    served.edit("site/evidence.md", "# Evidence", "# Evidence\n\n[a link](nowhere.md)")
    assert served.shows("", "nowhere.md")
    served.edit("site/evidence.md", "\n\n[a link](nowhere.md)", "")
    assert served.shows("", "Find the model and the hardware")


@pytest.mark.xdist_group("serving")
def test_a_name_that_no_file_has(served: Served) -> None:
    assert served.shows("recipes/%00/", "no file has this name")


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "serve", "-a", address],
            cwd=ROOT,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 1
    assert f"{address}: address already in use: choose another, as mkdocs serve -a 127.0.0.1:8001" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
