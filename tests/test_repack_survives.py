"""The repack is whole or not there: killed, without space, beside itself, on links; the same command then finishes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import crashing
from checkpoints import (
    NORM,
    TOOL,
    contents,
    loadable,
    poke,
    refused,
    run,
)
from ckpt import engine, pieces

STEPS = ("open", "pwrite", "copy_file_range", "posix_fallocate", "fdatasync", "fsync", "replace", "unlink", "mkdir")


def test_killed_at_steps_all_along(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    at, seen = 1, 0
    while True:
        made = tmp_path / f"made{at}"
        code = crashing.interrupted(lambda made=made: run(source, made, "--jobs", "1"), at, crashing.killed, STEPS)  # type: ignore[misc]
        if code is None:
            break
        assert code == -signal.SIGKILL
        assert not loadable(made) or contents(made).keys() >= goal.keys(), f"step {at}"
        assert run(source, made, "--verify") == 0, f"step {at}"
        assert {name: content for name, content in contents(made).items() if not name.endswith(".partial")} == goal, f"step {at}"
        shutil.rmtree(made)
        seen += 1
        at += 1 if at < 30 else 3
    assert seen > 40


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_at_steps_all_along(source: Path, tmp_path: Path, goal: dict[str, bytes], number: int) -> None:
    def broken() -> None:
        raise OSError(number, os.strerror(number))

    at, codes = 1, []
    while True:
        made = tmp_path / f"made{at}"
        code = crashing.interrupted(lambda made=made: run(source, made, "--jobs", "2"), at, broken, STEPS)  # type: ignore[misc]
        if code is None:
            break
        codes.append(code)
        assert code == 0 or not loadable(made) or contents(made).keys() >= goal.keys()
        assert run(source, made, "--verify") == 0, f"step {at}"
        assert contents(made) == goal, f"step {at}"
        shutil.rmtree(made)
        at += 3
    assert set(codes) <= {0, 1} and 1 in codes


def test_killed_in_earnest(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    made = tmp_path / "made"
    for delay in (0.05, 0.15, 0.2, 0.25, 0.3):
        process = subprocess.Popen(
            [sys.executable, TOOL, "--src", source, "--dst", made], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        timer = threading.Timer(delay, process.kill)
        timer.start()
        process.wait()
        timer.cancel()
    assert run(source, made, "--verify") == 0
    assert {name: content for name, content in contents(made).items() if not name.endswith(".partial")} == goal


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_where_the_kernel_can_not_copy(
    source: Path, tmp_path: Path, goal: dict[str, bytes], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", refuses)
    monkeypatch.setattr(pieces, "CHUNK", 700)
    assert run(source, tmp_path / "made") == 0
    assert contents(tmp_path / "made") == goal


def test_to_another_file_system(source: Path, goal: dict[str, bytes]) -> None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK) or shm.stat().st_dev == source.stat().st_dev:
        pytest.skip("there is no other file system to write to")
    made = shm / f"repack-{os.getpid()}"
    try:
        assert run(source, made, "--verify") == 0
        assert contents(made) == goal
    finally:
        shutil.rmtree(made, ignore_errors=True)


def test_a_snapshot_of_links_that_can_only_be_read(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/main"
    snapshot.mkdir(parents=True)
    shutil.copytree(source, blobs)
    for path in blobs.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
            (snapshot / path.relative_to(blobs)).parent.mkdir(exist_ok=True)
            (snapshot / path.relative_to(blobs)).symlink_to(path)
    assert run(snapshot, tmp_path / "made", "--verify") == 0
    assert not any(path.is_symlink() for path in (tmp_path / "made").rglob("*"))
    assert {**contents(tmp_path / "made"), "conversion.json": b""} == {**goal, "conversion.json": b""}


def test_two_runs_on_one_folder(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    made = tmp_path / "made"
    started = [
        subprocess.Popen([sys.executable, TOOL, "--src", source, "--dst", made], stderr=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    ends = [(process.communicate()[1], process.returncode) for process in started]
    assert any(code == 0 for _, code in ends)
    assert all(code == 0 or "another run is at work here" in said for said, code in ends)
    assert contents(made) == goal


def test_another_source_into_the_same_folder(
    copy: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(copy, tmp_path / "made") == 0
    os.utime(min(copy.glob("*.safetensors")))
    refused(capsys, copy, tmp_path / "made", "was begun from another source, or the source has changed since")


def test_too_little_space(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found before anything is written, in a dry run too; and told in units that say something."""
    monkeypatch.setattr(engine, "free_bytes", lambda _: 144_000)
    for arguments in ((), ("--dry-run",)):
        assert run(source, tmp_path / "made", *arguments) == 1
        assert capsys.readouterr().err.endswith("made: 145.3 kB are needed and 144.0 kB are free\n")
        assert not (tmp_path / "made").exists()


def test_what_a_killed_run_left_is_in_nobody_s_way(
    source: Path, tmp_path: Path, goal: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space that is reserved under another name counts as free, and is given back before anything is written."""
    made = tmp_path / "made"
    started = crashing.interrupted(lambda: run(source, made, "--jobs", "1"), 1, crashing.killed, ("fdatasync",))
    assert started == -signal.SIGKILL
    at = 1
    while not list(made.glob(".model*.partial")):
        shutil.rmtree(made, ignore_errors=True)
        crashing.interrupted(lambda: run(source, made, "--jobs", "1"), at, crashing.killed, ("copy_file_range",))
        at += 1
    [partial] = made.glob(".model*.partial")
    reserved = partial.stat().st_blocks * 512
    needed = sum(len(content) for name, content in goal.items() if name.endswith((".safetensors", "LICENSE", ".txt")))
    free = engine.free_bytes
    monkeypatch.setattr(engine, "free_bytes", lambda _: needed - (reserved if partial.exists() else 0))
    assert run(source, made, "--jobs", "1") == 0
    assert contents(made) == goal
    assert free(made) > 0


@pytest.mark.parametrize("which", ["gone", "header", "LICENSE"])
def test_a_finished_folder_is_none_while_a_part_of_it_is_made_again(
    source: Path, tmp_path: Path, goal: dict[str, bytes], which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made, at = tmp_path / "made", 1
    while True:
        shutil.rmtree(made, ignore_errors=True)
        assert run(source, made) == 0
        shard = made / "model-00002-of-00004.safetensors"
        if which == "gone":
            shard.unlink()
        elif which == "header":
            shard.write_bytes(goal[shard.name].replace(b"BF16", b"F16 ", 1))
        else:
            (made / "LICENSE").write_text("Do as I like.\n" * 2)
        before = contents(made)
        code = crashing.interrupted(lambda: run(source, made, "--jobs", "1"), at, crashing.killed, STEPS)
        if code is None:
            break
        assert code == -signal.SIGKILL
        assert not loadable(made) or contents(made) in (before, goal), f"step {at}"
        assert run(source, made, "--verify") == 0, f"step {at}"
        assert {name: content for name, content in contents(made).items() if not name.endswith(".partial")} == goal, f"step {at}"
        at += 1
    assert at > 8
    capsys.readouterr()
    shard.unlink()
    assert run(source, made) == 0
    assert f"changed or lost since, and written again: {shard.name}\n" in capsys.readouterr().out


def test_a_difference_is_mended_as_the_message_says(
    source: Path, tmp_path: Path, goal: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    assert run(source, made) == 0
    poke(made, NORM, 3, 99)
    for name in ("LICENSE", "tokenizer/vocab.txt", ""):
        path = made / name
        if name:
            path.write_bytes(bytes(len(goal[name])))
        capsys.readouterr()
        assert run(source, made, "--verify") == 1
        err = capsys.readouterr().err.splitlines()[-1]
        assert err.endswith(": remove this file and convert again, it alone is made anew")
        path = path if name else made / "model-00002-of-00004.safetensors"
        assert str(path) in err
        path.unlink()
    assert run(source, made, "--verify") == 0
    assert contents(made) == goal


def test_verifying_writes_nothing(source: Path, tmp_path: Path) -> None:
    """A finished folder, and a source with other times, as after a download: looked at as they are, in a closed folder."""
    made, other = tmp_path / "made", tmp_path / "other"
    assert run(source, made) == 0
    shutil.copytree(source, other, copy_function=shutil.copy)
    (made / ".conversion.lock").unlink()
    (made / "conversion.json").unlink()
    (made / "LICENSE").write_bytes(b"Do as I'd like.\n")
    assert (made / "LICENSE").stat().st_size == (source / "LICENSE").stat().st_size
    before = {path: path.stat().st_mtime_ns for path in (made, *made.rglob("*"))}
    assert run(other, made, "--verify") == 1
    shutil.copy(source / "LICENSE", made / "LICENSE")
    before = {path: path.stat().st_mtime_ns for path in (made, *made.rglob("*"))}
    made.chmod(0o555)
    assert run(other, made, "--verify") == 0
    assert {path: path.stat().st_mtime_ns for path in (made, *made.rglob("*"))} == before
    made.chmod(0o755)


def test_links_in_the_folder_lead_nowhere(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file outside is written, whatever lies under the names that are to be written."""
    made, outside = tmp_path / "made", tmp_path / "outside"
    outside.mkdir()
    assert run(source, made) == 0
    (outside / "mine").write_text("mine")
    for name in (".model-00002-of-00004.safetensors.partial", ".config.json.partial", ".LICENSE.partial", "LICENSE"):
        (made / name).unlink(missing_ok=True)
        (made / name).symlink_to(outside / "mine")
    (made / "model-00002-of-00004.safetensors").unlink()
    assert run(source, made, "--verify") == 0
    assert not (made / "LICENSE").is_symlink()
    shutil.rmtree(made / "tokenizer")
    (made / "tokenizer").symlink_to(outside)
    capsys.readouterr()
    assert run(source, made) == 1
    assert "tokenizer: is a link out of the folder that is written: remove it" in capsys.readouterr().err
    assert contents(outside) == {"mine": b"mine"}


def test_a_new_file_system_has_a_folder_of_its_own(source: Path, tmp_path: Path) -> None:
    (tmp_path / "made/lost+found").mkdir(parents=True)
    assert run(source, tmp_path / "made", "--verify") == 0


@pytest.mark.parametrize("record", [b"", b"{", b"[" * 99_999, b"[]", b'{"tool": 1}', b'{"tool": "x", "source": 1, "rounded": 3}'])
def test_a_record_that_says_nothing(source: Path, tmp_path: Path, record: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, tmp_path / "made") == 0
    (tmp_path / "made/conversion.json").write_bytes(record)
    capsys.readouterr()
    assert run(source, tmp_path / "made") == 1
    err = capsys.readouterr().err
    assert "conversion.json: does not say what this folder is made from" in err and err.count("\n") == 1
