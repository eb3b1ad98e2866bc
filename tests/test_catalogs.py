"""A catalog says what a version of an engine accepts; a flag, a value or a parser that it does not have is a problem."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from schema.catalogs import UNTOLD, Catalog, catalog, names, problems_of, read_catalog
from schema.catalogs.__main__ import main
from schema.catalogs.reading import read
from schema.catalogs.tree import UnreadableError
from schema.checks.flags import accepted, check_accepts, check_flags
from schema.compiling import compile_axes
from schema.loading import load
from schema.models import ArgItem, Recipe, condition
from schema.problems import ProblemsError
from schema.selecting import Selection, holds, reachable
from schema.source import Loc
from support import GAUDI, MINIMAL, ROOT, SGLANG, Repository, changed

VLLM = "vllm-0.30.0"
OLD = "sglang-0.5.9"
NEW = "sglang-0.5.17"


def said(name: str | Catalog, flag: str, *values: str) -> str:
    """What is said of one flag; empty if nothing is wrong."""
    chosen = catalog(name) if isinstance(name, str) else name
    messages = [message for _, message in problems_of(chosen, [(flag, values)])]
    assert len(messages) <= 1
    return "".join(messages)


# --- the catalogs that are here -----------------------------------------------------------------------------------------


def test_catalogs_are_complete() -> None:
    sizes = {
        name: (len(found.options), len(found.tool_parsers), len(found.reasoning_parsers))
        for name in names()
        for found in [catalog(name)]
    }
    assert sizes == {VLLM: (405, 51, 34), OLD: (341, 23, 14), NEW: (492, 33, 25)}


@pytest.mark.parametrize("name", [VLLM, OLD, NEW])
def test_a_catalog_is_named_by_what_it_is_of_and_reads_well(name: str) -> None:
    text = (ROOT / f"schema/catalogs/{name}.json").read_text(encoding="utf-8")
    found = catalog(name)
    assert name == f"{found.engine}-{found.version}"
    assert found.source.startswith(f"{name}-") and found.source.endswith(".whl")
    assert list(found.options) == sorted(found.options)
    assert text.count("\n") == len(found.options) + len(found.tool_parsers) + len(found.reasoning_parsers) + 11


@pytest.mark.parametrize(
    ("name", "flag", "values"),
    [
        (VLLM, "--max-model-len", ["131072"]),
        (VLLM, "--max-model-len", ["8K"]),
        (VLLM, "--max_model_len", ["8"]),
        (VLLM, "--max-model-l", ["8"]),
        (VLLM, "-tp", ["8"]),
        (VLLM, "-t", ["8"]),
        (VLLM, "-n4", []),
        (VLLM, "-O3", []),
        (VLLM, "-O", ["3"]),
        (VLLM, "--enable-expert-parallel", []),
        (VLLM, "--no-enable-expert-parallel", []),
        (VLLM, "-ep", []),
        (VLLM, "--headless", []),
        (VLLM, "--compilation-config.mode", ["3"]),
        (VLLM, "--compilation_config.pass_config.x", ["true"]),
        (VLLM, "-cc.mode", ["3"]),
        (VLLM, "--moe-backend", ["Flashinfer-Cutlass"]),
        (VLLM, "--max-lora-rank", ["16"]),
        (VLLM, "--served-model-name", ["a", "b"]),
        (VLLM, "--allowed-origins", ['["*"]']),
        (VLLM, "--hf-token", []),
        (VLLM, "--hf-token", ["x"]),
        (VLLM, "--kv-cache-dtype", [UNTOLD]),
        (VLLM, "--tool-call-parser", [UNTOLD]),
        (VLLM, "--tool-call-parser", ["kimi_k2"]),
        (OLD, "--tp", ["8"]),
        (OLD, "--dp", ["8"]),
        (OLD, "--tensor-parallel-size", ["8"]),
        (OLD, "--model", ["x"]),
        (OLD, "--lora-paths", []),
        (OLD, "--log-requests-level", ["2"]),
        (NEW, "--tp", ["8"]),
        (NEW, "--dp", ["8"]),
        (NEW, "--model-type", ["llm"]),
        (NEW, "--enable-aiter-allreduce-fusion", []),
        (NEW, "--attention-backend", ["tokenspeed_mla"]),
        (NEW, "--tool-call-parser", ["auto"]),
        (NEW, "--reasoning-parser", ["auto"]),
        (NEW, "--cuda-graph-backend-decode", ["full"]),
        (NEW, "--no-lora-strict-loading", []),
    ],
)
def test_what_the_engine_accepts(name: str, flag: str, values: list[str]) -> None:
    assert said(name, flag, *values) == ""


@pytest.mark.parametrize(
    ("name", "flag", "values", "message"),
    [
        (VLLM, "--max-modle-len", ["8"], "vLLM 0.30.0 has no flag --max-modle-len, did you mean --max-model-len?"),
        (VLLM, "--tp", ["8"], "vLLM 0.30.0 has no flag --tp, did you mean -tp?"),
        (VLLM, "-tp8", [], "vLLM 0.30.0 has no flag -tp8, did you mean -tp?"),
        (VLLM, "--no-headless", [], "vLLM 0.30.0 has no flag --no-headless, did you mean --headless?"),
        (VLLM, "--totally", [], "vLLM 0.30.0 has no flag --totally"),
        (
            VLLM,
            "--data-parallel",
            ["2"],
            "--data-parallel is short for more than one flag of vLLM 0.30.0, --data-parallel-address",
        ),
        (VLLM, "--enforce-eager", ["1"], "--enforce-eager takes no value"),
        (VLLM, "--enforce-eager.x", ["1"], "--enforce-eager.x takes no value"),
        (VLLM, "--compilation-confg.mode", ["3"], "no flag --compilation-confg.mode, did you mean --compilation-config?"),
        (VLLM, "--port", [], "--port needs a value"),
        (VLLM, "--served-model-name", [], "--served-model-name needs a value"),
        (VLLM, "--port", ["1", "2"], "--port takes one value, not 2"),
        (VLLM, "--hf-token", ["1", "2"], "--hf-token takes one value, not 2"),
        (VLLM, "--tool-call-parser", ["bogus"], "vLLM 0.30.0 has no tool parser 'bogus'"),
        (VLLM, "--tool-call-parser", ["auto"], "vLLM 0.30.0 has no tool parser 'auto'"),
        (VLLM, "--tool_call_parser", ["kimi-k2"], "no tool parser 'kimi-k2', did you mean kimi_k2"),
        (VLLM, "--reasoning-parser", ["bogus"], "vLLM 0.30.0 has no reasoning parser 'bogus'"),
        (VLLM, "--dtype", ["fp8"], "--dtype does not take 'fp8' (known: auto, bfloat16, float, float16, float32, half)"),
        (VLLM, "--kv-cache-dtype", ["fp9"], "--kv-cache-dtype does not take 'fp9', did you mean fp8?"),
        (VLLM, "--moe-backend", ["tritn"], "--moe-backend does not take 'tritn', did you mean triton?"),
        (VLLM, "--max-lora-rank", ["17"], "--max-lora-rank does not take '17' (known: 1, 8, 16"),
        (OLD, "--enable-aiter-allreduce-fusion", [], "SGLang 0.5.9 has no flag --enable-aiter-allreduce-fusion, did you mean"),
        (OLD, "--attention-backend", ["tokenspeed_mla"], "--attention-backend does not take 'tokenspeed_mla'"),
        (OLD, "--tool-call-parser", ["auto"], "SGLang 0.5.9 has no tool parser 'auto'"),
        (OLD, "--reasoning-parser", ["bogus"], "SGLang 0.5.9 has no reasoning parser 'bogus'"),
        (OLD, "--model_path", ["x"], "SGLang 0.5.9 has no flag --model_path, did you mean --model-path?"),
        (OLD, "--model-type", ["llm"], "SGLang 0.5.9 has no flag --model-type"),
        (OLD, "--no-trust-remote-code", [], "SGLang 0.5.9 has no flag --no-trust-remote-code"),
        (NEW, "--model-type", ["lm"], "--model-type does not take 'lm', did you mean llm?"),
        (NEW, "--tool-call-parser", ["bogus"], "SGLang 0.5.17 has no tool parser 'bogus'"),
        (NEW, "--cuda-graph-backend-decode", ["half"], "--cuda-graph-backend-decode does not take 'half'"),
    ],
)
def test_what_it_does_not(name: str, flag: str, values: list[str], message: str) -> None:
    assert message in said(name, flag, *values)


def test_a_plugin_may_bring_parsers() -> None:
    flags = [("--tool-call-parser", ["own"]), ("--reasoning-parser", ["own"]), ("--tool-parser-plugin", ["own.py"])]
    assert [index for index, _ in problems_of(catalog(VLLM), flags)] == [1]


def test_every_fault_has_the_index_of_its_flag() -> None:
    flags = [("--nope-nope", []), ("--port", ["1"]), ("--port", [])]
    assert [index for index, _ in problems_of(catalog(VLLM), flags)] == [0, 2]


def test_a_name_without_a_catalog() -> None:
    for name in ("vllm-0.0.0", "../recipe.schema", ""):
        with pytest.raises(KeyError):
            catalog(name)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", ":1:2: is not JSON"),
        ("[]", ":1:1: must be an object"),
        ("[" * 100_000, ":1:1: is "),
        ('{"engine": 1}', "engine: must be text"),
        ('{"engine": "x", "version": "1", "source": "w"}', "tool_parsers: must be a list of names"),
    ],
)
def test_a_damaged_catalog_is_a_problem(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(ProblemsError) as error:
        read_catalog(file, "x.json")
    assert place in str(error.value) and "\n" not in str(error.value)
    assert "python -m schema.catalogs" in str(error.value)


@pytest.mark.parametrize("entry", [1, {}, {"value": "two"}, {"value": "one", "choices": "a"}, {"value": "one", "x": 1}])
def test_a_damaged_option_is_a_problem(tmp_path: Path, entry: Any) -> None:
    data = {"engine": "x", "version": "1", "source": "w", "tool_parsers": [], "reasoning_parsers": [], "options": {"--a": entry}}
    file = tmp_path / "x.json"
    file.write_text(json.dumps(data))
    with pytest.raises(ProblemsError, match=r"options\.--a: is no option"):
        read_catalog(file, "x.json")
    with pytest.raises(ProblemsError, match="can not be read"):
        read_catalog(tmp_path / "none.json", "none.json")


# --- recipes ------------------------------------------------------------------------------------------------------------

IMAGES = """\
axes:
  - name: image
    kind: image
    title: Image
    options:
      - {name: new, components: [{name: vLLM, version: 0.30.0}], accepts: vllm-0.30.0}
      - {name: own, components: [{name: vLLM}]}
"""


def recipe_with(launch: str = "", images: str = IMAGES) -> Recipe:
    text = changed(MINIMAL, "axes:\n", images) + launch
    return Recipe.model_validate(yaml.safe_load(text))


def held(recipe: Recipe, selection: Selection) -> list[tuple[int, ArgItem]]:
    items = enumerate(recipe.launch)
    return [(i, item) for i, item in items if isinstance(item, ArgItem) and holds(condition(item.when), selection)]


def found(recipe: Recipe) -> list[tuple[Loc, str]]:
    selections = list(reachable(compile_axes(recipe)))
    return [problem for s in selections for problem in check_flags(recipe, held(recipe, s), s)]


@pytest.mark.parametrize(("identity", "catalogs"), [(GAUDI, {(VLLM,)}), (SGLANG, {(), (OLD,), (NEW,)})])
def test_the_recipes_name_flags_that_exist(identity: str, catalogs: set[tuple[str, ...]]) -> None:
    recipe = load(ROOT / "recipes" / identity / "recipe.yaml", ROOT).recipe
    assert list(check_accepts(recipe)) == []
    assert found(recipe) == []
    assert {accepted(recipe, s) for s in reachable(compile_axes(recipe))} == catalogs


def test_flags_are_checked_for_the_image_that_names_a_catalog_alone() -> None:
    launch = """\
  - {arg: --prot, value: "1"}
  - {arg: --dtype, value: fp8}
  - {arg: --api-key, values: [a, {var: X}]}
  - {arg: --enforce-eager, values: [a]}
  - {arg: --kv-cache-dtype, value: {join: [fp, {var: X}]}}
  - {arg: --kv-cache-dtype, value: {join: [fp, "9"]}}
  - {arg: --host}
"""
    assert found(recipe_with(launch)) == [
        (("launch", 1, "arg"), "vLLM 0.30.0 has no flag --prot, did you mean --port?"),
        (("launch", 2, "value"), "--dtype does not take 'fp8' (known: auto, bfloat16, float, float16, float32, half)"),
        (("launch", 4, "values"), "--enforce-eager takes no value"),
        (("launch", 6, "value"), "--kv-cache-dtype does not take 'fp9', did you mean fp8?"),
        (("launch", 7, "arg"), "--host needs a value"),
    ]


def test_without_an_image_nothing_is_said() -> None:
    assert found(recipe_with("  - {arg: --prot}\n", images="axes:\n")) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "accepts: vllm-0.30.0",
            "accepts: vllm-0.3.0",
            "no catalog 'vllm-0.3.0' under schema/catalogs, did you mean vllm-0.30.0?",
        ),
        ("accepts: vllm-0.30.0", "accepts: sglang-0.5.9", "is a catalog of SGLang 0.5.9, and vllm-gaudi serves with vllm"),
        ("version: 0.30.0", "version: 0.31.0", "is a catalog of vLLM 0.30.0, and the components name version 0.31.0"),
    ],
)
def test_a_catalog_that_is_not_the_images(old: str, new: str, message: str) -> None:
    assert list(check_accepts(recipe_with(images=changed(IMAGES, old, new)))) == [(("axes", 0, "options", 0, "accepts"), message)]


def test_a_damaged_catalog_is_said_at_accepts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vllm-torn.json").write_text("{")
    monkeypatch.setattr("schema.catalogs.FOLDER", tmp_path)
    names.cache_clear()
    try:
        recipe = recipe_with("  - {arg: --prot}\n", changed(IMAGES, "accepts: vllm-0.30.0", "accepts: vllm-torn"))
        [(loc, message)] = check_accepts(recipe)
        assert loc == ("axes", 0, "options", 0, "accepts")
        assert message.startswith("schema/catalogs/vllm-torn.json:1:2: is not JSON")
        assert found(recipe) == []
    finally:
        names.cache_clear()


# --- reading a wheel ----------------------------------------------------------------------------------------------------

VLLM_TREE = {
    "vllm-1.2.dist-info/METADATA": "Metadata-Version: 2.4\nName: vllm\nVersion: 1.2\n",
    "vllm/tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = {'b': ('m', 'C'), 'a': ('m', 'C')}\n",
    "vllm/reasoning/__init__.py": "_REASONING_PARSERS_TO_REGISTER = {'r': ('m', 'C')}\n",
    "vllm/config/__init__.py": "from vllm.config.model import *\nfrom vllm.config.model import Config, Inner, Mode\n",
    "vllm/config/model.py": """
import torch
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from vllm.config.utils import config
if TYPE_CHECKING:
    from torch import Device
else:
    Device = bool
Mode = Literal["slow", "fast"]
Ranks = Literal[1, 16]
Both = Mode | Literal["both"]
@config
class Inner:
    x: int = 0
@config(frozen=True)
class Config:
    fixed: ClassVar[bool] = True
    seed: int = 0
    eager: bool = False
    maybe: "bool | None" = None
    token: bool | str | None = None
    mode: Mode = "slow"
    both: Both | None = None
    mode_or_text: Mode | str = "slow"
    backend: Mode = "slow"
    rank: Ranks = 1
    names: str | list[str] | None = None
    modes: list[Mode] | None = None
    parts: set[str] = field(default_factory=set)
    pair: tuple[int, int] = (1, 1)
    inner: Inner | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    kind: torch.dtype | None = None
    device: Device = None
""",
    "vllm/engine/arg_utils.py": """
import argparse
from vllm.config import Config
from vllm.platforms import current_platform
def get_kwargs(cls): raise RuntimeError
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        kwargs = get_kwargs(Config)
        group = parser.add_argument_group(title="Config", description=Config.__doc__)
        for_backend = kwargs["backend"]
        for_backend["type"] = lambda s: s.lower().replace("-", "_")
        group.add_argument("--backend", **for_backend)
        if not ("serve" in sys.argv):
            group.add_argument("--model", **kwargs["names"])
        group.add_argument("--seed", "-s", **{**kwargs["seed"], "default": None})
        group.add_argument("--eager", "-e", **kwargs["eager"])
        choices = kwargs["modes"]["choices"]
        kwargs["modes"]["choices"] += [",".join(p) for p in permutations(choices)]
        for name in ("maybe", "token", "mode", "both", "mode_or_text", "rank", "names", "modes", "parts", "pair", "inner"):
            group.add_argument(f"--{name.replace('_', '-')}", **kwargs[name])
        group.add_argument("--extra", **kwargs["extra"])
        group.add_argument("--kind", **kwargs["kind"])
        group.add_argument("--device", **kwargs["device"])
        group.add_argument("--made", choices=["a", "b"] + ([x] if x else []))
        return parser
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser, async_args_only: bool = False):
        if not async_args_only:
            parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--log", action=argparse.BooleanOptionalAction)
        current_platform.pre_register_and_update(parser)
        return parser
""",
    "vllm/entrypoints/launchers/cli_args.py": """
import argparse, json
from vllm.config import Mode, config
from vllm.engine.arg_utils import AsyncEngineArgs
class OwnAction(argparse.Action):
    pass
@config
class BaseArgs:
    chat_template: str | None = None
    origins: list[str] = field(default_factory=list)
    lora_modules: list[object] | None = None
    @classmethod
    def _customize(cls, kwargs):
        kwargs["lora_modules"]["action"] = OwnAction
        return kwargs
    @classmethod
    def add_cli_args(cls, parser):
        from vllm.engine.arg_utils import get_kwargs
        kwargs = get_kwargs(cls)
        kwargs = cls._customize(kwargs)
        group = parser.add_argument_group(title=cls.__name__.replace("Args", ""))
        for key, value in kwargs.items():
            flags = value.pop("flags", [])
            group.add_argument(*flags, f"--{key.replace('_', '-')}", **value)
        return parser
@config
class FrontendArgs(BaseArgs):
    port: int = 8000
    middleware: list[str] = field(default_factory=lambda: [])
    @classmethod
    def _customize(cls, kwargs):
        kwargs = super()._customize(kwargs)
        kwargs["origins"]["type"] = json.loads
        if "nargs" in kwargs["origins"]:
            del kwargs["origins"]["nargs"]
        kwargs["middleware"]["action"] = "append"
        del kwargs["middleware"]["nargs"]
        return kwargs
def make_arg_parser(parser):
    \"\"\"Says --help.\"\"\"
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--headless", action="store_true", help="x" + str(1))
    parser = FrontendArgs.add_cli_args(parser)
    parser = AsyncEngineArgs.add_cli_args(parser)
    return parser
raise SystemExit("imported")
""",
}

REGISTRIES = {
    "sglang/srt/function_call/function_call_parser.py": """
class FunctionCallParser:
    ToolCallParserEnum: Dict[str, Type[Base]] = {"b": B, "a": A}
""",
    "sglang/srt/parser/reasoning_parser.py": "class ReasoningParser:\n    DetectorMap = {'r': R}\n",
}

OLD_TREE = {
    "sglang-0.1.dist-info/METADATA": "Version: 0.1\n",
    **REGISTRIES,
    "sglang/srt/server_args.py": """
import argparse
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import ReasoningParser
CHOICES = ["x", "y"]
MORE = [*CHOICES, "z"]
def add_choices(choices):
    CHOICES.extend(choices)
class ServerArgs:
    def add_cli_args(parser: argparse.ArgumentParser):
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--format", type=str, choices=MORE)
        parser.add_argument("--level", type=int, choices=[0, 1])
        parser.add_argument("--level-of", type=parse_level, choices=[0, 1])
        parser.add_argument("--paths", type=str, nargs="*", action=PathAction)
        parser.add_argument("--sizes", type=int, nargs="+")
        parser.add_argument("--sum", nargs="?", const="")
        parser.add_argument("--on", action="store_true")
        parser.add_argument("--gone", action=DeprecatedAction)
        parser.add_argument("--reasoning-parser", choices=list(ReasoningParser.DetectorMap.keys()))
        tool_choices = list(FunctionCallParser.ToolCallParserEnum.keys())
        parser.add_argument("--tool-call-parser", choices=["auto"] + tool_choices)
def parse_level(text): return int(text)
class PathAction(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None): pass
class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs): pass
""",
}

NEW_TREE = {
    "sglang-0.2.dist-info/METADATA": "Version: 0.2\n",
    **REGISTRIES,
    "sglang/srt/arg_groups/arg_utils.py": "def add_cli_args_from_dataclass(parser, cls, *, fields=None): raise RuntimeError\n",
    "sglang/cli/serve.py": """
def _extract(argv):
    for arg in argv:
        if arg == "--model-type":
            kind = arg
    if kind not in ("auto", "llm"):
        raise Exception
""",
    "sglang/srt/server_args.py": """
from __future__ import annotations
import argparse, dataclasses
from enum import Enum
from sglang.srt.arg_groups.arg_utils import A, Arg, NS, add_cli_args_from_dataclass
CHOICES = ("x", "y")
class Level(Enum):
    LOW = 1
    HIGH = 2
class Backend:
    FULL = "full"
    ALL = (FULL, "none")
@dataclasses.dataclass
class ServerArgs:
    model_path: A[str, Arg(help="a", aliases=["--model"]), NS("model")]
    plain: A[bool, "a" "b", NS("x")] = False
    maybe: A[Optional[bool], f"a{1}"] = None
    tp_size: A[int, Arg(help="a" + f"b", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    format: A[str, Arg(choices=CHOICES)] = "x"
    mode: A[Optional[Literal["fast", "slow"]], "a"] = None
    empty: A[Literal[None, "m"], Arg(choices=["none", "m"])] = None
    graph: A[str, Arg(choices=Backend.ALL)] = "full"
    words: A[Optional[List[str]], "a"] = None
    parsed: A[Optional[List[str]], Arg(type_parser=json_list)] = None
    some: A[Optional[Union[set[str], List[str]]], Arg(nargs="*", choices=CHOICES)] = None
    paths: A[Optional[List[str]], Arg(action=PathAction, action_kwargs={"type": str, "nargs": "*"})] = None
    strict: A[Optional[bool], Arg(action=argparse.BooleanOptionalAction)] = None
    check: A[Optional[str], Arg(nargs="?", const="")] = None
    hidden: A[bool, Arg(no_cli=True)] = False
    inside: A[bool, NS("x")] = False
    bare: int = 0
    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument("--tool-call-parser", choices=["auto"] + list(FunctionCallParser.ToolCallParserEnum.keys()))
        parser.add_argument("--level", choices=[m.name.lower() for m in Level])
        parser.add_argument("--old", action=Alias, new_flag="--new", choices=CHOICES)
from sglang.srt.function_call.function_call_parser import FunctionCallParser
class PathAction(argparse.Action):
    pass
class Alias(argparse.Action):
    def __init__(self, option_strings, dest, new_flag=None, **kwargs): pass
""",
}


def unpack(files: Mapping[str, str], folder: Path) -> Path:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def pack(files: Mapping[str, str], file: Path) -> Path:
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return file


def one(*choices: str | int, **more: Any) -> dict[str, Any]:
    return {"value": "one", **({"choices": list(choices)} if choices else {}), **more}


NONE, MANY, ANY, OPTIONAL = ({"value": value} for value in ("none", "many", "any", "optional"))


def test_vllm_is_read(tmp_path: Path) -> None:
    facts = read(pack(VLLM_TREE, tmp_path / "vllm-1.2-py3-none-any.whl"))
    assert (facts.engine, facts.version, facts.source) == ("vllm", "1.2", "vllm-1.2-py3-none-any.whl")
    assert (facts.tool_parsers, facts.reasoning_parsers) == (["a", "b"], ["r"])
    assert facts.options == {
        **dict.fromkeys(("--headless", "--log", "--no-log", "--eager", "--no-eager", "-e", "--maybe", "--no-maybe"), NONE),
        **dict.fromkeys(("--device", "--no-device"), NONE),
        **{flag: one() for flag in ("--chat-template", "--origins", "--port", "--middleware", "--seed", "-s", "--inner")},
        **{flag: one() for flag in ("--extra", "--kind", "--mode-or-text", "--made")},
        **dict.fromkeys(("--lora-modules", "--model", "--names", "--parts", "--modes", "--pair"), MANY),
        "--token": OPTIONAL,
        "--mode": one("fast", "slow"),
        "--both": one("both", "fast", "slow"),
        "--backend": one("fast", "slow", folded=True),
        "--rank": one(1, 16),
    }
    assert facts.entries == len(facts.options) - 4 - 2


def test_old_sglang_is_read(tmp_path: Path) -> None:
    facts = read(unpack(OLD_TREE, tmp_path / "unpacked"))
    assert (facts.engine, facts.version, facts.source) == ("sglang", "0.1", "unpacked")
    assert (facts.tool_parsers, facts.reasoning_parsers) == (["a", "b"], ["r"])
    assert facts.options == {
        "--tensor-parallel-size": one(), "--tp-size": one(), "--format": one("x", "y", "z"), "--level": one(0, 1),
        "--level-of": one(), "--paths": ANY, "--sizes": MANY, "--sum": OPTIONAL, "--on": NONE, "--gone": NONE,
        "--reasoning-parser": one("r"), "--tool-call-parser": one("a", "auto", "b"),
    }  # fmt: skip


def test_new_sglang_is_read(tmp_path: Path) -> None:
    facts = read(unpack(NEW_TREE, tmp_path))
    assert facts.options == {
        "--model-path": one(), "--model": one(), "--plain": NONE, "--maybe": NONE, "--tensor-parallel-size": one(),
        "--tp-size": one(), "--format": one("x", "y"), "--mode": one("fast", "slow"), "--empty": one("m", "none"),
        "--graph": one("full", "none"), "--words": MANY, "--parsed": one(), "--some": {"value": "any", "choices": ["x", "y"]},
        "--paths": ANY, "--strict": NONE, "--no-strict": NONE, "--check": OPTIONAL, "--tool-call-parser": one("a", "auto", "b"),
        "--level": one("high", "low"), "--old": one("x", "y"), "--model-type": one("auto", "llm"),
    }  # fmt: skip


CLI = "vllm/entrypoints/launchers/cli_args.py"
ENGINE = "vllm/engine/arg_utils.py"
MODEL = "vllm/config/model.py"
SERVER = "sglang/srt/server_args.py"
FRONTEND = "parser = FrontendArgs.add_cli_args(parser)"


@pytest.mark.parametrize(
    ("tree", "path", "old", "new", "message"),
    [
        (VLLM_TREE, CLI, "make_arg_parser", "make_parser", f"{CLI}: has no make_arg_parser, which adds the options"),
        (VLLM_TREE, CLI, '"--headless", action="store_true"', "name()", f"{CLI}:HERE: an option without a name"),
        (VLLM_TREE, CLI, 'action="store_true"', "**more()", "HERE: an option with keywords that are not known: more()"),
        (VLLM_TREE, CLI, '"store_true"', '"store_some"', "HERE: --headless has an action that is not known here: 'store_some'"),
        (VLLM_TREE, CLI, 'action="store_true"', "nargs=count()", "HERE: --headless takes a number of values that is not known"),
        (VLLM_TREE, CLI, '"--headless"', '"--head less"', f"{CLI}:HERE: '--head less' is no flag"),
        (VLLM_TREE, CLI, FRONTEND, "parser = elsewhere(parser)", f"{CLI}:HERE: the parser is given to elsewhere"),
        (VLLM_TREE, CLI, FRONTEND, "parser = elsewhere(*x, parser)", f"{CLI}:HERE: the parser is given to elsewhere"),
        (VLLM_TREE, CLI, FRONTEND, "add = parser.add_argument", f"{CLI}:HERE: a use of the parser that is not followed here"),
        (VLLM_TREE, CLI, FRONTEND, "parser.parse_args()", f"{CLI}:HERE: a use of the parser that is not followed here"),
        (VLLM_TREE, CLI, FRONTEND, "while x: pass", f"{CLI}:HERE: a statement that is not followed here: while"),
        (VLLM_TREE, CLI, FRONTEND, "make_arg_parser(parser)", f"{CLI}:39: calls itself"),
        (VLLM_TREE, CLI, "kwargs.items()", "others()", f"{CLI}:HERE: a loop over what is not written out"),
        (VLLM_TREE, CLI, "= get_kwargs(cls)", "= other(cls)", "a loop over what is not written out"),
        (VLLM_TREE, CLI, "def make_arg_parser(parser):", "def make_arg_parser(parser:", f"{CLI}:HERE: is no Python"),
        (VLLM_TREE, ENGINE, 'kwargs["kind"]', 'kwargs["sort"]', f"{ENGINE}:HERE: no field sort"),
        (VLLM_TREE, MODEL, "Literal[1, 16]", "Literal[1, many]", f"{MODEL}:HERE: a Literal of what is not written out"),
        (VLLM_TREE, MODEL, "Mode = Literal", "Mode = Mode or Literal", None),
        (VLLM_TREE, MODEL, '"bool | None"', '"bool |"', f"{MODEL}:HERE: an annotation that is no expression"),
        (VLLM_TREE, MODEL, "Both = Mode", "Both = Both", f"{MODEL}:HERE: an annotation that refers to itself"),
        (VLLM_TREE, MODEL, "@config(frozen=True)\nclass Config", "class Config", f"{MODEL}:HERE: Config is no dataclass"),
        (VLLM_TREE, "vllm/reasoning/__init__.py", "_REASONING", "_OTHER", "is no mapping of parser names that is written out"),
        (VLLM_TREE, "vllm-1.2.dist-info/METADATA", "Version: 1.2", "Version:", "names no version"),
        (OLD_TREE, SERVER, 'nargs="+"', 'nargs="..."', f"{SERVER}:HERE: --sizes has an nargs that is not known here: '...'"),
        (OLD_TREE, SERVER, "def add_cli_args", "def add_args", f"{SERVER}: has no ServerArgs.add_cli_args"),
        (OLD_TREE, SERVER, "action=PathAction", "action=Other", f"{SERVER}:HERE: --paths has an action that is not known here"),
        (NEW_TREE, SERVER, "(parser, ServerArgs)", "(parser, Other)", f"{SERVER}:HERE: not all fields of a class"),
        (NEW_TREE, SERVER, "Arg(no_cli=True)", "Arg('a', *more)", f"{SERVER}:HERE: an Arg with other than keywords"),
        (NEW_TREE, "sglang/srt/parser/reasoning_parser.py", "'r': R", "**other", "is no mapping of parser names"),
    ],
)
def test_what_can_not_be_read_is_one_line(
    tmp_path: Path, tree: dict[str, str], path: str, old: str, new: str, message: str | None
) -> None:
    before, found_it, after = tree[path].partition(old)
    assert found_it
    wheel = pack({**tree, path: before + new + after}, tmp_path / "x.whl")
    if message is None:
        read(wheel)
        return
    with pytest.raises(UnreadableError) as error:
        read(wheel)
    assert message.replace("HERE", str(before.count("\n") + 1)) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_wheel_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.whl").write_text("no wheel")
    (tmp_path / "empty").mkdir()
    pack({"x-1.dist-info/METADATA": "Version: 1\n", "x/__init__.py": ""}, tmp_path / "x-1-py3-none-any.whl")
    damaged = pack(OLD_TREE, tmp_path / "damaged.whl").read_bytes()
    (tmp_path / "damaged.whl").write_bytes(damaged.replace(b"add_argument", b"bad_argument"))
    for name, message in {
        "text.whl": "is neither a wheel nor a folder",
        "none.whl": "can not be read: no such file or directory",
        "empty": "holds 0 .dist-info/METADATA",
        "x-1-py3-none-any.whl": "is no vLLM or SGLang of a known layout",
        "damaged.whl": "sglang/srt/server_args.py can not be read: Bad CRC-32",
    }.items():
        assert main([str(tmp_path / name)]) == 1
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1 and message in err and err.startswith(str(tmp_path / name))


def test_the_command_writes_a_catalog_that_can_be_read(tmp_path: Path) -> None:
    wheel = pack(VLLM_TREE, tmp_path / "vllm-1.2-py3-none-any.whl")
    command = [sys.executable, "-m", "schema.catalogs", str(wheel)]
    done = subprocess.run([*command, "-o", str(tmp_path / "vllm-1.2.json")], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "vllm 1.2: 26 options, 32 spellings; 2 tool parsers, 1 reasoning parsers\n"
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert printed.stdout == (tmp_path / "vllm-1.2.json").read_text()
    made = read_catalog(tmp_path / "vllm-1.2.json", "x.json")
    assert (made.title, made.tool_parsers) == ("vLLM 1.2", ("a", "b"))
    assert said(made, "--backend", "FAST") == ""
    assert said(made, "--rank", "2") == "--rank does not take '2' (known: 1, 16)"
    unwritable = subprocess.run([*command, "-o", str(tmp_path / "no" / "x.json")], cwd=ROOT, capture_output=True, text=True)
    assert unwritable.returncode == 1 and unwritable.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("- arg: --max-model-len", "- arg: --max-modle-len", "did you mean --max-model-len?"),
        (
            "- arg: --reasoning-parser\n    value: kimi_k2",
            "- arg: --reasoning-parser\n    value: kimi_k22",
            "did you mean kimi_k2",
        ),
        ('    value: "128"\n  - arg: --gpu', "  - arg: --gpu", "--block-size"),
    ],
)
def test_what_the_engine_does_not_accept_is_an_error_of_the_recipe(repo: Repository, old: str, new: str, said: str) -> None:
    text = (ROOT / "recipes/amd/Kimi-K2.7-Code-MXFP4/recipe.yaml").read_text("utf-8")
    text = changed(re.sub(r"^related: .*\n", "", text, flags=re.MULTILINE), old, new)
    messages = [
        str(problem) for problem in repo.with_fixes().problems(text, (ROOT / "recipes" / GAUDI / "guide.md").read_text("utf-8"))
    ]
    assert len(messages) == 1 and said in messages[0], messages
