#!/usr/bin/env python3
"""The cookbook's command line: build the site, check recipes, export launch blocks and their data.

Without arguments it builds the site into ``_site/``.  Exit codes: 0 done; 1 something is wrong with the recipes, or a file can
not be written; 2 the command line names something that does not exist.  Each command imports what it needs and no more.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING would import typing
if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from typing import Any

ROOT = os.path.dirname(os.path.abspath(__file__))

DESCRIPTION = """\
Build the Gaudi Cookbook, check its recipes, and export launch blocks.
Without a command the site is built into _site/."""

EXAMPLES = """\
RECIPE is an id such as amd/Kimi-K2.7-Code-MXFP4, or the path of its folder or recipe.yaml.

examples:
  python build_site.py
  python build_site.py --check
  python build_site.py --check recipes/amd --format github
  python build_site.py --export-shell amd/Kimi-K2.7-Code-MXFP4 > launch.sh
  python build_site.py --export-shell amd/Kimi-K2.7-Code-MXFP4 --set kernels=off -o launch.sh
  python build_site.py --export-json moonshotai/Kimi-K2.7-Code"""


class UsageError(Exception):
    """The command line asks for something that does not exist."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if sys.version_info < (3, 10):  # noqa: UP036 - whoever runs an older one is to be told
        sys.stderr.write("build_site.py: Python 3.10 or later is needed\n")
        return 1
    if ROOT not in map(os.path.abspath, sys.path):
        sys.path.insert(0, ROOT)  # Python was told not to look beside the program
    if sys.stdout is None:
        sys.stderr.write("build_site.py: standard output is closed\n") if sys.stderr else None
        return 1
    try:
        quick = _quick(arguments)
        return export_shell(*quick) if quick else _run(arguments)
    except UsageError as error:
        print(f"build_site.py: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"build_site.py: the package {error.name} is missing: run make setup, then .venv/bin/python build_site.py …",
            file=sys.stderr,
        )
        return 1
    except BrokenPipeError:
        # The reader of our output left; let the interpreter's own flush at exit find nothing to complain about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"build_site.py: {error.filename or 'output'}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _print_problems(error)


def _print_problems(error: Exception) -> int:
    """Print the problems that a ``ProblemsError`` carries; the quick path does not import its type.  Others are raised."""
    problems = getattr(error, "problems", None)
    if problems is None:
        raise error
    from schema.problems import as_text

    sys.stderr.write(as_text(problems))
    return 1


def _quick(arguments: list[str]) -> tuple[str, list[str], str | None] | None:
    """Read the plain form of ``--export-shell`` without argparse, which takes longer to import than the export to run."""
    if len(arguments) < 2 or arguments[0] != "--export-shell" or arguments[1].startswith("-"):
        return None
    sets, output = [], None
    rest = iter(arguments[2:])
    for option in rest:
        value = next(rest, None)
        if value is None or (value.startswith("-") and value != "-"):
            return None
        if option == "--set":
            sets.append(value)
        elif option in ("-o", "--output"):
            output = value
        else:
            return None
    return arguments[1], sets, output


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        "build_site.py", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )  # fmt: skip
    commands = parser.add_argument_group("commands").add_mutually_exclusive_group()
    commands.add_argument("--check", nargs="*", metavar="PATH", help="check all recipes, or those at or under each PATH")
    commands.add_argument("--list", action="store_true", help="list the recipes with their engine, hardware and status")
    commands.add_argument("--export-shell", metavar="RECIPE", help="print the launch block of a recipe")
    commands.add_argument(
        "--export-json", nargs="?", const="", metavar="RECIPE",
        help="print every selection of a recipe, or of all: environment, argv and block",
    )  # fmt: skip
    commands.add_argument("--schema", action="store_true", help="print the JSON Schema of recipe.yaml, for editors")
    options = parser.add_argument_group("options")
    options.add_argument("--set", action="append", default=[], metavar="AXIS=OPTION", help="with --export-shell: a choice")
    options.add_argument(
        "-o", "--output", metavar="FILE", help="write what an export or --schema prints to FILE; - is standard output"
    )
    options.add_argument("--format", choices=["text", "github", "json"], help="with --check: how problems are printed")
    return parser


def _run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.set and options.export_shell is None:
        parser.error("--set needs --export-shell RECIPE")
    if options.format and options.check is None:
        parser.error("--format needs --check")
    prints = options.export_shell is not None or options.export_json is not None or options.schema
    if options.output and not prints:
        parser.error("-o needs --export-shell, --export-json or --schema")
    if options.check is not None:
        return check(options.check, options.format or "text")
    if options.list:
        return list_recipes()
    if options.export_shell is not None:
        return export_shell(options.export_shell, options.set, options.output)
    if options.export_json is not None:
        return export_json(options.export_json, options.output)
    if options.schema:
        return print_schema(options.output)
    return build()


def export_shell(wanted: str, sets: list[str], output: str | None) -> int:
    """Print the launch block of one selection of one recipe."""
    from schema.block import render
    from schema.selecting import ChoiceError, resolve

    program = _program(wanted)
    if program is None:
        return 1
    choices: dict[str, str] = {}
    for item in sets:
        axis, equals, option = item.partition("=")
        if not equals or not axis:
            raise UsageError(f"--set {item}: write it as AXIS=OPTION")
        if choices.setdefault(axis.casefold(), option).casefold() != option.casefold():
            raise UsageError(f"--set {item}: {axis} is set to {choices[axis.casefold()]} as well")
    try:
        selection = resolve(program["axes"], choices)
    except ChoiceError as error:
        raise UsageError(f"{program['id']}: {error}") from None
    _emit(render(program, selection), output, executable=True)
    return 0


def export_json(wanted: str, output: str | None) -> int:
    """Print every selection of one recipe, or of all."""
    import json

    from schema.block import describe
    from schema.programs import identities

    if wanted:
        program = _program(wanted)
        data: Any = program and describe(program)
    else:
        programs = [_program(identity) for identity in identities(ROOT)]
        data = {"recipes": [describe(program) for program in programs if program]} if all(programs) else None
    if data is None:
        return 1
    _emit(json.dumps(data, indent=2, ensure_ascii=False) + "\n", output)
    return 0


def _program(wanted: str) -> dict[str, Any] | None:
    """The launch program of a recipe; None after its problems are printed."""
    from schema.programs import UnknownRecipeError, locate, program

    try:
        file = locate(wanted, ROOT)
    except UnknownRecipeError as error:
        raise UsageError(str(error)) from None
    try:
        return program(file)
    except Exception as error:
        _print_problems(error)
        return None


def check(paths: list[str], style: str) -> int:
    """Check recipes and print what is wrong with them."""
    import gc
    from pathlib import Path

    from schema import problems as reporting
    from schema.export import schema_problems
    from schema.loading import load, misplaced, recipe_files
    from schema.programs import root_of

    # What is loaded by now stays to the end: the collector need not look at it again and again.
    gc.freeze()
    files = [file for path in paths for file in _recipes_under(Path(path))] if paths else recipe_files(Path(ROOT))
    found = [] if paths else [*schema_problems(), *misplaced(Path(ROOT), files)]
    selections = 0
    for file in dict.fromkeys(files):
        try:
            loaded = load(file, Path(root_of(str(file))))
        except reporting.ProblemsError as error:
            found += error.problems
        else:
            selections += len(loaded.selections)
    printer = {"text": reporting.as_text, "github": reporting.as_github, "json": reporting.as_json}[style]
    _emit(printer(sorted(set(found))), None)
    if style == "text":
        count = len(set(found))
        recipes = f"{len(files)} recipe{'s' if len(files) != 1 else ''}"
        outcome = f"{count} problem{'s' if count != 1 else ''}" if count else f"no problem in {selections} selections"
        print(f"{recipes}: {outcome}", file=sys.stderr)
    return 1 if found else 0


def _recipes_under(path: Path) -> list[Path]:
    if path.is_dir():
        own = path / "recipe.yaml"
        files = [own] if own.exists() else sorted(path.rglob("recipe.yaml"))
        if not files:
            raise UsageError(f"{path}: no recipe.yaml in or under this folder")
        return files
    if not path.exists() and not path.is_symlink():
        from schema.programs import UnknownRecipeError, locate

        try:
            return [path.__class__(locate(str(path), ROOT))]
        except UnknownRecipeError as error:
            raise UsageError(f"{path}: no such file or folder, and {error}") from None
    return [path]


def list_recipes() -> int:
    """Print one line a recipe."""
    from schema.export import listing

    _emit(listing(), None)
    return 0


def print_schema(output: str | None) -> int:
    """Print the JSON Schema of ``recipe.yaml``."""
    from schema.export import json_schema

    _emit(json_schema(), output)
    return 0


def build() -> int:
    """Build the site into ``_site/``, strictly: a warning fails it."""
    from theme.building import build_site

    return build_site(ROOT)


def _emit(text: str, output: str | None, *, executable: bool = False) -> None:
    """Write UTF-8 to a file, all of it or nothing, or to standard output."""
    if output is None or output == "-":
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
        return
    from schema.cache import write_atomically

    write_atomically(output, text.encode(), 0o777 if executable else 0o666)


if __name__ == "__main__":
    sys.exit(main())
