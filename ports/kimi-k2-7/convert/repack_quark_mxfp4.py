#!/usr/bin/env python3
"""Repack AMD Quark's MXFP4 release, one tensor an expert, into vLLM's fused MXFP4 layout.

The bytes of the routed experts are copied; FP8 attention and MXFP4 dense and shared MLPs become BF16.  A run that was ended goes
on with the same command, however it was ended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    from ckpt import command, quark, verify
    from ckpt.progress import Progress
    from ckpt.source import read_checkpoint
except ModuleNotFoundError as missing:
    sys.exit(f"repack_quark_mxfp4.py: the package {missing.name} is missing: pip install {missing.name}")
except KeyboardInterrupt:
    sys.exit(130)


def main(arguments: list[str] | None = None) -> int:
    """Plan, convert, verify; returns the exit code."""
    parser = argparse.ArgumentParser("repack_quark_mxfp4.py", description=__doc__, allow_abbrev=False)
    command.add_options(parser, Path("the release, as it was downloaded"))
    parser.add_argument(
        "--verify", action="store_true", help="afterwards, or if all is there: compare both sides, print VERIFY_OK"
    )
    options = command.parsed(parser, arguments)

    def convert() -> int:
        source = read_checkpoint(options.src)
        plan = quark.fused_plan(source)
        command.announce(source, plan, options)
        command.convert(plan, options, again=not options.verify)
        return plan.tensor_bytes

    def work() -> int:
        total = convert()  # what it held is let go: a proof of the real release holds as much
        if options.verify and not options.dry_run:
            with Progress("compared", total, as_json=options.json) as progress:
                verify.verify(options.src, options.dst, options.jobs, progress.add)
            command.tell(options, {"verified": True}, "VERIFY_OK")
        return 0

    return command.guarded("repack_quark_mxfp4.py", work, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
