#!/usr/bin/env python3
"""Repack AMD Quark's MXFP4 release, one tensor an expert, into vLLM's fused MXFP4 layout.

The bytes of the routed experts are copied; FP8 attention and MXFP4 dense and shared MLPs become BF16.  A run that was ended goes
on with the same command, however it was ended.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from pathlib import Path

try:
    from ckpt import engine, quark, verify
    from ckpt.errors import CheckpointError
    from ckpt.progress import Progress
    from ckpt.source import read_checkpoint
except ModuleNotFoundError as missing:
    sys.exit(f"repack_quark_mxfp4.py: the package {missing.name} is missing: pip install {missing.name}")

ASSUMED_RATE = 1e9
"""Bytes a second, for the time that a dry run expects; it is said with the figure."""


def main(arguments: list[str] | None = None) -> int:
    """Plan, convert, verify; returns the exit code."""
    parser = argparse.ArgumentParser("repack_quark_mxfp4.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--src", type=Path, required=True, metavar="DIR", help="the release, as it was downloaded")
    parser.add_argument("--dst", type=Path, required=True, metavar="DIR", help="a new folder, or one that an earlier run left")
    parser.add_argument(
        "--verify", action="store_true", help="afterwards, or if all is there: compare both sides, and print VERIFY_OK"
    )
    parser.add_argument(
        "--jobs", type=int, default=min(4, os.cpu_count() or 1), metavar="N", help="files at a time (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    try:
        return _run(options)
    except (CheckpointError, verify.Different) as error:
        print(f"repack_quark_mxfp4.py: {error}", file=sys.stderr)
    except OSError as error:
        print(f"repack_quark_mxfp4.py: {error.filename or 'output'}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
    except KeyboardInterrupt:
        print("repack_quark_mxfp4.py: ended; the same command goes on from here", file=sys.stderr)
    return 1


def _run(options: argparse.Namespace) -> int:
    gc.disable()  # a plan is some hundred thousand objects and no cycle: looking for one takes as long as the plan
    source = read_checkpoint(options.src)
    plan = quark.fused_plan(source)
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
    else:
        before = f"{facts['tensors_before']:,} tensors, {facts['bytes_before'] / 1e9:,.1f} GB"
        after = f"{facts['tensors_after']:,} tensors in {facts['files']} files, {facts['bytes_after'] / 1e9:,.1f} GB"
        minutes = facts["seconds_at_1_GB_per_s"] / 60
        print(f"{before} -> {after}")
        print(f"{facts['bytes_free'] / 1e9:,.1f} GB free for {options.dst}; at 1 GB/s it takes {minutes:,.0f} min", flush=True)
    engine.check_places(options.src, options.dst)
    if options.dry_run:
        return 0
    with engine.opened(plan, options.dst) as work:
        with Progress("written", work.bytes_to_write, as_json=options.json) as progress:
            engine.carry_out(work, options.jobs, progress.add)
        if options.verify:
            with Progress("compared", plan.tensor_bytes, as_json=options.json) as progress:
                verify.verify(options.src, options.dst, options.jobs, progress.add)
            print(json.dumps({"verified": True}) if options.json else "VERIFY_OK")
    return 0


def _free(folder: Path) -> int:
    """Bytes that are free where a folder is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


if __name__ == "__main__":
    sys.exit(main())
