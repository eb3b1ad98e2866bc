"""No crash of the fix pack, and no race of two runs, leaves a file torn."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crashing
from fixpack import catalog, editing, store
from fixtrees import Tree, everything, run, stand_in
from support import ROOT

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
SAMPLER = "vllm/v1/sample/ops/topk_topp_sampler.py"
FIXES = catalog.profile("v0.30.0").fixes

# --- crashes -----------------------------------------------------------------------------------------------------------

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


def test_a_revert_killed_at_every_step_and_then_applied(tmp_path: Path, patched: dict[str, bytes]) -> None:
    """The originals that the killed run removed are kept anew: another revert has them."""
    fresh = stand_in(tmp_path / "fresh").contents()
    start = stand_in(tmp_path / "start")
    assert run(start) == 0
    for at in itertools.count(1):
        tree = Tree(tmp_path / f"site{at}", start.profile)
        shutil.copytree(start.root, tree.root)
        code = interrupted(tree, at, crashing.killed, "--revert")
        assert run(tree) == 0, f"step {at}"
        assert tree.contents() == patched, f"step {at}"
        assert run(tree, "--revert") == 0, f"step {at}"
        assert everything(tree) == fresh, f"step {at}"
        shutil.rmtree(tree.root)
        if code is None:
            break


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


# --- at once -----------------------------------------------------------------------------------------------------------


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
