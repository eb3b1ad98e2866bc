"""The fix pack as a tool: its commands, and which image it works on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apply_all import main
from fixpack import catalog, image
from fixtrees import EXECUTOR, Tree, everything, fails, run, stand_in, write_version
from support import ROOT

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
SAMPLER = "vllm/v1/sample/ops/topk_topp_sampler.py"
FIXES = catalog.profile("v0.30.0").fixes

# --- what it does ------------------------------------------------------------------------------------------------------


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
    assert [line.split() for line in capsys.readouterr().out.splitlines()[-5:]] == [["reverted", fix] for fix in FIXES]
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


@pytest.mark.parametrize("out", [("--only", "prompt-order"), ("prompt-order",)], ids=["only", "named"])
def test_one_fix_comes_and_goes_alone(
    tree: Tree, patched: dict[str, bytes], out: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert run(tree, "--revert", *out) == 0
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
        (["--profile", "v0.30.0", "--revert", "promt-order"], "has no fix 'promt-order', did you mean prompt-order?"),
        (["--profile", "v0.30.0", "prompt-order"], "prompt-order is not opt-in, and applied anyway; --only prompt-order applies"),
        (["--list", "--only", "prompt-order"], "--list goes with --profile and --json alone"),
        (["--list", "prompt-order"], "--list goes with --profile and --json alone"),
        (["--list", "--site-packages", "/tmp"], "--list goes with --profile and --json alone"),
        (["--profile", "v0.30.0", "--site-packages", ""], "--site-packages '': names no folder"),
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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("profiles/v0.30.0.json", "{"),
        ("profiles/v0.30.0.json", "[" * 100_000),
        ("profiles/v0.30.0.json", "\udcff"),
        ("profiles/v0.30.0.json", "[]"),
        ("profiles/v0.30.0.json", '{"summary": "x", "image": {"vllm": {}}}'),
        ("profiles/v0.30.0.json", '{"summary": "x", "image": {"vllm": 3}, "fixes": []}'),
        ("profiles/v0.30.0.json", '{"summary": "x", "image": {"vllm": {"version": 3}}, "fixes": []}'),
        ("profiles/v0.30.0.json", '{"summary": "x", "image": {}, "fixes": []}'),
        ("profiles/v0.30.0.json", '{"summary": "x", "image": {"vllm": {}}, "fixes": "prompt-order"}'),
        ("profiles/v0.30.0.json", '{"summary": "x", "image": {"vllm": {}}, "fixes": [], "opt_in": [3]}'),
        ("prompt-order/fix.json", "{"),
        ("prompt-order/fix.json", "[]"),
        ("prompt-order/fix.json", '{"title": 3}'),
        ("prompt-order/fix.json", None),
        ("prompt-order/prompt_order.py", "def"),
        ("prompt-order/prompt_order.py", "import nowhere"),
        ("prompt-order/prompt_order.py", "x = 1"),
        ("prompt-order/prompt_order.py", None),
    ],
)
@pytest.mark.parametrize("arguments", [(), ("--list",)])
def test_a_damaged_pack(tree: Tree, tmp_path: Path, name: str, content: str | None, arguments: tuple[str, ...]) -> None:
    pack = tmp_path / "pack"
    shutil.copytree(ROOT / "fixes", pack, ignore=shutil.ignore_patterns("__pycache__"))
    (pack / name).unlink()
    if content is not None:
        (pack / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    where = () if arguments else ("--site-packages", str(tree.root))
    command = [sys.executable, str(pack / "apply_all.py"), "--profile", "v0.30.0", *where, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith(f"apply_all.py: {pack / name}: ") and done.stderr.count("\n") == 1
    assert done.stderr.endswith(": check the pack out again\n")


# --- where its output goes -------------------------------------------------------------------------------------------


def script(tree: Tree, *arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the script in a process of its own."""
    command = [sys.executable, str(ROOT / "fixes/apply_all.py"), "--profile", tree.profile, "--site-packages", str(tree.root)]
    return subprocess.run([*command, *arguments], stderr=subprocess.PIPE, **more)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 0), (("--json",), 0), (("--verify",), 1), (("--revert",), 0), (("--dry-run",), 5), (("--dry-run", "--json"), 5)],
)
def test_output_that_can_not_be_written(tree: Tree, patched: dict[str, bytes], arguments: tuple[str, ...], code: int) -> None:
    """What was done is done: only if output was all there was to do, the run failed."""
    with open("/dev/full", "w") as full:
        done = script(tree, *arguments, stdout=full)
    assert done.stderr == b"apply_all.py: the output can not be written: no space left on device\n"
    assert done.returncode == code
    assert (tree.contents() == patched) == (arguments in ((), ("--json",)))


@pytest.mark.parametrize(("arguments", "code"), [((), 0), (("--verify",), 1), (("--dry-run",), 0)])
def test_a_reader_that_has_read_enough(tree: Tree, arguments: tuple[str, ...], code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = script(tree, *arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (code, b"")


def test_no_output_at_all(tree: Tree, patched: dict[str, bytes]) -> None:
    command = f"exec {sys.executable} {ROOT}/fixes/apply_all.py --profile {tree.profile} --site-packages {tree.root} >&- 2>&-"
    assert subprocess.run(["sh", "-c", command]).returncode == 0
    assert tree.contents() == patched


def test_a_diff_is_utf_8_whatever_the_locale(tree: Tree, patched: dict[str, bytes]) -> None:
    """Also of a file with form feeds, carriage returns, and what else Python calls the end of a line."""
    file = tree.root / EXECUTOR
    line = "                self.handle_output(error)\n"
    text = file.read_text().replace(line, f"{line}\x0c\n# ä\u2028ö\r\n")
    file.write_text(text, encoding="utf-8", newline="")
    done = script(tree, "--dry-run", stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    subprocess.run(["patch", "-s", "-p1", "--binary"], input=done.stdout, cwd=tree.root, check=True)
    by_patch = tree.contents()
    file.write_text(text, encoding="utf-8", newline="")
    for name in {name for fix in catalog.fixes(FIXES) for name in fix.edits} - {EXECUTOR}:
        (tree.root / name).write_bytes(stand_in(tree.root.parent / "fresh").contents()[name])
    assert run(tree) == 0
    assert tree.contents() == by_patch


def test_a_path_is_printed_as_the_bytes_it_is(tree: Tree) -> None:
    root = tree.root.parent / "\udcff"
    tree.root.rename(root)
    write_version(root / "vllm", "0.29.0", "gced6857af")
    done = script(Tree(root, tree.profile))
    assert done.returncode == 3
    assert b"/\xff/vllm, expected version 0.30.0" in done.stderr


@pytest.mark.parametrize("how", [{"env": {"PYTHONSAFEPATH": "1"}}, "-I", "-P"], ids=str)
def test_a_python_that_does_not_look_beside_the_script(tree: Tree, how: Any) -> None:
    if how == "-P" and sys.version_info < (3, 11):
        pytest.skip("-P is of Python 3.11")
    flags, more = ([how], {}) if isinstance(how, str) else ([], how)
    command = [sys.executable, *flags, str(ROOT / "fixes/apply_all.py"), "--profile", tree.profile]
    done = subprocess.run([*command, "--site-packages", str(tree.root)], capture_output=True, text=True, **more)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupted_run_says_so(
    tree: Tree, patched: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    assert run(tree) == 5
    assert capsys.readouterr().err == "apply_all.py: interrupted: what was written is whole, and another run completes it\n"
    assert not [path for path in tree.root.rglob(".*.gaudi-cookbook-*") if path.is_file()]
    monkeypatch.undo()
    assert run(tree) == 0
    assert tree.contents() == patched


# --- which image -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "version", "commit", "expected"),
    [
        ("vllm", "0.30.1", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30.0.1", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30.0rc1", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30.0.rc1", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30.0a1+hpu", "gced6857af", "expected version 0.30.0"),
        ("vllm", "0.30.0.dev3", "gced6857af", "expected version 0.30.0"),
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
