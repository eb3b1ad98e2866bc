"""``make bench``: prints each figure beside its budget, as a ratio of runs made side by side in this very run.

Times are CPU seconds (user and system) of whole processes.  ``--recipes N`` makes a smaller run, for which the budgets of the
site do not hold as stated; ``--only NAME`` runs one part.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen

from benchmarks.measuring import Line, cpu_seconds, in_turns, say, surroundings
from benchmarks.repacking import repacking
from benchmarks.synthetic import ROOT, peers, repository, write_recipe

PYTHON = sys.executable
RECIPE = "amd/Kimi-K2.7-Code-MXFP4"


def startup(_: int) -> Iterator[Line]:
    """``--export-shell``, unchanged and changed since the last check."""
    with tempfile.TemporaryDirectory() as name:
        folder = repository(Path(name), 0)
        shutil.copytree(ROOT / "recipes", folder / "recipes", dirs_exist_ok=True)
        export = [PYTHON, "build_site.py", "--export-shell", RECIPE]
        cached = folder / ".cookbook-cache"

        def changed() -> float:
            shutil.rmtree(cached, ignore_errors=True)
            return cpu_seconds(export, folder)

        cpu_seconds(export, folder)
        times = in_turns(
            {
                "pass": lambda: cpu_seconds([PYTHON, "-c", "pass"], folder),
                "import": lambda: cpu_seconds([PYTHON, "-c", "import yaml; from pydantic import BaseModel"], folder),
                "changed": changed,
                "unchanged": lambda: cpu_seconds(export, folder),
            },
            25,
        )
        shown = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in times.items())
    yield Line("--export-shell, unchanged / python -c pass", times["unchanged"] / times["pass"], 2, "x", shown)
    yield Line("--export-shell, changed / import yaml, pydantic", times["changed"] / times["import"], 1.2, "x", shown)


def checking(recipes: int) -> Iterator[Line]:
    """``--check``: per recipe after start-up, and how it grows."""
    counts = (max(recipes // 10, 1), recipes)
    times = []
    for count in (0, *counts):
        with tempfile.TemporaryDirectory() as name:
            folder = repository(Path(name), count)
            check = [PYTHON, "build_site.py", "--check"]
            times.append(in_turns({"check": lambda c=check, f=folder: cpu_seconds(c, f)}, 3)["check"])  # type: ignore[misc]
    each = [1000 * (taken - times[0]) / count for taken, count in zip(times[1:], counts)]
    yield Line(
        f"--check, ms a recipe at {recipes:,}", each[1], 3, "ms", f"{each[0]:.2f} ms at {counts[0]:,}; start-up {times[0]:.2f} s"
    )


def site(recipes: int) -> Iterator[Line]:
    """The whole site: cold, unchanged, against the peers over the same text; an edit until it is served."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        ours = repository(base / "ours", recipes)
        build = [PYTHON, "build_site.py"]
        say(f"building {recipes:,} recipes")
        cold = cpu_seconds(build, ours)
        again = cpu_seconds(build, ours)
        other = peers(base / "peers", ours / "_site")
        say("building the same text with Material")
        material = cpu_seconds([PYTHON, "-m", "mkdocs", "build", "-q"], other)
        yield Line(
            f"build of {recipes:,}, cold / Material", cold / material, 1 / 7, "x", f"{cold:.1f} s, Material {material:.1f} s"
        )
        yield Line(f"build of {recipes:,}, unchanged / Material", again / material, 1 / 20, "x", f"{again:.1f} s")
        zensical = shutil.which("zensical", path=os.path.dirname(PYTHON))
        if zensical is None:
            raise RuntimeError("zensical is not installed in this environment: run make bench")
        shutil.rmtree(other / "site", ignore_errors=True)
        say("building the same text with Zensical")
        taken = cpu_seconds([zensical, "build", "--clean"], other)
        yield Line(f"build of {recipes:,}, cold / Zensical", cold / taken, 1 / 4, "x", f"Zensical {taken:.1f} s")
        say("editing one recipe while serving")
        ours_edit = _edit_to_served(ours, [], _edit_recipe)
        theirs_edit = _edit_to_served(other, ["--dirty"], _edit_page)
        yield Line(
            f"edit to served at {recipes:,} / Material --dirty",
            ours_edit / theirs_edit, 1, "x", f"{ours_edit:.2f} s, Material {theirs_edit:.2f} s of wall time",
        )  # fmt: skip


def growth(recipes: int) -> Iterator[Line]:
    """The cost of a page at few and at many recipes."""
    counts = (recipes * 3 // 10, recipes * 3)
    times = []
    for count in (0, *counts):
        with tempfile.TemporaryDirectory() as name:
            say(f"building {count:,} recipes")
            times.append(cpu_seconds([PYTHON, "build_site.py"], repository(Path(name), count)))
    few, many = ((taken - times[0]) / count for taken, count in zip(times[1:], counts))
    yield Line(
        f"a page at {counts[1]:,} / at {counts[0]:,} recipes", many / few, 1.2, "x", f"{1000 * few:.1f} and {1000 * many:.1f} ms"
    )


def weight(_: int) -> Iterator[Line]:
    """Everything that the first view of a recipe page loads, gzipped."""
    cpu_seconds([PYTHON, "build_site.py"], ROOT)
    place = ROOT / "_site/recipes" / RECIPE
    html = (place / "index.html").read_text("utf-8")
    files = {"index.html": place / "index.html"}
    for tag in re.findall(r"<(?:link|script)\b[^>]*>", html):
        match = re.search(r'(?:href|src)="(?!data:)([^"]+\.(?:css|js|svg))"', tag)
        if match and 'rel="alternate"' not in tag:
            files[match[1]] = place / match[1]
    for source in re.findall(r'<img[^>]*src="([^"]+)"', html):
        files[source] = place / source
    sizes = {name: len(gzip.compress(path.read_bytes(), 9)) for name, path in files.items()}
    shown = ", ".join(f"{Path(name).name} {size / 1000:.1f}" for name, size in sizes.items())
    yield Line("a recipe page, first view, kB gzipped", sum(sizes.values()) / 1000, 60, "kB", shown)


def _edit_recipe(folder: Path) -> tuple[str, str]:
    file = write_recipe(folder, 7)
    mark = f"edited {time.time_ns()}"
    file.write_text(file.read_text("utf-8").replace("summary: >-\n", f"summary: >-\n  {mark}\n"), "utf-8")
    return f"recipes/{file.parent.parent.name}/{file.parent.name}/", mark


def _edit_page(folder: Path) -> tuple[str, str]:
    file = folder / "docs/recipes/owner-07/Model-00007.md"
    mark = f"edited {time.time_ns()}"
    file.write_text(f"{file.read_text('utf-8')}\n\n{mark}\n", "utf-8")
    return "recipes/owner-07/Model-00007/", mark


def _edit_to_served(folder: Path, options: list[str], edit: Callable[[Path], tuple[str, str]]) -> float:
    """Seconds from saving a file until the served page shows the change: median of three."""
    port = "8731"
    command = [PYTHON, "-u", "-m", "mkdocs", "serve", "-a", f"127.0.0.1:{port}", *options]
    with Popen(command, cwd=folder, env=surroundings(), stdout=DEVNULL, stderr=DEVNULL) as server:
        try:
            _until(f"http://127.0.0.1:{port}/", "", 900)
            taken = []
            for _ in range(3):
                time.sleep(2)
                started = time.perf_counter()
                path, mark = edit(folder)
                _until(f"http://127.0.0.1:{port}/{path}", mark, 900)
                taken.append(time.perf_counter() - started)
        finally:
            server.terminate()
    return sorted(taken)[1]


def _until(address: str, text: str, patience: float) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=patience) as answer:
                if text in answer.read().decode():
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise RuntimeError(f"{address} did not show {text!r}")


PARTS: dict[str, Callable[[int], Iterator[Line]]] = {
    "startup": startup,
    "weight": weight,
    "check": checking,
    "site": site,
    "growth": growth,
    "repack": repacking,
}


def main() -> int:
    """Run the parts and print their lines; the exit code is 1 if a budget is not held."""
    parser = argparse.ArgumentParser("benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", type=int, default=1000, metavar="N")
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    held = True
    for name in options.only or PARTS:
        say(f"== {name}")
        try:
            for line in PARTS[name](options.recipes):
                print(line, flush=True)
                held = held and line.held
        except RuntimeError as error:
            print(f"benchmarks: {name}: {error}", file=sys.stderr)
            held = False
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
