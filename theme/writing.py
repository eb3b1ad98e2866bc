"""A recipe's folder in the built site: its page in the frame that MkDocs rendered, and the files beside it."""

from __future__ import annotations

import html
import os
import re

from theme.book import Entry

TITLE, ABOUT, BODY = "cookbook-frame-title", "cookbook-frame-about", "cookbook-frame-body"
"""What stands in the frame for a recipe's title, description and body."""


class Frame:
    """The rendered frame, cut where a recipe's own text goes."""

    _marks = re.compile(rf"<h1[^>]*>{TITLE}.*?<p>{BODY}</p>|#{TITLE}|{TITLE}|{ABOUT}|recipes/_owner/_name", re.DOTALL)

    def __init__(self, text: str) -> None:
        self._pieces = self._marks.split(text)
        self._kinds = [self._kind(match[0]) for match in self._marks.finditer(text)]

    @staticmethod
    def _kind(mark: str) -> str:
        if mark.endswith(f"<p>{BODY}</p>"):
            return "body"
        return {f"#{TITLE}": "skip", TITLE: "title", ABOUT: "about"}.get(mark, "place")

    def filled(self, identity: str, about: str, body: str) -> str:
        """The whole page of a recipe."""
        words = {
            "title": html.escape(identity),
            "about": html.escape(about),
            "place": f"recipes/{identity}",
            "skip": "#launch",
            "body": body,
        }
        out = [self._pieces[0]]
        for kind, piece in zip(self._kinds, self._pieces[1:]):
            out += (words[kind], piece)
        return "".join(out)


def write_folder(site: str, frame: Frame, entry: Entry) -> None:
    """Write the folder of one recipe."""
    page = entry.page
    folder = f"{site}/recipes/{page.identity}"
    os.makedirs(folder, exist_ok=True)
    for name, text in (
        ("index.html", frame.filled(page.identity, page.description, page.body)),
        ("index.md", page.markdown),
        ("launch.sh", entry.launch),
        ("recipe.json", entry.data),
    ):
        with open(f"{folder}/{name}", "wb") as file:
            file.write(text.encode())
