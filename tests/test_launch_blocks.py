"""Launch blocks: what the published pages say, in a real shell, whatever the data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schema.block import argv, describe, environment, render, selections
from schema.compiling import compile_program
from schema.loading import load
from schema.quoting import is_shells_own, quote, quote_word
from schema.selecting import resolve
from support import GAUDI, MINIMAL, ROOT, SGLANG, Call, Repository, Shell, as_yaml, changed, recipe_of

GAUDI_LINES = """\
export KIMI_MXFP4_DIR=/models/Kimi-K2.7-Code-MXFP4
export KIMI_MXK=1
export PT_HPU_LAZY_MODE=1
export PT_HPU_ENABLE_LAZY_COLLECTIVES=true
export PT_HPUGRAPH_DISABLE_TENSOR_CACHE=1
export VLLM_GRAPH_RESERVED_MEM=0.3
export VLLM_SKIP_WARMUP=true
export VLLM_EXPONENTIAL_BUCKETING=false
export VLLM_PROMPT_BS_BUCKET_MIN=1
export VLLM_PROMPT_BS_BUCKET_STEP=1
export VLLM_PROMPT_BS_BUCKET_MAX=1
export VLLM_PROMPT_QUERY_BUCKET_MIN=512
export VLLM_PROMPT_QUERY_BUCKET_STEP=512
export VLLM_PROMPT_QUERY_BUCKET_MAX=2048
export VLLM_PROMPT_CTX_BUCKET_MIN=0
export VLLM_PROMPT_CTX_BUCKET_STEP=256
export VLLM_PROMPT_CTX_BUCKET_MAX=1024
export VLLM_DECODE_BS_BUCKET_MIN=1
export VLLM_DECODE_BS_BUCKET_STEP=1
export VLLM_DECODE_BS_BUCKET_MAX=8
export VLLM_DECODE_BLOCK_BUCKET_MIN=256
export VLLM_DECODE_BLOCK_BUCKET_STEP=512
export VLLM_DECODE_BLOCK_BUCKET_MAX=8192
export VLLM_MOE_CHUNK=256
export VLLM_MOE_TOKEN_BOUNDARY=2048
export PT_HPU_QKV_SLICE_SEQ_LEN_THLD=128
export VLLM_ENGINE_ITERATION_TIMEOUT_S=7200
export VLLM_RPC_TIMEOUT=7200000
export VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=3600

python3 "$COOKBOOK/fixes/apply_all.py" --profile v0.30.0 || exit 1

vllm serve "$KIMI_MXFP4_DIR" \\
  --served-model-name amd/Kimi-K2.7-Code-MXFP4 \\
  --tensor-parallel-size 8 \\
  --enable-expert-parallel \\
  --max-model-len 131072 \\
  --max-num-seqs 8 \\
  --enable-chunked-prefill \\
  --max-num-batched-tokens 2048 \\
  --block-size 128 \\
  --gpu-memory-utilization 0.9 \\
  --language-model-only \\
  --enable-auto-tool-choice \\
  --tool-call-parser kimi_k2 \\
  --reasoning-parser kimi_k2 \\
  --trust-remote-code
""".splitlines()
"""The published block, without its comments."""

MXFP4_ENV = {
    "SGLANG_USE_AITER": "1",
    "HIP_FORCE_DEV_KERNARG": "1",
    "SGLANG_EXPERT_PARALLEL_SIZE": "1",
    "SGLANG_USE_DYNAMIC_MXFP4_LINEAR": "0",
    "TORCH_BLAS_PREFER_HIPBLASLT": "1",
    "TENSILE_STREAMK_DYNAMIC_GRID": "6",
    "AITER_QUICK_REDUCE_QUANTIZATION": "INT4",
    "AITER_USE_FLYDSL_MOE_SORTING": "1",
    "AITER_AR_1STAGE_MAX_KB": "512",
    "AITER_MXFP4_INTERMEDIATE": "1",
    "ROCM_QUICK_REDUCE_QUANTIZATION": "INT4",
}
MXFP4_COMMAND = """\
sglang serve --model-path amd/Kimi-K2.7-Code-MXFP4 --tp 4 --trust-remote-code --attention-backend aiter
--mem-fraction-static 0.90 --kv-cache-dtype fp8_e4m3 --disable-radix-cache --enable-aiter-allreduce-fusion
--host 0.0.0.0 --port 30000
"""
IMAGES = {
    ("MI300X", "INT4"): "v0.5.9-rocm700-mi30x",
    ("MI325X", "INT4"): "v0.5.9-rocm700-mi30x",
    ("MI350X", "INT4"): "v0.5.9-rocm700-mi35x",
    ("MI355X", "INT4"): "v0.5.9-rocm700-mi35x",
    ("MI350X", "MXFP4"): "v0.5.17-rocm720-mi35x",
    ("MI355X", "MXFP4"): "v0.5.17-rocm720-mi35x",
}


@cache
def program(identity: str) -> dict[str, Any]:
    """The launch program of one of the cookbook's recipes."""
    return load(ROOT / "recipes" / identity / "recipe.yaml").program


def without_comments(block: str) -> list[str]:
    return [line for line in block.splitlines() if not line.startswith("#")]


# --- what the published pages say ------------------------------------------------------------------------------------


def test_gaudi_default_is_the_published_block() -> None:
    block = render(program(GAUDI), resolve(program(GAUDI)["axes"], {}))
    assert without_comments(block) == GAUDI_LINES
    assert block.endswith("trust-remote-code\n")


def test_gaudi_without_kernels_differs_in_one_line() -> None:
    block = render(program(GAUDI), resolve(program(GAUDI)["axes"], {"kernels": "off"}))
    expected = [line.replace("KIMI_MXK=1", "KIMI_MXK=0") for line in GAUDI_LINES]
    assert sum(a != b for a, b in zip(expected, GAUDI_LINES, strict=True)) == 1
    assert without_comments(block) == expected


def published(hardware: str, quantization: str, reasoning: bool, tools: bool, dp: bool) -> tuple[dict[str, str], list[str]]:
    """Environment and argv by the rules of SGLang's own generator."""
    amd = hardware.startswith("MI")
    if quantization == "MXFP4":
        return MXFP4_ENV, MXFP4_COMMAND.split()
    tp = "8" if hardware in ("H200", "B300") else "4"
    command = ["sglang", "serve", "--model-path", "moonshotai/Kimi-K2.7-Code", "--tp", tp]
    command += ["--mem-fraction-static", "0.8"] if amd else []
    command += ["--trust-remote-code"]
    command += ["--dp", tp, "--enable-dp-attention"] if dp else []
    command += ["--reasoning-parser", "kimi_k2"] if reasoning else []
    command += ["--tool-call-parser", "kimi_k2"] if tools else []
    command += ["--attention-backend", "tokenspeed_mla"] if hardware in ("B300", "GB300") else []
    command += ["--kv-cache-dtype", "fp8_e4m3"] if amd or hardware in ("B300", "GB300") else []
    command += ["--host", "0.0.0.0", "--port", "30000"]
    return ({"SGLANG_USE_AITER": "1", "SGLANG_ROCM_FUSED_DECODE_MLA": "0"} if amd else {}), command


def sglang_selections() -> list[tuple[dict[str, str], tuple[dict[str, str], list[str]]]]:
    """Every selection there should be, with what it should run."""
    expected = []
    for hardware in ("H200", "B300", "GB300", "MI300X", "MI325X", "MI350X", "MI355X"):
        for quantization in ("INT4", "MXFP4"):
            if quantization == "MXFP4" and hardware not in ("MI350X", "MI355X"):
                continue
            selection = {"hardware": hardware, "quantization": quantization}
            if (hardware, quantization) in IMAGES:
                selection["image"] = IMAGES[hardware, quantization]
            if quantization == "MXFP4":
                expected.append((selection, published(hardware, quantization, False, False, False)))
                continue
            for bits in range(8):
                on = [bool(bits & 1), bool(bits & 2), bool(bits & 4)]
                names = zip(("reasoning-parser", "tool-parser", "dp-attention"), on, strict=True)
                features = {name: "on" if state else "off" for name, state in names}
                expected.append(({**selection, **features}, published(hardware, quantization, *on)))
    return expected


def test_every_sglang_selection_runs_what_the_generator_gives() -> None:
    def key(selection: dict[str, str]) -> list[tuple[str, str]]:
        return sorted(selection.items())

    found = {str(key(s["selection"])): (s["env"], s["argv"]) for s in describe(program(SGLANG))["selections"]}
    expected = {str(key(selection)): command for selection, command in sglang_selections()}
    assert len(expected) == 58
    assert found == expected
    assert [list(env) for env, _ in found.values()] == [list(expected[key][0]) for key in found]


def test_sglang_has_33_distinct_commands() -> None:
    every = [(tuple(s["env"].items()), tuple(s["argv"])) for s in describe(program(SGLANG))["selections"]]
    assert (len(every), len(set(every))) == (58, 33)


@pytest.mark.parametrize("hardware", ["H200", "B300", "GB300", "MI300X", "MI325X", "MI350X", "MI355X"])
def test_sglang_default_of_each_hardware(hardware: str) -> None:
    selection = resolve(program(SGLANG)["axes"], {"hardware": hardware})
    quantization = "MXFP4" if hardware in ("MI350X", "MI355X") else "INT4"
    parsers = quantization == "INT4"
    expected = published(hardware, quantization, parsers, parsers, False)
    assert (environment(program(SGLANG), selection), argv(program(SGLANG), selection)) == expected


# --- in a real shell -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [GAUDI, SGLANG])
def test_every_block_runs_what_is_described(identity: str, shell: Shell) -> None:
    described = describe(program(identity))["selections"]
    results = shell.run([selection["shell"] for selection in described])
    assert len(results) == len(described)
    for selection, (code, calls) in zip(described, results, strict=True):
        assert code == 0
        assert calls[-1] == Call(selection["argv"], selection["env"])
        assert len(calls) == (2 if identity == GAUDI else 1)


def test_fixes_are_applied_before_the_server_starts(shell: Shell) -> None:
    block = render(program(GAUDI), resolve(program(GAUDI)["axes"], {}))
    [(code, calls)] = shell.run([block])
    assert code == 0
    assert [call.argv[0] for call in calls] == ["python3", "vllm"]
    assert calls[0].argv == ["python3", "/opt/cook book/fixes/apply_all.py", "--profile", "v0.30.0"]


@pytest.mark.parametrize("kernels", ["on", "off"])
def test_no_server_starts_when_the_fixes_fail(kernels: str, shell: Shell) -> None:
    block = render(program(GAUDI), resolve(program(GAUDI)["axes"], {"kernels": kernels}))
    [(code, calls)] = shell.run([block], failing="python3")
    assert code == 1
    assert [call.argv[0] for call in calls] == ["python3"]


@pytest.mark.parametrize("failing", ["vllm", "sglang"])
def test_the_exit_code_is_the_server_s(failing: str, shell: Shell) -> None:
    block = program(GAUDI if failing == "vllm" else SGLANG)
    [(code, _)] = shell.run([render(block, resolve(block["axes"], {}))], failing=failing)
    assert code == 1


def test_blocks_pass_bash_n_and_shellcheck(tmp_path: Path) -> None:
    blocks = {selection["shell"] for name in (GAUDI, SGLANG) for selection in describe(program(name))["selections"]}
    for number, block in enumerate(sorted(blocks)):
        (tmp_path / f"{number}.sh").write_text(block, encoding="utf-8")
    files = sorted(map(str, tmp_path.iterdir()))
    parsed = subprocess.run(["bash", "-c", 'for f; do bash -n "$f"; done', "bash", *files], capture_output=True, text=True)
    assert (parsed.returncode, parsed.stderr) == (0, "")
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"
    checked = subprocess.run([shellcheck, "-s", "bash", "-e", "SC2016", *files], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")


# --- whatever the data -----------------------------------------------------------------------------------------------

NASTY = [
    "", " ", "a b", "  a  ", "'", '"', "\\", "a\\", "\\\\'", "''", "it's", "$(touch canary)", "`touch canary`", "$HOME",
    "${IFS}", "; touch canary", "\ntouch canary\n", "\n", "a\nb", "\r\n", "\t", "& touch canary &", "|touch canary", "*", "?",
    "[a-z]*", "~", "~root", "a:~", "{a,b}", "{1..3}", "!", "!!", "!$", "#", "# a", "a#b", "-x", "--flag", "-", "--", "=x",
    "a=b", "A=~", "<(touch canary)", ">canary", "2>canary", "(", ")", "$'\\n'", '$"x"', "%s", "%", "^", "é", "\u2028", "日本",
    "\u202eevil\u202c", "\u200b", "\ufeff", "\x01a", "\x1b[31m", "\x7f", "\x85", "\xa0", "\U0001f600", "\U0010ffff", "\\x41",
    "\x01\x62", "EOF", "if", "A+=1", '{"a": 1, "b": [2, 3]}', '{"method":"x","n":3}', "a;b", "$1", "$@", "$$", "\\\n", "a\\\nb",
]  # fmt: skip
"""Words that shells do things with."""

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.one_of(
    st.sampled_from(NASTY),
    st.text("ab \n\t'\"\\$`!*?[]{}~#&;|<>()=-%,:/^\x01\u202e", max_size=10),
    st.text(characters, max_size=12),
    st.lists(st.sampled_from(NASTY), max_size=3).map("".join),
)
locales = st.sampled_from(["C", "C.UTF-8"])


def test_nasty_words_alone(shell: Shell) -> None:
    assert in_bash(NASTY, "C.UTF-8", shell.folder) == NASTY


@settings(max_examples=50)
@given(st.lists(texts, min_size=1, max_size=80), locales)
def test_quote_gives_the_text_back(tmp_path: Path, words: list[str], locale: str) -> None:
    assert in_bash(words, locale, tmp_path) == words
    for word in words:
        assert len(quote(word).splitlines()) == 1


def in_bash(words: list[str], locale: str, folder: Path) -> list[str]:
    """What bash makes of quoted words: as arguments, and as values of a variable."""
    script = f"printf '%s\\0' {' '.join(map(quote, words))}\n"
    script += "".join(f"export A={quote(word)}; printf '%s\\0' \"$A\"\n" for word in words)
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    env = {"LC_ALL": locale, "PATH": "/usr/bin:/bin", "HOME": "/home/x"}
    done = subprocess.run(["bash"], input=script.encode(), cwd=empty, env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not list(empty.iterdir())
    found = done.stdout.decode().split("\0")[:-1]
    assert found[len(words) :] == words
    return found[: len(words)]


def test_variables_that_bash_keeps_for_itself_are_known() -> None:
    script = """
        for name in $(compgen -v) _ EPOCHSECONDS MAPFILE REPLY; do
            value=$(bash -c "export $name=17; exec /usr/bin/printenv $name" 2>&1)
            [[ $value == 17 ]] || echo "$name"
        done
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    kept = set(done.stdout.split())
    assert {"UID", "PPID", "RANDOM", "_"} <= kept
    assert {name for name in kept if not is_shells_own(name)} == set()
    assert not any(map(is_shells_own, ["HOME", "LD_PRELOAD", "VLLM_PORT", "UIDS", "MY_PATH", "PATH_TO_MODEL", "OPTIONS"]))


@given(st.lists(texts | st.sampled_from([{"var": "A"}, {"var": "B"}]), min_size=1, max_size=6))
@example([{"var": "A"}, "", "b"])
@example([{"var": "A"}, "", {"var": "B"}])
@example([{"var": "A"}, "[0]"])
@example(["", ""])
def test_quoted_words_put_text_and_variables_together(word: list[Any]) -> None:
    values = {"A": "a $b  *'\"", "B": "-\\"}
    script = f"printf '%s\\0' {quote_word(word)}"
    done = subprocess.run(["bash", "-c", script], env={"PATH": "/usr/bin:/bin", **values}, capture_output=True)
    expected = "".join(piece if isinstance(piece, str) else values[piece["var"]] for piece in word)
    assert (done.stdout, done.stderr) == (expected.encode() + b"\0", b"")


@st.composite
def launches(draw: st.DrawFn, engine: str) -> tuple[list[Any], list[list[str]], dict[str, str]]:
    """A launch list, with the argv of each program that it should run and the environment of the last."""
    env: dict[str, str] = {}

    def word() -> tuple[Any, str]:
        known = sorted(env) if engine == "vllm-gaudi" else []
        shape = draw(st.sampled_from(["text", "text", "var", "join"] if known else ["text", "text", "join"]))
        if shape == "text":
            text = draw(texts)
            return text, text
        if shape == "var":
            name = draw(st.sampled_from(known))
            return {"var": name}, env[name]
        pieces: list[Any] = []
        value = ""
        for _ in range(draw(st.integers(1, 4))):
            name = draw(st.sampled_from([*known, ""]))
            text = env[name] if name else draw(texts)
            pieces.append({"var": name} if name else text)
            value += text
        return {"join": pieces}, value

    items: list[Any] = [{"comment": "$(touch canary) `touch canary` \\"}] if draw(st.booleans()) else []
    run = [word() for _ in range(draw(st.integers(0, 2)))]
    items.append({"run": ["prepare", *(piece for piece, _ in run)], "stop_on_failure": draw(st.booleans())})
    for number in range(draw(st.integers(0, 3))):
        piece, value = word()
        items.append({"env": f"V{number}", "value": piece})
        env[f"V{number}"] = value
    serve = [word() for _ in range(draw(st.integers(0, 2)))]
    name = {"vllm-gaudi": "vllm", "sglang": "sglang"}[engine]
    items.append({"serve": [name, *(piece for piece, _ in serve)]})
    argv = [name, *(value for _, value in serve)]
    for number in range(draw(st.integers(0, 3))):
        flag, shape = f"--flag{number}", draw(st.sampled_from(["alone", "value", "equals", "values"]))
        words = [word() for _ in range({"alone": 0, "values": 3}.get(shape, 1))]
        item: dict[str, Any] = {"arg": flag}
        if shape == "values":
            item["values"] = [piece for piece, _ in words]
        elif shape != "alone":
            item.update(value=words[0][0], equals=shape == "equals")
        items.append(item)
        argv += [f"{flag}={words[0][1]}"] if shape == "equals" else [flag, *(value for _, value in words)]
    return items, [["prepare", *(value for _, value in run)], argv], env


@settings(max_examples=80)
@given(launches("vllm-gaudi"), launches("sglang"), locales)
def test_arbitrary_text_arrives_as_it_is(shell: Shell, exported: Any, inline: Any, locale: str) -> None:
    programs = []
    for engine, (items, calls, env) in (("vllm-gaudi", exported), ("sglang", inline)):
        made = compile_program("acme/Small", recipe_of(engine, items))
        selection = resolve(made["axes"], {})
        assert environment(made, selection) == env
        assert argv(made, selection) == calls[1]
        block = render(made, selection)
        assert block.splitlines() == block.split("\n")[:-1]
        assert sum(line != "" for line in block.splitlines()) == 3 + len(items)
        programs.append(block)
    for (items, argvs, env), (code, calls) in zip((exported, inline), shell.run(programs, locale=locale), strict=True):
        assert code == 0, items
        assert [call.argv for call in calls] == argvs
        assert calls[-1].env == env


@settings(max_examples=40)
@given(st.lists(texts, min_size=1, max_size=5))
def test_text_from_a_file_is_the_text_of_the_block(repo: Repository, words: list[str]) -> None:
    items = [{"env": f"V{number}", "value": word} for number, word in enumerate(words)]
    text = changed(MINIMAL, "launch:\n", "".join(["launch:\n", *(f"  - {as_yaml(item)}\n" for item in items)]))
    loaded = repo.load(text)
    assert environment(loaded.program, resolve(loaded.program["axes"], {})) == {f"V{i}": w for i, w in enumerate(words)}


def test_conditions_choose_lines_and_their_comments(repo: Repository) -> None:
    items = [
        {"comment": "only with a", "when": {"choice": "a"}},
        {"env": "A", "value": "1", "when": {"choice": "a"}},
        {"comment": "always"},
        {"env": "B", "value": "2", "when": {"choice": ["b", "c"]}},
        {"env": "C", "value": "3"},
        {"serve": ["vllm", "serve", "x"]},
        {"arg": "--a", "when": {"choice": ["a", "b"]}},
        {"arg": "--last"},
    ]
    made = compile_program("acme/Small", recipe_of("vllm-gaudi", items, ["a", "b", "c"]))
    bodies = {s["choice"]: render(made, s).split("\n", 3)[3] for s in selections(made)}
    end = "vllm serve x \\\n{}  --last\n"
    assert bodies["a"] == "# only with a\nexport A=1\n\n# always\nexport C=3\n\n" + end.format("  --a \\\n")
    assert bodies["b"] == "# always\nexport B=2\nexport C=3\n\n" + end.format("  --a \\\n")
    assert bodies["c"] == "# always\nexport B=2\nexport C=3\n\n" + end.format("")
