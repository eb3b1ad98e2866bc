"""``python -m schema.catalogs WHEEL -o FILE``: write down what a version of vLLM or SGLang accepts.

WHEEL is a wheel, or the folder one was unpacked into.  Nothing of it is imported or run, so neither torch nor an accelerator is
needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from schema.cache import write_atomically
from schema.catalogs.reading import Facts, read
from schema.catalogs.tree import UnreadableError


def as_json(facts: Facts) -> str:
    """The catalog's text: keys in order, one option and one parser a line."""

    def dump(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)

    options = ",\n".join(f"    {dump(flag)}: {dump(entry)}" for flag, entry in sorted(facts.options.items()))
    parts = [f'  "engine": {dump(facts.engine)}', f'  "options": {{\n{options}\n  }}']
    for name, parsers in (("reasoning_parsers", facts.reasoning_parsers), ("tool_parsers", facts.tool_parsers)):
        parts.append(f'  "{name}": [\n' + ",\n".join(f"    {dump(parser)}" for parser in parsers) + "\n  ]")
    parts[3:3] = [f'  "source": {dump(facts.source)}']
    parts.append(f'  "version": {dump(facts.version)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code: 1 after one line about what can not be read or written."""
    parser = argparse.ArgumentParser(
        "python -m schema.catalogs", description="Write the catalog of the options that a version of vLLM or SGLang accepts."
    )
    parser.add_argument("wheel", metavar="WHEEL", help="a wheel, or the folder one was unpacked into")
    parser.add_argument("-o", "--output", metavar="FILE", help="where the catalog goes; without it, to standard output")
    options = parser.parse_args(arguments)
    try:
        facts = read(Path(options.wheel))
    except UnreadableError as error:
        print(f"{options.wheel}: {error}", file=sys.stderr)
        return 1
    try:
        if options.output is None:
            sys.stdout.write(as_json(facts))
        else:
            write_atomically(options.output, as_json(facts).encode())
    except OSError as error:
        print(f"{error.filename or options.output}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 1
    print(
        f"{facts.engine} {facts.version}: {facts.entries} options, {len(facts.options)} spellings; "
        f"{len(facts.tool_parsers)} tool parsers, {len(facts.reasoning_parsers)} reasoning parsers",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
