"""Which files the fix pack changes, and which it leaves alone: places, records, originals, links, bytecode."""

from __future__ import annotations

import difflib
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixpack import catalog, editing, image, store, work
from fixtrees import EXECUTOR, Tree, fails, run, stand_in

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
SAMPLER = "vllm/v1/sample/ops/topk_topp_sampler.py"
FIXES = catalog.profile("v0.30.0").fixes

# --- places ------------------------------------------------------------------------------------------------------------


LOOP = "        for i, generator in generators.items():\n            q[i].exp"
REPLY = "            if output_rank is None or self.rank == output_rank:\n                self.handle_output(error)\n"
DETOKENIZER = "vllm/tokenizers/detokenizer_utils.py"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (RUNNER, "pd_info = self._get_prompts_and_decodes(scheduler_output)", "pd_info = None",
         "prompt-order: the call of self._get_prompts_and_decodes: found 0 times"),
        (RUNNER, "        batch_changed = self.batch_changed\n", "", "prompt-order: sample_tokens: has no batch_changed"),
        (RUNNER, "Generator(device=self.device)", "Generator()", "seeded-sampling: torch.Generator: its device: found 0"),
        (RUNNER, "        pd_info = self", "        x = 1; pd_info = self", "the statement does not begin its line"),
        (SAMPLER, LOOP, LOOP.replace("            q", "            1\n            q"), "the loop does more than draw"),
        ("vllm_gaudi/patches.py", "ids = ids.to(torch.int32)", "ids = best_ids.to(torch.int32)",
         "what is cast to torch.int32 is not the concatenation"),
        (DETOKENIZER, "def convert_ids_list_to_tokens", "def convert", "convert_ids_list_to_tokens: found 0 times"),
        (DETOKENIZER, "tokenizer.decode([one])", "tokenizer.decode(one)", "is not called with one id"),
        (EXECUTOR, REPLY, REPLY.split("\n")[1][4:] + "\n", "the handler that replies with self.handle_output: found 0 times"),
        (EXECUTOR, "class WorkerProc", "class WorkerProc:::", "is not Python"),
    ],
)  # fmt: skip
def test_a_place_that_is_not_as_expected(
    tree: Tree, capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, said: str
) -> None:
    text = tree.read(name)
    assert old in text
    (tree.root / name).write_text(text.replace(old, new), encoding="utf-8")
    message = fails(capsys, 4, tree)
    assert str(tree.root / name) in message and said in message


def test_every_place_is_told_in_one_run(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (EXECUTOR, SAMPLER):
        (tree.root / name).write_text("x = 1\n")
    (tree.root / RUNNER).unlink()
    assert fails(capsys, 4, tree).count("\n") == 3


@pytest.mark.parametrize("name", [RUNNER, EXECUTOR])
def test_a_file_changed_by_hand_is_left_alone(tree: Tree, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(tree) == 0
    with (tree.root / name).open("a") as file:
        file.write("# mine\n")
    for arguments in ((), ("--revert",), ("--verify",), ("--dry-run",)):
        assert f"{tree.root / name}: was changed since" in fails(capsys, 4, tree, *arguments)


def test_fixes_without_a_record(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree) == 0
    shutil.rmtree(tree.root / store.FOLDER)
    assert "there is no record of it: reinstall the package" in fails(capsys, 4, tree)


def test_the_record_of_a_later_pack(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree) == 0
    (tree.root / store.FOLDER / "record.json").write_text('{"format": 3, "files": {}}')
    assert "was written by another pack" in fails(capsys, 4, tree)


# --- files as they are -------------------------------------------------------------------------------------------------


def test_mode_and_line_ends_stay(tree: Tree) -> None:
    file = tree.root / EXECUTOR
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    file.chmod(0o640)
    before = file.read_bytes()
    assert run(tree) == 0
    after = file.read_bytes()
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert run(tree, "--revert") == 0
    assert file.read_bytes() == before


def test_what_shares_its_file_with_a_cache_leaves_the_cache_alone(tree: Tree, tmp_path: Path) -> None:
    """Installers put packages in place as hard links to a cache."""
    file = tree.root / EXECUTOR
    os.link(file, tmp_path / "cached")
    before = file.read_bytes()
    assert run(tree) == 0
    assert (tmp_path / "cached").read_bytes() == before != file.read_bytes()


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_stale_bytecode_is_no_trap(tree: Tree, mode: py_compile.PycInvalidationMode) -> None:
    def draws_once() -> bool:
        code = (
            "import importlib.util, sys\n"
            "module = importlib.util.spec_from_file_location('m', sys.argv[1]).loader.get_code('m')\n"
            "print('_noise' in str([code.co_varnames for code in module.co_consts if hasattr(code, 'co_varnames')]))"
        )
        done = subprocess.run([sys.executable, "-c", code, tree.root / SAMPLER], capture_output=True, text=True, check=True)
        return done.stdout == "True\n"

    py_compile.compile(str(tree.root / SAMPLER), invalidation_mode=mode)
    assert not draws_once()
    assert run(tree) == 0
    assert draws_once()
    py_compile.compile(str(tree.root / SAMPLER), invalidation_mode=mode)
    assert run(tree, "--revert") == 0
    assert not draws_once()


def test_bytecode_left_by_a_killed_run_is_no_trap(tree: Tree) -> None:
    """Killed between the file and its bytecode: the next run, which has no file to write, removes it."""
    cached = Path(
        py_compile.compile(str(tree.root / SAMPLER), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH) or ""
    )
    stale = cached.read_bytes()
    assert run(tree) == 0
    assert not cached.exists()
    cached.write_bytes(stale)
    assert run(tree) == 0
    assert not cached.exists()


# --- editing -----------------------------------------------------------------------------------------------------------


def test_columns_count_characters() -> None:
    module = editing.Module('a = "äöü𝄞"; b = f(x)\n', "test")
    module.replace(module.calls(module.tree, "f")[0], "g(y)")
    assert module.result() == 'a = "äöü𝄞"; b = g(y)\n'


def test_changes_that_meet_are_refused() -> None:
    module = editing.Module("a = f(g(x))\n", "test")
    module.replace(module.calls(module.tree, "f")[0], "1")
    module.replace(module.calls(module.tree, "g")[0], "2")
    with pytest.raises(editing.PlaceError, match="two changes meet"):
        module.result()


def test_a_plan_changes_nothing_else(tree: Tree) -> None:
    """What is not edited stays byte for byte: without the lines that were added or replaced, the file is what it was."""
    packages = image.find(["vllm", "vllm_gaudi"], tree.root)
    for file in work.plan(lambda _: catalog.fixes(FIXES), [], packages, store.Store(tree.root)).files:
        before, after = file.original.decode().splitlines(), iter(file.wanted.decode().splitlines())
        kept = _subsequence(before, after)
        assert len(before) - kept <= 3, file.name


def _subsequence(lines: list[str], others: Iterator[str]) -> int:
    found = list(others)
    return sum(block.size for block in difflib.SequenceMatcher(None, lines, found, autojunk=False).get_matching_blocks())


@pytest.mark.parametrize("odd", list("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), ids=ascii)
def test_what_python_does_not_call_the_end_of_a_line(odd: str) -> None:
    """str.splitlines ends lines at form feeds and line separators as well."""
    text = f"def f():\n    # {odd}\n    s = '{odd}'\n    x = g(1)\n    return x\n"
    module = editing.Module(text, "test")
    call = module.calls(module.tree, "g")[0]
    module.replace(call, "h(2)")
    module.before(module.statement(module.tree, call), "# here")
    assert module.result() == text.replace("    x = g(1)", "    # gaudi-cookbook: test\n    # here\n    x = h(2)")


def test_a_form_feed_before_a_statement(tree: Tree) -> None:
    """Python takes the indentation from what follows the form feed."""
    module = editing.Module("if a:\n\x0c    b = 1\n", "test")
    module.before(module.tree.body[0].body[0], "c = 1")  # type: ignore[attr-defined]
    assert module.result() == "if a:\n    # gaudi-cookbook: test\n    c = 1\n\x0c    b = 1\n"


def test_a_byte_order_mark_stays(tree: Tree) -> None:
    file = tree.root / EXECUTOR
    fresh = file.read_bytes()
    file.write_bytes(b"\xef\xbb\xbf" + fresh)
    assert run(tree) == 0
    assert file.read_bytes().startswith(b'\xef\xbb\xbf"""A stand-in')
    assert run(tree, "--revert") == 0
    assert file.read_bytes() == b"\xef\xbb\xbf" + fresh


DEEP = ["-" * 100_000 + "1", "(" * 100_000 + ")" * 100_000, "a" + ".b" * 100_000, "x = " + "+".join(["1"] * 100_000)]


@pytest.mark.parametrize("source", DEEP, ids=["minus", "parentheses", "names", "sum"])
def test_a_source_that_is_nested_too_deep(tree: Tree, capsys: pytest.CaptureFixture[str], source: str) -> None:
    (tree.root / EXECUTOR).write_text(source + "\n")
    said = fails(capsys, 4, tree)
    assert said.count("\n") == 1 and f"{tree.root / EXECUTOR}: rank-exception-fatal: " in said
    stand_in(tree.root)
    (tree.root / "vllm/_version.py").write_text(source + "\n")
    assert "vllm of unknown version" in fails(capsys, 3, tree)


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--verify",), ("--dry-run",)])
def test_a_symbolic_link_is_refused(
    tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """What it points to may be shared, as an installer's cache; and it would be no link any more."""
    file = tree.root / EXECUTOR
    file.rename(tmp_path / "shared.py")
    file.symlink_to(tmp_path / "shared.py")
    assert f"{file}: is a symbolic link to {tmp_path}/shared.py: put a copy in its place" in fails(capsys, 4, tree, *arguments)
    subprocess.run(["cp", "--remove-destination", tmp_path / "shared.py", file], check=True)
    assert run(tree) == 0, "the cure that was named"


def test_a_package_in_a_linked_folder(tree: Tree, tmp_path: Path, patched: dict[str, bytes]) -> None:
    (tree.root / "vllm").rename(tmp_path / "elsewhere")
    (tree.root / "vllm").symlink_to(tmp_path / "elsewhere")
    assert run(tree) == 0
    assert (tree.root / "vllm").is_symlink()
    assert (tmp_path / "elsewhere/v1/executor/multiproc_executor.py").read_bytes() == patched[EXECUTOR]
    assert run(tree, "--verify") == 0
