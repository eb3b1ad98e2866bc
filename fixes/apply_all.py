#!/usr/bin/env python3
"""Apply the fixes of a profile to the vLLM and vLLM-Gaudi that are installed for this Python: all of them, or none.

Runs inside the container, on the standard library of Python 3.10 or later.  See README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

sys.dont_write_bytecode = True  # this checkout may be read-only, and shared
FOLDER = str(Path(__file__).resolve().parent)
if FOLDER not in sys.path:  # as with -I and PYTHONSAFEPATH
    sys.path.insert(0, FOLDER)

from fixpack import catalog, image, work  # noqa: E402
from fixpack.errors import FixError, StorageError, UsageError  # noqa: E402
from fixpack.store import Store  # noqa: E402

EXIT_CODES = """\
exit codes:
  0  done: everything that was asked for is so
  1  --verify: a fix that was asked for is not applied
  2  the command line is wrong, or names no profile or fix; nothing was written
  3  a package is missing, or is not the one that the profile is for; nothing was written
  4  the code is not what a fix expects, or was changed since; nothing was written
  5  reading, locking or writing failed, or was interrupted; what was written is whole, and another run completes it
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code, see ``EXIT_CODES``."""
    options = _parser().parse_args(arguments)
    try:
        report = _run(options)
    except FixError as error:
        return _failed(options, error)
    except OSError as error:
        return _failed(options, StorageError(f"{error.filename or 'a file'}: {(error.strerror or str(error)).lower()}"))
    except KeyboardInterrupt:
        return _failed(options, StorageError("interrupted: what was written is whole, and another run completes it"))
    unsaid = _print(json.dumps(report, indent=1) if options.json else "\n".join(report["lines"]), sys.stdout)
    if unsaid is not None and not isinstance(unsaid, BrokenPipeError):  # whoever closed a pipe has read enough
        _print(f"apply_all.py: the output can not be written: {(unsaid.strerror or str(unsaid)).lower()}", sys.stderr)
        if options.list or options.dry_run:  # there was nothing else to do
            return StorageError.code
    return int(report["exit"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "apply_all.py", description=(__doc__ or "").split("\n\n")[0], epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--profile", metavar="NAME", help="the image that the packages come from, as v0.30.0")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the profiles and their fixes")
    what.add_argument("--dry-run", action="store_true", help="print what would change, as a unified diff, and write nothing")
    what.add_argument("--verify", action="store_true", help="exit 0 only if every fix, or --only FIX, is applied")
    what.add_argument("--revert", action="store_true", help="put the originals back; with FIX or --only FIX, take out that fix")
    parser.add_argument("named", nargs="*", metavar="FIX", help="an opt-in fix of the profile, to be applied as well")
    parser.add_argument("--only", action="append", default=[], metavar="FIX", help="this fix, and whatever is applied already")
    parser.add_argument("--site-packages", metavar="DIR", help="where the packages are, if not where Python finds them")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    return parser


def _run(options: argparse.Namespace) -> dict[str, Any]:
    if options.list:
        if options.named or options.only or options.site_packages is not None:
            raise UsageError("--list goes with --profile and --json alone")
        return _listed(options.profile)
    if options.profile is None:
        raise UsageError(f"--profile NAME is needed (known: {', '.join(catalog.profiles())})")
    if options.only and options.named:
        raise UsageError("--only FIX and further fixes exclude each other")
    if options.site_packages == "":
        raise UsageError("--site-packages '': names no folder")
    profile = catalog.profile(options.profile)
    if options.revert:
        names = catalog.wanted(profile, [], options.only or options.named)
    else:
        names = catalog.wanted(profile, options.named, options.only)
    packages = image.find(sorted(profile.image), Path(options.site_packages) if options.site_packages else None)
    image.check(packages, profile.image)
    store = Store(work.home(packages))
    known = catalog.fixes([*profile.fixes, *profile.opt_in])
    some = bool(options.only or options.named)

    def choose(applied: list[str]) -> list[catalog.Fix]:
        """What was opted for once stays, until it is reverted.  What only an older pack knew is left out, which reverts it."""
        left = [name for name in applied if some and name not in names] if options.revert else [*names, *applied]
        return [fix for fix in known if fix.name in left]

    if options.dry_run or options.verify:
        planned = work.steady_plan(choose, known, packages, store)
    else:
        planned = work.settle(choose, known, packages, store)
    changed = [str(file.path) for file in planned.changes]
    if options.dry_run:
        diff = [line for file in planned.changes for line in _diff(file)]
        return {"exit": 0, "files": changed, "diff": diff, "lines": diff or ["nothing to change"]}
    if options.revert:
        order = [fix.name for fix in known]
        gone = sorted(planned.leaving, key=lambda name: (order.index(name) if name in order else len(order), name))
        lines = [f"reverted  {name}" for name in gone] or ["nothing to revert"]
        return {"exit": 0, "reverted": gone, "files": changed, "lines": lines}
    missing, present = ("missing", "applied") if options.verify else ("applied", "already")
    states = {fix.name: missing if planned.missing(fix) else present for fix in planned.fixes}
    lines = [f"{states[fix.name]:<8}  {fix.name:<24}{fix.title}" for fix in planned.fixes] or ["no fix to apply"]
    return {"exit": int("missing" in states.values()), "fixes": states, "files": changed, "lines": lines}


def _listed(wanted: str | None) -> dict[str, Any]:
    profiles = [catalog.profile(name) for name in ([wanted] if wanted else catalog.profiles())]
    lines = []
    for profile in profiles:
        lines.append(f"{profile.name}: {profile.summary}")
        for fix in catalog.fixes([*profile.fixes, *profile.opt_in]):
            lines.append(f"  {fix.name:<24}{fix.title}{' (opt-in)' if fix.name in profile.opt_in else ''}")
    data = {profile.name: {"image": profile.image, "fixes": profile.fixes, "opt_in": profile.opt_in} for profile in profiles}
    return {"exit": 0, "profiles": data, "lines": lines}


def _diff(file: work.Planned) -> list[str]:
    """Lines end where ``patch`` ends them: a carriage return or a form feed is part of its line."""
    before, after = (content.decode("utf-8").removesuffix("\n").split("\n") for content in (file.current, file.wanted))
    return list(difflib.unified_diff(before, after, f"a/{file.name}", f"b/{file.name}", lineterm=""))


def _failed(options: argparse.Namespace, error: FixError) -> int:
    if options.json:
        _print(json.dumps({"exit": error.code, "errors": list(error.reasons)}, indent=1), sys.stdout)
    else:
        _print("\n".join(f"apply_all.py: {reason}" for reason in error.reasons), sys.stderr)
    return error.code


def _print(text: str, stream: TextIO | None) -> OSError | None:
    """Print, and see that it arrives.  Returns what hindered it; then Python shall not try again at its end."""
    if stream is not None:  # the caller closed it
        try:
            print(text, file=stream, flush=True)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return error
    return None


if __name__ == "__main__":
    for standard in (sys.stdout, sys.stderr):
        if isinstance(standard, io.TextIOWrapper):  # whatever the locale: diffs are UTF-8, and paths what bytes they are
            standard.reconfigure(encoding="utf-8", errors="surrogateescape")
    sys.exit(main())
