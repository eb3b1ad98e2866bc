"""Recipes' folders while ``mkdocs serve`` runs: written when they are first asked for.

MkDocs empties the site's folder before each build.  Writing the folders of a thousand recipes again would be most of what an
edit costs, and a reader looks at a few of them.
"""

from __future__ import annotations

import html
import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from theme.book import Entry
from theme.templating import template_place

log = logging.getLogger("mkdocs.hooks.cookbook")

_FAILED = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>Not built</title></head>
<body><h1>The site could not be built</h1><pre>{why}</pre><p>This page goes away with the mistake.</p></body></html>
"""
_RECIPE = re.compile(r"recipes/([^/]+/[^/]+)(?:/|$)")


class _Said(logging.Handler):
    """What MkDocs said in the terminal during one build."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.lines.append(record.getMessage())


class OnDemand:
    """Which recipes were asked for, and which of them this build still has to write."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the server answers each request in a thread of its own
        self._asked: set[str] = set()
        self._unwritten: dict[str, Entry] = {}
        self._write: Callable[[Entry], None] = lambda _: None
        self._failure = ""

    def built(self, entries: Sequence[Entry], write: Callable[[Entry], None]) -> None:
        """Take what a build made.  Folders asked for before are written now, so that none is missing to a waiting request."""
        with self._lock:
            self._unwritten = {entry.page.identity: entry for entry in entries}
            self._write = write
            for identity in self._asked:
                self._provide(identity)

    def guarded(self, build: Callable[[], None]) -> Callable[[], None]:
        """A build whose failure is shown instead of the pages; MkDocs by itself would answer no more until it is mended."""

        def attempt() -> None:
            said = _Said(logging.WARNING)
            logging.getLogger("mkdocs").addHandler(said)
            try:
                build()
            except Exception as error:  # of whatever a page, a template or a plugin may do
                self._failure = "\n".join([*said.lines, template_place(error) or f"{type(error).__name__}: {error}"])
                log.error("The site could not be built: %s", self._failure.splitlines()[-1])
            else:
                self._failure = ""
            finally:
                logging.getLogger("mkdocs").removeHandler(said)

        return attempt

    def before(self, app: Callable[..., Iterable[bytes]], mount: str) -> Callable[..., Iterable[bytes]]:
        """The server's WSGI application, with a recipe's folder written before it is looked for."""

        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if self._failure and not environ["PATH_INFO"].startswith("/livereload/"):
                # No error to HTTP: MkDocs would warn of it, and count that warning against the build that mends it.
                start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
                return [_FAILED.format(why=html.escape(self._failure)).encode()]
            if "\0" in environ["PATH_INFO"]:
                start_response("404 Not Found", [("Content-Type", "text/plain")])
                return [b"no file has this name"]
            if asked := _RECIPE.match(environ["PATH_INFO"].removeprefix(mount)):
                with self._lock:
                    self._asked.add(asked[1])
                    self._provide(asked[1])
            return app(environ, start_response)

        return answer

    def _provide(self, identity: str) -> None:
        if entry := self._unwritten.pop(identity, None):
            self._write(entry)
