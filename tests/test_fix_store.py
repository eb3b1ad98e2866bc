"""What the fix pack keeps beside the packages: originals and their record, whose they are, who may read and write them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import crashing
from fixpack import catalog, store
from fixtrees import EXECUTOR, Tree, everything, fails, run, stand_in, write_version

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
SAMPLER = "vllm/v1/sample/ops/topk_topp_sampler.py"
FIXES = catalog.profile("v0.30.0").fixes

# --- records ---------------------------------------------------------------------------------------------------------


def originals(tree: Tree) -> set[bytes]:
    return {path.read_bytes() for path in (tree.root / store.FOLDER / "originals").iterdir()}


@pytest.mark.parametrize("arguments", [(), ("--revert",), ("--verify",), ("--only", "logprobs-decode-guard"), ("--dry-run",)])
def test_originals_outlive_their_record(tree: Tree, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    """Without its record nothing says which original is whose; they are all that is left of the packages."""
    assert run(tree) == 0
    kept = originals(tree)
    (tree.root / store.FOLDER / "record.json").unlink()
    said = fails(capsys, 4, tree, *arguments)
    assert f"what it was may lie in {tree.root / store.FOLDER}/originals" in said
    assert originals(tree) == kept


def test_originals_that_nothing_is_known_of_are_kept(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a pack that fixed other files: the files of this one carry nothing, and there is no record."""
    place = tree.root / store.FOLDER / "originals"
    place.mkdir(parents=True)
    (place.parent / "lock").touch()
    (place / store.digest(b"x = 1\n")).write_bytes(b"x = 1\n")
    assert f"{place}: holds originals of files that there is no record of" in fails(capsys, 4, tree, "--revert")


def test_nothing_to_revert_is_said_of_packages_without_fixes_only(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree) == 0
    shutil.rmtree(tree.root / store.FOLDER)
    assert "there is no record of it: reinstall the package" in fails(capsys, 4, tree, "--revert")


def test_a_package_that_was_installed_anew_since(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    """Another build of it, with other files: those are what the fixes go into now, and what a revert gives back."""
    assert run(tree) == 0
    stand_in(tree.root)
    write_version(tree.root / "vllm", "0.30.0+other", "gced6857af")
    for name in (EXECUTOR, SAMPLER):
        (tree.root / name).write_text(tree.read(name) + "# Of the other build.\n")
    fresh = tree.contents()
    assert run(tree, "--verify") == 1
    assert run(tree) == 0
    assert run(tree, "--verify") == 0
    assert tree.contents()[EXECUTOR].endswith(b"# Of the other build.\n")
    assert run(tree, "--revert") == 0
    assert everything(tree) == fresh


def test_the_same_build_installed_anew(tree: Tree, patched: dict[str, bytes]) -> None:
    assert run(tree) == 0
    stand_in(tree.root)
    assert run(tree) == 0
    assert tree.contents() == patched


def test_what_changed_a_file_is_told_with_the_record(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree) == 0
    (tree.root / EXECUTOR).write_text("x = 1\n")
    said = fails(capsys, 4, tree)
    assert f"(the record is {tree.root / store.FOLDER}/record.json)" in said
    [kept] = re.findall(r"or put back (\S+), then run this again", said)
    assert b"class WorkerProc" in Path(kept).read_bytes()
    shutil.copy(kept, tree.root / EXECUTOR)
    assert run(tree) == 0, "the cure that was named"


@pytest.mark.parametrize("damage", [lambda kept: kept.unlink(), lambda kept: kept.write_bytes(b"x")], ids=["gone", "damaged"])
def test_a_lost_original(tree: Tree, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object]) -> None:
    assert run(tree) == 0
    for kept in (tree.root / store.FOLDER / "originals").iterdir():
        damage(kept)
    assert "reinstall the package, then run this again" in fails(capsys, 5, tree)
    stand_in(tree.root)
    fresh = tree.contents()
    assert run(tree) == 0, "the cure that was named"
    assert run(tree, "--revert") == 0
    assert everything(tree) == fresh


@pytest.mark.parametrize(
    "damage",
    [
        "{", "[]", "3", "null", '{"format": 2}', '{"format": 2, "files": []}', '{"format": 2, "files": {"vllm/a.py": 3}}',
        "\udc80",
        '{"format": 2, "files": {"vllm/a.py": {"original": "x", "patched": ["y"], "fixes": []}}}',
        '{"format": 2, "files": {"vllm/a.py": {"original": "DIGEST", "patched": [], "fixes": []}}}',
        '{"format": 2, "files": {"vllm/a.py": {"original": "DIGEST", "patched": "DIGEST", "fixes": []}}}',
        '{"format": 2, "files": {"vllm/a.py": {"original": "DIGEST", "patched": ["DIGEST"], "fixes": [1]}}}',
        '{"format": 2, "files": {"vllm/a.py": {"original": "DIGEST", "patched": ["DIGEST"], "fixes": [], "package": 1}}}',
        '{"format": 2, "files": {"vllm/../a.py": {"original": "DIGEST", "patched": ["DIGEST"], "fixes": []}}}',
        '{"format": 2, "files": {"/a.py": {"original": "DIGEST", "patched": ["DIGEST"], "fixes": []}}}',
        '{"format": 2, "files": {"other/a.py": {"original": "DIGEST", "patched": ["DIGEST"], "fixes": []}}}',
        "[" * 100_000,
    ],
    ids=range(17),
)  # fmt: skip
def test_a_damaged_record(tree: Tree, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    assert run(tree) == 0
    record = tree.root / store.FOLDER / "record.json"
    record.write_bytes(damage.replace("DIGEST", "0" * 64).encode("utf-8", "surrogateescape"))
    for arguments in ((), ("--revert",), ("--verify",)):
        said = fails(capsys, 4 if '"other/' in damage else 5, tree, *arguments)
        assert said.count("\n") == 1
        assert "is no package of the profile" in said if '"other/' in damage else f"{record}: is damaged: " in said


# --- who may read and write ------------------------------------------------------------------------------------------


NOBODY = 65534


@pytest.fixture
def open_tree() -> Iterator[Tree]:
    """A tree in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield stand_in(Path(folder) / "site")


def as_nobody(tree: Tree, *arguments: str) -> int | None:
    """Run as a user who is not the owner, if we are root; else as ourselves."""

    def run_as_nobody() -> int:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return run(tree, *arguments)

    return crashing.interrupted(run_as_nobody, 0, crashing.killed, ())


def owned(tree: Tree, names: list[str], folders: bool = True) -> None:
    """Give files, and the folders that they are in, to nobody."""
    if os.geteuid() == 0:
        for path in [tree.root, *(tree.root / name for name in names)]:
            os.chown(path, NOBODY, NOBODY)
            if folders:
                os.chown(path.parent if path.is_file() else path, NOBODY, NOBODY)


@pytest.mark.parametrize("denied", ["folder", "file", "sticky"])
def test_packages_that_are_not_all_ours(open_tree: Tree, denied: str) -> None:
    """All is tried before anything is written: not one package with its fixes, and the other without."""
    names = sorted({name for fix in catalog.fixes(FIXES) for name in fix.edits})
    if os.geteuid() != 0:
        pytest.skip("files of another owner need root")
    owned(open_tree, names)
    last = open_tree.root / RUNNER
    if denied == "folder":
        os.chown(last.parent, 0, 0)
    else:
        os.chown(last, 0, 0)
    if denied == "sticky":
        os.chown(last.parent, 0, 0)
        last.parent.chmod(0o1777)
        last.chmod(0o666)
    fresh = everything(open_tree)
    assert as_nobody(open_tree) == 5
    assert everything(open_tree) == fresh, "not even a folder of the pack's own is left"
    assert run(open_tree) == 0, "as root"


def test_a_file_system_that_fills_up(tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What shall come in is all on the disk before the first file is replaced."""
    real, written = os.write, 0

    def full(descriptor: int, content: Any) -> int:
        nonlocal written
        written += len(content)
        if written > 9000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content)

    fresh = everything(tree)
    monkeypatch.setattr(os, "write", full)
    assert run(tree) == 5
    assert "free some space and run it again" in capsys.readouterr().err
    assert everything(tree) == fresh


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o777])
@pytest.mark.parametrize("private", [False, True])
def test_whoever_may_read_the_packages_may_verify(open_tree: Tree, umask: int, private: bool) -> None:
    if private:
        open_tree.root.chmod(0o700)
    before = os.umask(umask)
    try:
        assert run(open_tree) == 0
    finally:
        os.umask(before)
    made = {path.stat().st_mode & 0o777 for path in (open_tree.root / store.FOLDER).rglob("*") if path.is_file()}
    assert made == {0o600 if private else 0o644}
    assert {path.stat().st_mode & 0o777 for path in (open_tree.root / store.FOLDER / "x").parents[:1]} == {
        0o700 if private else 0o755
    }
    if not private:
        assert as_nobody(open_tree, "--verify") == 0
        assert as_nobody(open_tree) == 0, "there is nothing to do"
