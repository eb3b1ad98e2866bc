#!/usr/bin/env python3
"""Prove that an FP8 checkpoint holds the very numbers of the MXFP4 checkpoint it was made from, element by element."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    from ckpt import command, verify
    from ckpt.progress import Progress
except ModuleNotFoundError as missing:
    sys.exit(f"validate_fp8.py: the package {missing.name} is missing: pip install {missing.name}")


def main(arguments: list[str] | None = None) -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser("validate_fp8.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mxfp4", type=Path, required=True, metavar="DIR", help="what repack_quark_mxfp4.py made")
    parser.add_argument("--fp8", type=Path, required=True, metavar="DIR", help="what mxfp4_to_fp8.py made of it")
    command.add_jobs(parser)
    parser.add_argument("--json", action="store_true", help="progress as JSON objects")
    options = command.parsed(parser, arguments)

    def work() -> int:
        total = sum(file.stat().st_size for file in options.fp8.glob("*.safetensors"))
        with Progress("compared", total, as_json=options.json) as progress:
            verify.validate_fp8(options.mxfp4, options.fp8, options.jobs, progress.add)
        print("VALIDATE_OK")
        return 0

    return command.guarded("validate_fp8.py", work)


if __name__ == "__main__":
    sys.exit(main())
