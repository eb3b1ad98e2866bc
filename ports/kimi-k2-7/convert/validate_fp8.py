#!/usr/bin/env python3
"""Prove that an FP8 checkpoint holds the very numbers of the MXFP4 checkpoint it was made from, element by element.

Its configuration and its other files are compared too.  Nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    from ckpt import command
    from ckpt.progress import Progress
    from ckpt.validate import Validation
except ModuleNotFoundError as missing:
    sys.exit(f"validate_fp8.py: the package {missing.name} is missing: pip install {missing.name}")
except KeyboardInterrupt:
    sys.exit(130)


def main(arguments: list[str] | None = None) -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser("validate_fp8.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mxfp4", type=Path, required=True, metavar="DIR", help="what repack_quark_mxfp4.py made")
    parser.add_argument("--fp8", type=Path, required=True, metavar="DIR", help="what mxfp4_to_fp8.py made of it")
    command.add_format(parser)
    parser.add_argument(
        "--allow-underflow", action="store_true", help="let an element be the nearest number, and say how many are"
    )
    command.add_jobs(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = command.parsed(parser, arguments)

    def work() -> int:
        largest = command.LARGEST[options.format]
        validation = Validation(options.mxfp4, options.fp8, largest=largest, rounds=options.allow_underflow)
        with Progress("compared", validation.size, as_json=options.json) as progress:
            validation.run(options.jobs, progress.add)
        text = f"every number is the nearest; rounded: {validation.rounded:,}" if validation.rounded else "VALIDATE_OK"
        command.tell(options, {"validated": True, "rounded": validation.rounded}, text)
        return 0

    return command.guarded("validate_fp8.py", work, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
