#!/usr/bin/env python3
"""Convert a fused MXFP4 checkpoint to FP8 with one power of two a channel, without changing a number.

A channel for which that can not be is named, and nothing is left that looks loadable.  A run that was ended goes on with the same
command, however it was ended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    from ckpt import command, unfused
    from ckpt.plan import Form
    from ckpt.source import read_checkpoint
except ModuleNotFoundError as missing:
    sys.exit(f"mxfp4_to_fp8.py: the package {missing.name} is missing: pip install {missing.name}")
except KeyboardInterrupt:
    sys.exit(130)


def main(arguments: list[str] | None = None) -> int:
    """Plan and convert; returns the exit code."""
    parser = argparse.ArgumentParser("mxfp4_to_fp8.py", description=__doc__, allow_abbrev=False)
    command.add_options(parser, Path("what repack_quark_mxfp4.py made"))
    command.add_format(parser)
    parser.add_argument("--allow-underflow", action="store_true", help="round what is not exact, and count it")
    options = command.parsed(parser, arguments)

    def work() -> int:
        source = read_checkpoint(options.src)
        plan = unfused.fp8_plan(source, Form(command.LARGEST[options.format], options.allow_underflow))
        command.announce(source, plan, options)
        command.convert(plan, options)
        return 0

    return command.guarded("mxfp4_to_fp8.py", work, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
