"""What the converters' command lines have in common."""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ckpt import channels, engine
from ckpt.errors import CheckpointError, one_line
from ckpt.plan import Plan
from ckpt.progress import Progress
from ckpt.reread import Different
from ckpt.source import Checkpoint

ASSUMED_RATE = 1e9
"""Bytes a second, for the time that is told before the work; the rate is told with it."""
LARGEST = {"gaudi2": channels.GAUDI2, "e4m3fn": channels.E4M3FN}
MOST_JOBS = 16
"""With as many the proofs stay within 256 MB."""


def add_options(parser: argparse.ArgumentParser, source: Path) -> None:
    """The options of every converter; ``source`` is what ``--src`` takes, in words."""
    parser.add_argument("--src", type=Path, required=True, metavar="DIR", help=str(source))
    parser.add_argument("--dst", type=Path, required=True, metavar="DIR", help="a new folder, or one that an earlier run left")
    add_jobs(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def add_format(parser: argparse.ArgumentParser) -> None:
    """Whose E4M3 it is."""
    words = "whose E4M3 (default: %(default)s, up to 240; e4m3fn is OCP's, up to 448)"
    parser.add_argument("--format", choices=sorted(LARGEST), default="gaudi2", help=words)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """How many files are worked on at a time."""
    jobs = min(4, os.cpu_count() or 1)
    parser.add_argument("--jobs", type=int, default=jobs, metavar="N", help="how many threads (default: %(default)s)")


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The command line, looked at; and streams that can be written to, whatever the shell closed and whatever the locale is."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, so no file of ours becomes a standard stream
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = parser.parse_args(arguments)
    if not 1 <= options.jobs <= MOST_JOBS:
        parser.error(f"--jobs must be from 1 to {MOST_JOBS}")
    return options


def guarded(name: str, work: Callable[[], int], *, as_json: bool) -> int:
    """Do the work; an error becomes one line, or one object, and an exit code of 1, or of 130 for Ctrl-C."""
    gc.disable()  # a plan is some hundred thousand objects and no cycle: looking for one takes as long as the plan
    try:
        code = work()
        sys.stdout.flush()
        return code
    except (CheckpointError, Different) as error:
        said, code = str(error), 1
    except OSError as error:
        said, code = f"{error.filename or 'output'}: {(error.strerror or str(error)).lower()}", 1
    except MemoryError:
        said, code = "memory is used up: try --jobs 1", 1
    except KeyboardInterrupt:
        said, code = "ended; the same command goes on from here", 130
    finally:
        gc.enable()
    with contextlib.suppress(OSError):
        print(json.dumps({"error": said}) if as_json else f"{name}: {one_line(said)}", file=sys.stderr, flush=True)
    _drop_output()
    return code


def _drop_output() -> None:
    """What a closed pipe or a full disk did not take is not tried again when Python ends."""
    with contextlib.suppress(OSError):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def announce(source: Checkpoint, plan: Plan, options: argparse.Namespace) -> None:
    """Say what is going to be done."""
    facts = {
        "files": len(plan.files),
        "tensors_before": len(source.tensors),
        "tensors_after": sum(len(file.targets) for file in plan.files),
        "bytes_before": sum(path.stat().st_size for path in source.shards),
        "bytes_after": plan.size,
        "bytes_free": engine.free_bytes(options.dst),
        "seconds_at_1_GB_per_s": round(plan.size / ASSUMED_RATE),
    }
    if options.json:
        print(json.dumps(facts), flush=True)
        return
    before = f"{facts['tensors_before']:,} tensors, {engine.in_words(facts['bytes_before'])}"
    after = f"{facts['tensors_after']:,} tensors in {facts['files']} files, {engine.in_words(facts['bytes_after'])}"
    print(f"{before} -> {after}")
    minutes = facts["seconds_at_1_GB_per_s"] / 60
    free = f"{engine.in_words(facts['bytes_free'])} free for {one_line(str(options.dst))}"
    print(f"{free}; at 1 GB/s it takes {minutes:,.0f} min", flush=True)


def convert(plan: Plan, options: argparse.Namespace, *, again: bool = True) -> None:
    """Carry a plan out, unless it is only to be told; not ``again`` where all is there: then nothing is written or locked."""
    engine.check_places(options.src, options.dst)
    if options.dry_run:
        engine.check_fits(plan, options.dst)
        return
    if not again and engine.finished(plan, options.dst):
        return
    with engine.opened(plan, options.dst) as work:
        if work.was_finished and (names := [file.name for file in work.todo] + [str(other) for other in work.others]):
            tell(options, {"again": names}, f"changed or lost since, and written again: {', '.join(names)}")
        with Progress("written", work.bytes_to_write, as_json=options.json) as progress:
            engine.carry_out(work, options.jobs, progress.add)
        for name, count in sorted(work.rounded.items()):
            tell(options, {"tensor": name, "rounded": count}, f"{name}: {count:,} elements rounded")
        if work.rounded:
            total = sum(work.rounded.values())
            tell(options, {"rounded": total}, f"{total:,} elements rounded in {len(work.rounded):,} tensors")


def tell(options: argparse.Namespace, data: dict[str, object], text: str) -> None:
    """One line on standard output: an object for programs, or a text."""
    print(json.dumps(data) if options.json else one_line(text), flush=True)
