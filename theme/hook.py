"""The MkDocs adapter: adds to the hand-written pages of ``site/`` all that is drawn from data.

Recipe pages are no MkDocs pages.  MkDocs renders one frame, as a page at the same depth, and each recipe's title, description and
body are put into it when the build is done; a thousand recipes cost one page of MkDocs.
"""

from __future__ import annotations

import html
import json
import logging
import re
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # mkdocs runs hooks without the configuration's folder on the path

import jinja2  # noqa: E402
from jinja2 import TemplateError  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.plugins import event_priority  # noqa: E402
from mkdocs.structure.files import File, InclusionLevel  # noqa: E402

from schema import vocabulary  # noqa: E402
from schema.problems import ProblemsError  # noqa: E402
from schema.source import read_text  # noqa: E402
from theme import markdown, packs, reference  # noqa: E402
from theme.book import Entry, read_book, unknown_recipe  # noqa: E402
from theme.finder import finder, llms_txt, recipes_json  # noqa: E402
from theme.serving import OnDemand  # noqa: E402
from theme.templating import Compiled, template_place  # noqa: E402
from theme.writing import ABOUT, BODY, TITLE, Frame, write_folder  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.livereload import LiveReloadServer
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.cookbook")

FRAME = "recipes/_owner/_name.md"
_RECIPE_LINK = re.compile(r'href="recipe:([^"\s#]+)(#[^"\s]*)?"')

_PIN = re.compile(r"\{\{ *([\w.-]+/[\w.-]+): *([^}]+?) *\}\}")


class _Build:
    """What one build hands from event to event."""

    entries: list[Entry] = []  # noqa: RUF012 - replaced whole, never changed
    frame: str = ""
    root: Path = ROOT
    serving: bool = False
    on_demand = OnDemand()


_FINDER = "<!-- finder -->"
_DRAWN: dict[str, Callable[[], str]] = {
    "<!-- fields -->": reference.fields,
    "<!-- statuses -->": reference.statuses_table,
}


def on_startup(command: str, **_: Any) -> None:
    """Note whether somebody is watching."""
    _Build.serving = command == "serve"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the repository from where mkdocs.yml lies."""
    _Build.root = Path(config.config_file_path).parent if config.config_file_path else ROOT
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Read all recipes; add the frame, and the pages of fix profiles and ports.

    While serving, problems are shown on the pages, which stay as they were; a build ends with them.
    """
    problems: list[str] = []
    pages: dict[str, str] = {}
    for file in [file for file in files.documentation_pages() if file.abs_src_path]:
        try:
            read_text(Path(str(file.abs_src_path)), f"site/{file.src_uri}")
        except ProblemsError as error:
            problems += map(str, error.problems)
            files.remove(file)
    try:
        vocabulary.refresh()
        _Build.entries = read_book(_Build.root)
        pages = packs.pages(_Build.root)
    except ProblemsError as error:
        problems += dict.fromkeys(map(str, error.problems))
    except TemplateError as error:
        problems += [template_place(error) or str(error)]
    if problems and not (_Build.serving and _Build.entries):
        raise PluginError("\n".join(["the pages can not be made:", *problems]))
    if problems:
        print("\n".join(["The pages stay as they were, because of problems:", *problems]), file=sys.stderr)
    config.extra["problems"] = problems
    meta = {
        "title": TITLE,
        "description": ABOUT,
        "hide": ["navigation", "toc"],
        "search": {"exclude": True},
        "script": "builder.js",
    }
    frame = f"---\n{json.dumps(meta)}\n---\n\n# {TITLE}\n\n{BODY}\n"
    files.append(File.generated(config, FRAME, content=frame, inclusion=InclusionLevel.NOT_IN_NAV))
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Draw what hand-written pages ask for, and put in what recipes pin."""

    def pin(match: re.Match[str]) -> str:
        entry = next((entry for entry in _Build.entries if entry.page.identity == match[1]), None)
        if entry is None or match[2] not in entry.pins:
            log.warning("%s: %s: no such pin of a recipe", page.file.src_uri, match[0])
            return match[0]
        return entry.pins[match[2]]

    markdown = _PIN.sub(pin, markdown)
    for mark, draw in _DRAWN.items():
        if mark in markdown:
            markdown = markdown.replace(mark, draw())
    return markdown


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Resolve ``recipe:OWNER/NAME`` links; let each table scroll in a frame that the keyboard reaches; draw the finder.

    The finder is HTML, and long: Python-Markdown would take longer to pass it through than it takes to draw.
    """
    up = "../" * page.url.count("/")

    def link(match: re.Match[str]) -> str:
        if why := unknown_recipe(match[1], _Build.entries):
            log.warning("%s: link to recipe:%s: %s", page.file.src_uri, match[1], why)
        return f'href="{up}recipes/{match[1]}/{match[2] or ""}"'

    html = _RECIPE_LINK.sub(link, html)
    html = html.replace("<table>", markdown.TABLE_OPENS).replace("</table>", markdown.TABLE_CLOSES)
    return html.replace(_FINDER, finder([entry.card for entry in _Build.entries])) if _FINDER in html else html


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Keep the frame, and write no page for it."""
    if page.file.src_uri != FRAME:
        return output
    _Build.frame = output
    return ""


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """List recipes in the site map; without an address of the site there is nothing a site map could say."""
    if template_name != "sitemap.xml":
        return output_content
    if not config.site_url:
        return ""
    base = config.site_url.rstrip("/")
    own = re.compile(r"\s*<url>\s*<loc>[^<]*/recipes/_owner/_name/</loc>.*?</url>", re.DOTALL)
    listed = "".join(f"\n    <url><loc>{base}/recipes/{entry.page.identity}/</loc></url>" for entry in _Build.entries)
    return own.sub("", output_content).replace("</urlset>", f"{listed}\n</urlset>")


def on_env(env: jinja2.Environment, **_: Any) -> jinja2.Environment:
    """Keep the theme's compiled templates, which are the same from build to build; and say where one is wrong."""
    env.bytecode_cache = Compiled(_Build.root)
    for name in ("main.html", "404.html"):
        try:
            env.get_template(name)
        except TemplateError as error:
            raise PluginError(template_place(error) or str(error)) from None
    return env


@event_priority(-90)
def on_post_build(config: MkDocsConfig) -> None:
    """Write the recipe pages, what lies beside them, and the listings; add the recipes to the search index."""
    site = Path(config.site_dir)
    write = partial(write_folder, config.site_dir, Frame(_Build.frame))
    if _Build.serving:
        _Build.on_demand.built(_Build.entries, write)
    else:
        for entry in _Build.entries:
            write(entry)
    cards = [entry.card for entry in _Build.entries]
    (site / "recipes.json").write_text(recipes_json(cards), "utf-8")
    (site / "llms.txt").write_text(llms_txt(cards, config.site_name, config.site_description or ""), "utf-8")
    index = site / "search" / "search_index.json"
    if index.is_file():
        data = json.loads(index.read_text("utf-8"))
        data["docs"] += [
            {"location": f"recipes/{page.identity}/{f'#{anchor}' if anchor else ''}", "title": title, "text": html.escape(text)}
            for page in (entry.page for entry in _Build.entries)
            for anchor, title, text in page.search
        ]
        index.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), "utf-8")


def on_serve(server: LiveReloadServer, config: MkDocsConfig, **_: Any) -> LiveReloadServer:
    """Build again when a recipe, a template, a style sheet, a fix or a port changes."""
    try:
        with socket.socket(server.address_family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(server.server_address)
    except OSError as error:
        host, port = (str(part) for part in server.server_address[:2])
        raise PluginError(
            f"{host}:{port}: {(error.strerror or str(error)).lower()}: choose another, as mkdocs serve -a 127.0.0.1:8001"
        ) from None
    for folder in ("recipes", "theme", "schema/vocabulary", "fixes", "ports"):
        if (_Build.root / folder).is_dir():
            server.watch(str(_Build.root / folder))
    if _Build.serving:
        server.builder = _Build.on_demand.guarded(server.builder)
        server.set_app(_Build.on_demand.before(server.get_app(), server.mount_path))  # type: ignore[arg-type]
    return server
