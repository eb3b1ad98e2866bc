"""Compiled Jinja templates, kept from build to build."""

from __future__ import annotations

import traceback
from importlib.metadata import version
from pathlib import Path

import jinja2
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from schema import cache


class Compiled(BytecodeCache):
    """Keeps compiled templates in the repository's cache; Jinja itself finds out whether one is of the source as it stands."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made_by = f"{version('jinja2')}-{version('mkdocs')}"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill a bucket from the cache, if there is an entry."""
        kept = cache.read(self._root, "templates", f"{bucket.key}-{self._made_by}")
        if kept is not None:
            bucket.bytecode_from_string(kept)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was compiled."""
        cache.write(self._root, "templates", f"{bucket.key}-{self._made_by}", bucket.bytecode_to_string())


def template_place(error: BaseException) -> str | None:
    """Where a template fails, as ``file:line:1: why``; None for an error of something else."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.filename or error.name}:{error.lineno}:1: {error.message}"
    if not isinstance(error, jinja2.TemplateError):
        return None
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    inside = [(file, line) for file, line in places if file.endswith((".html", ".md"))]
    file, line = inside[-1] if inside else ("a template", 1)
    return f"{file}:{line}:1: {error}"
