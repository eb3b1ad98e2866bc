"""The fix pack as a tool: all or nothing, twice is once, and no crash, race or foreign hand leaves a file torn."""

from __future__ import annotations

import difflib
import errno
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import crashing
from apply_all import main
from fixpack import catalog, editing, image, store, work
from fixtrees import EXECUTOR, Tree, stand_in, write_version
from support import ROOT

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
SAMPLER = "vllm/v1/sample/ops/topk_topp_sampler.py"
FIXES = catalog.profile("v0.30.0").fixes


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return stand_in(tmp_path / "site")


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What every file shall be."""
    made = stand_in(tmp_path_factory.mktemp("patched"))
    assert run(made) == 0
    return made.contents()


def run(tree: Tree, *arguments: str) -> int:
    return main(["--profile", tree.profile, "--site-packages", str(tree.root), *arguments])


def fails(capsys: pytest.CaptureFixture[str], code: int, tree: Tree, *arguments: str) -> str:
    """A run that fails, writes nothing and says why on standard error."""
    before = everything(tree)
    capsys.readouterr()
    assert run(tree, *arguments) == code
    out, said = capsys.readouterr()
    assert out == "" and said.startswith("apply_all.py: ")
    assert everything(tree) == before
    return said


def everything(tree: Tree) -> dict[str, bytes]:
    return {str(path.relative_to(tree.root)): path.read_bytes() for path in sorted(tree.root.rglob("*")) if path.is_file()}


# --- what it does ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", catalog.profiles())
def test_apply_verify_revert(tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    tree = stand_in(tmp_path / "site", profile)
    fresh = everything(tree)
    assert run(tree, "--verify") == 1
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["missing"] * 5
    assert everything(tree) == fresh, "--verify writes nothing"
    assert run(tree) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["applied", fix] for fix in FIXES]
    assert run(tree, "--verify") == 0
    after = tree.contents()
    assert sorted(name for name in after if after[name] != fresh[name]) == sorted(
        {name for fix in catalog.fixes(FIXES) for name in fix.edits}
    )
    assert run(tree, "--revert") == 0
    assert everything(tree) == fresh
    assert run(tree, "--revert") == 0
    assert capsys.readouterr().out.endswith("nothing to revert\n")


def test_twice_is_once(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree) == 0
    once = everything(tree)
    stamps = {path: path.stat().st_mtime_ns for path in tree.root.rglob("*.py")}
    capsys.readouterr()
    assert run(tree) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"already"}
    assert everything(tree) == once
    assert {path: path.stat().st_mtime_ns for path in tree.root.rglob("*.py")} == stamps


def test_dry_run_is_a_diff_that_patch_applies(tree: Tree, patched: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    fresh = everything(tree)
    assert run(tree, "--dry-run") == 0
    diff = capsys.readouterr().out
    assert everything(tree) == fresh
    subprocess.run(["patch", "-s", "-p1"], input=diff, text=True, cwd=tree.root, check=True)
    assert tree.contents() == patched
    shutil.rmtree(tree.root)
    assert run(stand_in(tree.root)) == 0
    capsys.readouterr()
    assert run(tree, "--dry-run") == 0
    assert capsys.readouterr().out == "nothing to change\n"


def test_one_fix_comes_and_goes_alone(tree: Tree, patched: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    fresh = tree.contents()
    assert run(tree, "--only", "seeded-sampling") == 0
    assert capsys.readouterr().out.split()[:2] == ["applied", "seeded-sampling"]
    changed = {name for name, content in tree.contents().items() if content != fresh[name]}
    assert changed == {RUNNER, SAMPLER}
    assert b"prompt-order" not in tree.contents()[RUNNER]
    assert run(tree, "--verify") == 1
    assert capsys.readouterr().out.count("missing") == 4
    assert run(tree) == 0
    assert tree.contents() == patched, "the order of the profile holds, whatever came first"
    capsys.readouterr()
    assert run(tree, "--revert", "--only", "prompt-order") == 0
    assert capsys.readouterr().out == "reverted  prompt-order\n"
    assert run(tree, "--verify") == 1
    states = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert states == [["missing" if fix == "prompt-order" else "applied", fix] for fix in FIXES]
    assert run(tree, "--only", "prompt-order") == 0
    assert tree.contents() == patched


def test_opt_in_fixes_are_named(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "pack"
    shutil.copytree(ROOT / "fixes", pack, ignore=shutil.ignore_patterns("__pycache__"))
    file = pack / "profiles/v0.30.0.json"
    data = json.loads(file.read_text())
    data["opt_in"] = [data["fixes"].pop()]
    file.write_text(json.dumps(data))
    for name in ("profile", "fixes", "profiles"):
        real = getattr(catalog, name)
        arguments = () if name == "profiles" else (None,)
        monkeypatch.setattr(catalog, name, _in_folder(real, pack, len(arguments)))
    assert run(tree) == 0
    assert capsys.readouterr().out.count("applied") == 4
    assert run(tree, "rank-exception-fatal") == 0
    assert run(tree, "--verify") == 0, "what was opted for counts from then on"
    assert capsys.readouterr().out.count("applied") == 6
    assert run(tree) == 0
    assert b"rank-exception-fatal" in tree.contents()[EXECUTOR], "and stays"


def _in_folder(real: Callable[..., Any], folder: Path, given: int) -> Callable[..., Any]:
    def moved(*arguments: Any) -> Any:
        return real(*arguments[:given], folder)

    return moved


def test_json(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree, "--json") == 0
    assert json.loads(capsys.readouterr().out)["fixes"] == dict.fromkeys(FIXES, "applied")
    assert run(tree, "--verify", "--json") == 0
    assert json.loads(capsys.readouterr().out)["exit"] == 0
    write_version(tree.root / "vllm", "0.29.0", "gced6857af")
    assert run(tree, "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert found["exit"] == 3 and "expected version 0.30.0" in found["errors"][0]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(out.count(fix) == 2 for fix in FIXES)
    assert main(["--list", "--profile", "v0.26.0", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["profiles"]) == ["v0.26.0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "v0.30"], "no profile 'v0.30', did you mean v0.30.0?"),
        ([], "--profile NAME is needed (known: v0.26.0, v0.30.0)"),
        (["--profile", "v0.30.0", "--only", "promt-order"], "has no fix 'promt-order', did you mean prompt-order?"),
        (["--profile", "v0.30.0", "promt-order"], "has no fix 'promt-order', did you mean prompt-order?"),
        (["--profile", "v0.30.0", "--only", "prompt-order", "seeded-sampling"], "exclude each other"),
        (["--profile", "v0.30.0", "--site-packages", "/nowhere"], "--site-packages /nowhere: no such folder"),
    ],
)
def test_what_is_no_command(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("level", ["1", "2"])
def test_a_python_without_asserts_and_docstrings_runs_it(tree: Tree, patched: dict[str, bytes], level: str) -> None:
    """PYTHONOPTIMIZE, which an image may set: there the texts of ``__doc__`` are None."""
    command = [sys.executable, str(ROOT / "fixes/apply_all.py"), "--profile", tree.profile, "--site-packages", str(tree.root)]
    for more in [], ["--verify"]:
        done = subprocess.run([*command, *more], env={"PYTHONOPTIMIZE": level}, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert tree.contents() == patched


def test_a_bare_python_runs_it(tmp_path: Path) -> None:
    """No site-packages, a read-only checkout, another working folder; what is found is what this Python would import."""
    tree = stand_in(tmp_path / "site")
    pack = tmp_path / "a pack"
    shutil.copytree(ROOT / "fixes", pack, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-S", str(pack / "apply_all.py"), "--profile", "v0.30.0"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tree.root)}, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(tree, "--verify") == 0
    assert not list(pack.rglob("__pycache__"))
    done = subprocess.run(command, env={}, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr
        == "apply_all.py: vllm is not installed for this Python\napply_all.py: vllm_gaudi is not installed for this Python\n"
    )


# --- which image -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "version", "commit", "expected"),
    [
        ("vllm", "0.30.1", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30.0.1", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30.0", "g0000000aa", "expected commit ced6857a"),
        ("vllm", None, None, "expected version 0.30.0"),
        ("vllm_gaudi", "0.30.0", None, "vllm_gaudi 0.30.0 at an unknown commit"),
        ("vllm_gaudi", "0.30.0+gb059f9c", None, "expected commit 058f107"),
    ],
)
def test_another_image(
    tree: Tree, capsys: pytest.CaptureFixture[str], package: str, version: str | None, commit: str | None, expected: str
) -> None:
    write_version(tree.root / package, version, commit)
    assert expected in fails(capsys, 3, tree)


@pytest.mark.parametrize(
    ("version", "commit"),
    [("0.30.0", "gced6857af"), ("0.30.0+hpu", "gced6857af"), ("0.30.0+gced6857af.d20260901", None), ("0.30.0", "gced6857")],
)
def test_the_same_image(tree: Tree, version: str, commit: str | None) -> None:
    write_version(tree.root / "vllm", version, commit)
    assert run(tree) == 0


def test_a_missing_package(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(tree.root / "vllm_gaudi")
    assert "vllm_gaudi is not installed in" in fails(capsys, 3, tree)


@pytest.mark.parametrize("kind", ["detached", "branch", "packed", "worktree"])
def test_the_commit_of_a_checkout(tree: Tree, kind: str) -> None:
    """A build at a tag names no commit; the checkout that the package lies in does."""
    write_version(tree.root / "vllm_gaudi", "0.30.0", None)
    commit = "058f107" + "a" * 33
    git = tree.root / ".git"
    git.mkdir()
    (git / "HEAD").write_text(f"{commit}\n" if kind == "detached" else "ref: refs/heads/main\n")
    if kind == "branch":
        (git / "refs/heads").mkdir(parents=True)
        (git / "refs/heads/main").write_text(f"{commit}\n")
    if kind == "packed":
        (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{commit} refs/heads/main\n")
    if kind == "worktree":
        git.rename(tree.root / "real")
        (tree.root / "real/worktrees/w").mkdir(parents=True)
        (tree.root / "real/worktrees/w/HEAD").write_text("ref: refs/heads/w\n")
        (tree.root / "real/worktrees/w/commondir").write_text("../..\n")
        (tree.root / "real/refs/heads").mkdir(parents=True)
        (tree.root / "real/refs/heads/w").write_text(f"{commit}\n")
        git.write_text("gitdir: real/worktrees/w\n")
    assert image.find(["vllm_gaudi"], tree.root)["vllm_gaudi"].commit == commit
    assert run(tree) == 0


def test_the_commit_is_git_s_own(tmp_path: Path) -> None:
    made = stand_in(tmp_path / "clone")
    write_version(made.root / "vllm_gaudi", "0.30.0", None)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(made.root)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["pack-refs", "--all"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert image.find(["vllm_gaudi"], made.root)["vllm_gaudi"].commit == head


# --- places ----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 1}', '{"format": 1, "files": {"x": 3}}', "\udc80"])
def test_a_damaged_record(tree: Tree, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    assert run(tree) == 0
    (tree.root / store.FOLDER / "record.json").write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert "record.json: is damaged" in fails(capsys, 5, tree)


def test_a_damaged_original(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree) == 0
    for kept in (tree.root / store.FOLDER / "originals").iterdir():
        kept.write_bytes(b"x")
    assert "is damaged" in fails(capsys, 5, tree, "--revert")


def test_the_record_of_a_later_pack(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree) == 0
    (tree.root / store.FOLDER / "record.json").write_text('{"format": 2, "files": {}}')
    assert "was written by another pack" in fails(capsys, 4, tree)


# --- files as they are -----------------------------------------------------------------------------------------------


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


# --- crashes ---------------------------------------------------------------------------------------------------------

STEPS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "fchmod", "utime")


def interrupted(tree: Tree, at: int, action: Callable[[], None], *arguments: str) -> int | None:
    return crashing.interrupted(lambda: run(tree, *arguments), at, action, STEPS)


@pytest.mark.parametrize(
    "arguments", [(), ("--revert",), ("--revert", "--only", "seeded-sampling")], ids=["apply", "revert", "take one out"]
)
def test_killed_at_every_step(tmp_path: Path, patched: dict[str, bytes], arguments: tuple[str, ...]) -> None:
    start = stand_in(tmp_path / "start")
    fresh = start.contents()
    if arguments:
        assert run(start) == 0
    goal = Tree(tmp_path / "goal", start.profile)
    shutil.copytree(start.root, goal.root)
    assert run(goal, *arguments) == 0
    at = 0
    while True:
        at += 1
        tree = Tree(tmp_path / f"site{at}", start.profile)
        shutil.copytree(start.root, tree.root)
        code = interrupted(tree, at, crashing.killed, *arguments)
        if code is None:
            break
        assert code == -signal.SIGKILL
        for name, content in tree.contents().items():
            if not name.rpartition("/")[2].startswith("."):
                assert content in (fresh[name], start.contents()[name], goal.contents()[name]), f"step {at}: {name}"
        assert run(tree, *arguments) == 0, f"step {at}"
        assert everything(tree) == everything(goal), f"step {at}"
        shutil.rmtree(tree.root)
    assert at > 25


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES])
def test_an_error_at_every_step(tmp_path: Path, patched: dict[str, bytes], number: int) -> None:
    def broken() -> None:
        raise OSError(number, os.strerror(number))

    start = stand_in(tmp_path / "start")
    fresh = start.contents()
    at, ends = 0, set()
    while True:
        at += 1
        tree = Tree(tmp_path / f"site{at}", start.profile)
        shutil.copytree(start.root, tree.root)
        code = interrupted(tree, at, broken)
        if code is None:
            break
        ends.add(code)
        for name, content in tree.contents().items():
            if not name.rpartition("/")[2].startswith("."):
                assert content in (fresh[name], patched[name]), f"step {at}: {name}"
        assert run(tree) == 0, f"step {at}"
        assert tree.contents() == patched, f"step {at}"
        shutil.rmtree(tree.root)
    assert ends <= {0, 5} and 5 in ends


def test_a_half_applied_tree_of_an_older_pack(tmp_path: Path, patched: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    real = catalog.fixes

    def older(names: Any, *rest: Any) -> list[catalog.Fix]:
        """The same fixes, which left other comments, and one that is no longer known."""

        def otherwise(edit: editing.Edit) -> editing.Edit:
            def edited(module: editing.Module) -> None:
                module.before(module.tree.body[0], "# Of an older pack.")
                edit(module)

            return edited

        return [
            catalog.Fix(fix.name, fix.title, {name: otherwise(edit) for name, edit in fix.edits.items()})
            for fix in real(names, *rest)
        ]

    at = 0
    while True:
        at += 1
        tree = stand_in(tmp_path / f"site{at}")
        monkeypatch.setattr(catalog, "fixes", older)
        code = interrupted(tree, at, crashing.killed)
        monkeypatch.setattr(catalog, "fixes", real)
        assert run(tree) == 0
        assert tree.contents() == patched
        if code is None:
            break
    # And killed on the way from the older pack to this one.
    monkeypatch.setattr(catalog, "fixes", older)
    start = stand_in(tmp_path / "older")
    assert run(start) == 0
    monkeypatch.setattr(catalog, "fixes", real)
    assert start.contents() != patched
    at = 0
    while True:
        at += 1
        tree = Tree(tmp_path / f"newer{at}", start.profile)
        shutil.copytree(start.root, tree.root)
        code = interrupted(tree, at, crashing.killed)
        assert run(tree) == 0
        assert tree.contents() == patched
        if code is None:
            break


# --- at once ---------------------------------------------------------------------------------------------------------


def at_once(tree: Tree, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    """Run commands in processes of their own, started together."""
    started = [
        subprocess.Popen(
            [sys.executable, ROOT / "fixes/apply_all.py", "--profile", tree.profile, "--site-packages", tree.root, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    return [(process.wait(), process.communicate()[1]) for process in started]


def test_ten_runs_at_once(tree: Tree, patched: dict[str, bytes]) -> None:
    for code, said in at_once(tree, *[()] * 10):
        assert code == 0, said
    assert tree.contents() == patched
    assert run(tree, "--verify") == 0


def test_applying_and_reverting_at_once(tree: Tree, patched: dict[str, bytes]) -> None:
    fresh = tree.contents()
    for _ in range(3):
        for code, said in at_once(tree, *[(), ("--revert",), ("--dry-run",)] * 4):
            assert code == 0, said
        assert tree.contents() in (fresh, patched)
        assert (tree.contents() == patched) == (run(tree, "--verify") == 0)
        assert (tree.root / store.FOLDER).exists() == (tree.contents() == patched)


def test_a_lock_of_a_dead_run_holds_nobody_up(tree: Tree) -> None:
    (tree.root / store.FOLDER).mkdir()
    (tree.root / store.FOLDER / "lock").write_text("")
    assert run(tree) == 0


# --- editing ---------------------------------------------------------------------------------------------------------


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
    for file in work.plan(lambda _: catalog.fixes(FIXES), packages, store.Store(tree.root)).files:
        before, after = file.original.decode().splitlines(), iter(file.wanted.decode().splitlines())
        kept = _subsequence(before, after)
        assert len(before) - kept <= 3, file.name


def _subsequence(lines: list[str], others: Iterator[str]) -> int:
    found = list(others)
    return sum(block.size for block in difflib.SequenceMatcher(None, lines, found, autojunk=False).get_matching_blocks())
