"""What the tests share: small recipes to change, a repository to put them in, and programs that record how they are called."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schema.loading import LoadedRecipe, load, load_all
from schema.models import Recipe
from schema.problems import Problem, ProblemsError

ROOT = Path(__file__).resolve().parent.parent
GAUDI = "amd/Kimi-K2.7-Code-MXFP4"
SGLANG = "moonshotai/Kimi-K2.7-Code"

MINIMAL = """\
summary: A small model on two cards.
engine: vllm-gaudi
model:
  base: acme/Small
  total_parameters_b: 7
  architecture: dense transformer
  kind: dense
  context_tokens: 4096
  inputs: [text]
  licence: {name: MIT}
axes:
  - name: hardware
    kind: hardware
    title: Hardware
    options:
      - {name: two, hardware: gaudi2, cards: 2}
  - name: variant
    kind: variant
    title: Variant
    options:
      - {name: plain, precision: bf16, model: acme/Small, weights_gb: 14}
launch:
  - serve: [vllm, serve, acme/Small]
"""
"""The least that is a recipe."""

RICH = """\
summary: A small model, the first token after {{ measurements.ttft.base }} s.
engine: vllm-gaudi
model:
  base: acme/Small
  total_parameters_b: 7
  architecture: dense transformer
  kind: dense
  context_tokens: 4096
  inputs: [text]
  licence: {name: MIT}
axes:
  - name: hardware
    kind: hardware
    title: Hardware
    options:
      - {name: two, hardware: gaudi2, cards: 2}
      - {name: four, hardware: gaudi2, cards: 4}
  - name: variant
    kind: variant
    title: Variant
    options:
      - {name: plain, precision: bf16, model: acme/Small, weights_gb: 14}
      - {name: half, precision: fp8, model: acme/Small-FP8, when: {hardware: four}, because: Run on four cards only.}
  - name: cache
    kind: feature
    title: Prefix cache
    default: "off"
    options:
      - {name: "on", title: "On"}
      - {name: "off", title: "Off"}
requires:
  - {variable: COOKBOOK, means: The checkout.}
launch:
  - {env: DIR, value: /models/small}
  - {env: CACHE, value: "1", when: {cache: "on"}}
  - comment: Prepare the image.
  - run: [python3, {join: [{var: COOKBOOK}, /fixes/apply_all.py]}]
    stop_on_failure: true
  - serve: [vllm, serve, {var: DIR}]
  - {arg: --tensor-parallel-size, value: "2"}
  - {arg: --max-model-len, value: "4096"}
  - {arg: --enable-auto-tool-choice}
  - {arg: --tool-call-parser, value: hermes}
  - {arg: --port, value: "8000"}
fixes:
  profile: v1
  required:
    - {name: first-fix, because: Nothing works without it.}
port: small
pending: [fixes/apply_all.py, fixes/profiles/v1.json, ports/small/PORT.md]
related: [acme/Other]
links:
  - {title: Model, url: "https://example.org/acme/Small"}
evidence:
  - name: page
    title: A page
    status: reported
    by: Its authors
    own_code: false
    source: The page
    conditions: Two cards
    arms:
      - name: base
        title: Cache off
        selection: {hardware: two, variant: plain, cache: "off"}
      - name: old
        title: An older build
        setup: {description: Somewhere else}
checks:
  - name: golden
    title: Golden answers
    results:
      base: {passed: 11, of: 12}
      old: {value: {low: 1, high: 2}}
measurements:
  - name: ttft
    title: First token
    unit: s
    values: {base: 1.5}
    details: {base: alone}
    measured_as: One request
performance:
  - name: speed
    title: Speed
    method: Tokens over time
    measured_as: Two cards
    rows: {name: streams, title: Streams, values: [1, 2]}
    columns:
      - {name: fast, title: Fast, arm: base, values: [10, {low: 20, high: 21}]}
      - {name: slow, title: Slow, arm: old, values: [5, null]}
    derived:
      - {name: gain, title: Gain, compute: ratio, of: [fast, slow]}
    charts:
      - {title: Both, columns: [fast, slow]}
  - name: words
    title: By name
    method: As above
    measured_as: Two cards
    rows: {name: task, title: Task, values: [Reading, Writing]}
    columns:
      - {name: score, title: Score, arm: base, values: [0.5, 0.25]}
notes:
  - Served with `--max-model-len`.
known_issues:
  - text: None worse than {{ performance.speed.fast[1] }}.
avoid:
  - Do not unplug it.
"""
"""A recipe with something in every field."""

GUIDE = """\
## A guide

{{ configuration }}

The fastest is {{ performance.speed.fast[1] }}.

{{ checks }}

{{ measurements }}

{{ performance.speed }}

{{ performance.words }}

{{ known_issues }}

{{ avoid }}

{{ evidence }}
"""
"""A guide that fits the rich recipe."""


def changed(text: str, old: str, new: str) -> str:
    """A text with its one occurrence of ``old`` replaced."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new)


def as_yaml(value: Any) -> str:
    """Data as one line of YAML, every text in double quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{as_yaml(key)}: {as_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value)) + '"'
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def _escaped(character: str) -> str:
    if " " <= character <= "~":
        return f"\\{character}" if character in '"\\' else character
    return f"\\U{ord(character):08x}"


@dataclass(frozen=True)
class Repository:
    """A repository in a folder of its own."""

    root: Path

    def write(self, path: str, text: str) -> Path:
        """Write one file of it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
        return file

    def recipe(self, text: str = MINIMAL, guide: str | None = None, identity: str = "acme/Small") -> Path:
        """Write a recipe, and its guide if there is one."""
        if guide is not None:
            self.write(f"recipes/{identity}/guide.md", guide)
        return self.write(f"recipes/{identity}/recipe.yaml", text)

    def load(self, text: str = MINIMAL, guide: str | None = None, identity: str = "acme/Small") -> LoadedRecipe:
        """Write a recipe and load it."""
        return load(self.recipe(text, guide, identity), self.root)

    def problems(self, text: str = MINIMAL, guide: str | None = None, identity: str = "acme/Small") -> list[Problem]:
        """Write a recipe and return what is wrong with it."""
        try:
            self.load(text, guide, identity)
        except ProblemsError as error:
            return error.problems
        return []

    def with_fixes(self) -> Repository:
        """The same, with this repository's own fixes, which the Gaudi recipe names."""
        shutil.copytree(ROOT / "fixes", self.root / "fixes", ignore=shutil.ignore_patterns("__pycache__"))
        return self

    def all_problems(self) -> list[Problem]:
        """What is wrong with all of it."""
        try:
            load_all(self.root)
        except ProblemsError as error:
            return error.problems
        return []


STAND_IN = """\
#!{python} -IS
import json, os, sys
call = {{
    "argv": [os.path.basename(sys.argv[0]), *(os.fsencode(word).decode() for word in sys.argv[1:])],
    "env": {{name.decode(): value.decode() for name, value in os.environb.items()}},
}}
with open(os.environ["RECORD"], "a") as file:
    file.write(json.dumps(call) + "\\n")
sys.exit(call["argv"][0] == os.environ.get("FAILING"))
"""


@dataclass(frozen=True)
class Call:
    """How a program was called: what it got beside the shell's own variables."""

    argv: list[str]
    env: dict[str, str]


@dataclass(frozen=True)
class Shell:
    """A real bash, on whose PATH the programs of launch blocks are stand-ins that record their call and do nothing."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> Shell:
        """Make the stand-ins under a folder."""
        programs = folder / "programs"
        programs.mkdir()
        for name in ("vllm", "sglang", "python3", "prepare"):
            (programs / name).write_text(STAND_IN.format(python=sys.executable))
            (programs / name).chmod(0o755)
        (folder / "work").mkdir()
        return cls(folder)

    def run(self, blocks: Sequence[str], *, failing: str = "", locale: str = "C.UTF-8") -> list[tuple[int, list[Call]]]:
        """Run each block with bash, as a user would; for each the exit code, and the calls in their order."""
        work = self.folder / "work"
        outside = {
            "PATH": f"{self.folder / 'programs'}:/usr/bin:/bin",
            "COOKBOOK": "/opt/cook book",
            "LC_ALL": locale,
            **({"FAILING": failing} if failing else {}),
        }
        for number, block in enumerate(blocks):
            (work / f"{number}.sh").write_bytes(block.encode())
            (work / f"{number}.calls").unlink(missing_ok=True)
        driver = 'for ((i = 0; i < $1; i++)); do RECORD=$PWD/$i.calls bash "$i.sh" >&2; echo $?; done'
        done = subprocess.run(
            ["/bin/bash", "-c", driver, "driver", str(len(blocks))], cwd=work, env=outside, capture_output=True, text=True
        )
        assert not done.stderr, done.stderr
        codes = [int(line) for line in done.stdout.split()]
        shells_own = {*outside, "RECORD", "PWD", "OLDPWD", "SHLVL", "_"}
        results = []
        for number, code in enumerate(codes):
            record = work / f"{number}.calls"
            calls = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
            results.append((code, [Call(c["argv"], _without(c["env"], shells_own)) for c in calls]))
        stray = {path.name for path in work.iterdir() if path.suffix not in (".sh", ".calls")}
        assert not stray, f"a block made {stray}"
        return results


def _without(env: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in names}


def recipe_of(engine: str, launch: list[Any], options: Sequence[str] = ()) -> Recipe:
    """A recipe with that launch list, and a feature axis ``choice`` with those options if there are any."""
    card = {"vllm-gaudi": "gaudi2", "sglang": "H200"}[engine]
    variant = {"name": "plain", "precision": "bf16", "model": "acme/Small"}
    axes: list[Any] = [
        {"name": "hardware", "kind": "hardware", "title": "H", "options": [{"name": "a", "hardware": card, "cards": 1}]},
        {"name": "variant", "kind": "variant", "title": "V", "options": [variant]},
    ]
    if options:
        axes.append({"name": "choice", "kind": "feature", "title": "C", "options": [{"name": name} for name in options]})
    return Recipe.model_validate(
        {
            "summary": "A recipe.",
            "engine": engine,
            "model": {
                "base": "acme/Small",
                "total_parameters_b": 1,
                "architecture": "dense",
                "kind": "dense",
                "context_tokens": 4096,
                "inputs": ["text"],
                "licence": {"name": "MIT"},
            },
            "axes": axes,
            "launch": launch,
        }
    )


def run(*arguments: str | Path, cwd: Path | None = None, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run ``build_site.py`` of a repository in a process of its own."""
    command = [sys.executable, str(root / "build_site.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd or root, capture_output=True, encoding="utf-8", timeout=120)
