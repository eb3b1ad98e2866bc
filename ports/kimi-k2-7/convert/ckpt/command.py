"""What the converters' command lines have in common."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ckpt import engine
from ckpt.errors import CheckpointError
from ckpt.plan import Plan
from ckpt.progress import Progress
from ckpt.source import Checkpoint
from ckpt.verify import Different

ASSUMED_RATE = 1e9
"""Bytes a second, for the time that is told before the work; the rate is told with it."""


def add_options(parser: argparse.ArgumentParser, source: Path) -> None:
    """The options of every converter; ``source`` is what ``--src`` takes, in words."""
    parser.add_argument("--src", type=Path, required=True, metavar="DIR", help=str(source))
    parser.add_argument("--dst", type=Path, required=True, metavar="DIR", help="a new folder, or one that an earlier run left")
    add_jobs(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """How many files are worked on at a time."""
    jobs = min(4, os.cpu_count() or 1)
    parser.add_argument("--jobs", type=int, default=jobs, metavar="N", help="how much at a time (default: %(default)s)")


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The command line, looked at."""
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    return options


def guarded(name: str, work: Callable[[], int]) -> int:
    """Do the work; an error becomes one line and exit code 1."""
    gc.disable()  # a plan is some hundred thousand objects and no cycle: looking for one takes as long as the plan
    try:
        return work()
    except (CheckpointError, Different) as error:
        print(f"{name}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"{name}: {error.filename or 'output'}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"{name}: ended; the same command goes on from here", file=sys.stderr)
    finally:
        gc.enable()
    return 1


def announce(source: Checkpoint, plan: Plan, options: argparse.Namespace) -> None:
    """Say what is going to be done."""
    facts = {
        "files": len(plan.files),
        "tensors_before": len(source.tensors),
        "tensors_after": sum(len(file.targets) for file in plan.files),
        "bytes_before": sum(path.stat().st_size for path in source.shards),
        "bytes_after": plan.size,
        "bytes_free": _free(options.dst),
        "seconds_at_1_GB_per_s": round(plan.size / ASSUMED_RATE),
    }
    if options.json:
        print(json.dumps(facts), flush=True)
        return
    before = f"{facts['tensors_before']:,} tensors, {facts['bytes_before'] / 1e9:,.1f} GB"
    after = f"{facts['tensors_after']:,} tensors in {facts['files']} files, {facts['bytes_after'] / 1e9:,.1f} GB"
    print(f"{before} -> {after}")
    minutes = facts["seconds_at_1_GB_per_s"] / 60
    print(f"{facts['bytes_free'] / 1e9:,.1f} GB free for {options.dst}; at 1 GB/s it takes {minutes:,.0f} min", flush=True)


def convert(plan: Plan, options: argparse.Namespace, afterwards: Callable[[], None] = lambda: None) -> int:
    """Carry a plan out, unless it is only to be told; ``afterwards`` runs while the folder is still locked."""
    engine.check_places(options.src, options.dst)
    if options.dry_run:
        return 0
    with engine.opened(plan, options.dst) as work:
        with Progress("written", work.bytes_to_write, as_json=options.json) as progress:
            engine.carry_out(work, options.jobs, progress.add)
        for name, count in sorted(work.rounded.items()):
            print(json.dumps({"tensor": name, "rounded": count}) if options.json else f"{name}: {count:,} elements rounded")
        afterwards()
    return 0


def _free(folder: Path) -> int:
    """Bytes that are free where a folder is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
