"""The built site in a real Chromium: what a reader sees, does and shares."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import re
import shutil
import threading
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode, urljoin, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from schema.block import describe, render
from schema.loading import ROOT, LoadedRecipe, load_all
from schema.selecting import resolve
from sitebuild import built_site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

GAUDI = "recipes/amd/Kimi-K2.7-Code-MXFP4/"
SGLANG = "recipes/moonshotai/Kimi-K2.7-Code/"
PAGES = ["", "getting-started/", "write-a-recipe/", "evidence/", GAUDI, SGLANG, "404.html"]
RECIPES = load_all(ROOT)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The built site, served."""
    site = built_site(tmp_path_factory.mktemp("site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    assert path, "the browser tests need Chromium: run tests/chromium.sh"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1400, "height": 900})
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A page on which an error of a script fails the test."""
    made = context.new_page()
    made.on("pageerror", lambda error: pytest.fail(f"script error: {error}"))
    return made


def block(page: Page) -> str:
    return str(page.locator("#block").evaluate("element => element.textContent"))


@pytest.mark.parametrize("loaded", RECIPES, ids=lambda item: item.identity)
def test_every_selection_shows_what_is_exported(loaded: LoadedRecipe, address: str, page: Page) -> None:
    """By address and by choosing: the text of the page is the exported block."""
    place = f"{address}recipes/{loaded.identity}/"
    described = describe(loaded.program)["selections"]
    for entry in described:
        page.goto(f"{place}?{urlencode(entry['selection'])}")
        assert block(page) == entry["shell"], entry["selection"]
    page.goto(place)
    for entry in described:
        for axis, option in entry["selection"].items():
            page.locator(f'input[name="{axis}"][value="{option}"]').evaluate("input => input.click()")
        assert block(page) == entry["shell"], entry["selection"]
        checked = page.locator("input:checked").evaluate_all("inputs => inputs.map(input => [input.name, input.value])")
        assert {name: value for name, value in checked if name in entry["selection"]} == entry["selection"]


@pytest.mark.parametrize("loaded", RECIPES, ids=lambda item: item.identity)
def test_the_default_block_needs_no_script(loaded: LoadedRecipe, address: str, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}recipes/{loaded.identity}/")
    html = page.content()
    shown = re.search(r'<code id="block">(.*?)</code>', html, re.DOTALL)
    assert shown and unescape(re.sub(r"<[^>]+>", "", shown[1])) == render(loaded.program, resolve(loaded.program["axes"], {}))
    assert page.locator("#block").is_visible()
    assert page.locator("[data-cb=axes] input:enabled").count() == 0, "choices that would change nothing are closed"
    context.close()


def test_the_address_keeps_the_choice(address: str, page: Page) -> None:
    page.goto(address + SGLANG)
    page.locator('input[value="MI355X"]').check(force=True)
    assert "--attention-backend aiter" in block(page), "MXFP4 is the default there"
    assert "quantization=MXFP4" in page.url and "hardware=MI355X" in page.url
    shared, text = page.url, block(page)
    page.goto("about:blank")
    page.goto(shared)
    assert block(page) == text
    page.locator('input[value="INT4"]').check(force=True)
    assert "moonshotai/Kimi-K2.7-Code" in block(page) and "v0.5.9-rocm700-mi35x" in block(page)
    page.locator('input[value="H200"]').check(force=True)
    assert "?" not in page.url, "the default selection has the plain address"


def test_an_address_with_nonsense_shows_the_default(address: str, page: Page) -> None:
    page.goto(address + SGLANG)
    default = block(page)
    page.goto(f"{address}{SGLANG}?hardware=TOASTER&quantization=<script>&__proto__=x&image=v0.5.17-rocm720-mi35x")
    assert block(page) == default
    status = page.locator("[data-cb=status]")
    assert "not offered" in status.inner_text()
    assert status.inner_text().startswith("__proto__, hardware=TOASTER, quantization=<script> is no choice of this recipe.")
    page.locator('input[value="B300"]').check(force=True)
    assert "TOASTER" not in status.inner_text()
    chosen = page.url.partition("?")[2]
    page.goto(f"{address}{SGLANG}?{chosen.replace('hardware=B300', 'HARDWARE=b300')}&hardwar=H200&utm_source=x")
    assert "--tp 8" in block(page) and "tokenspeed_mla" in block(page)
    assert status.inner_text() == "hardwar is no choice of this recipe."


def test_a_choice_that_is_not_offered_says_why_and_is_not_taken(address: str, page: Page) -> None:
    page.goto(address + SGLANG)
    before = block(page)
    closed = page.locator('input[value="MXFP4"]')
    assert closed.get_attribute("aria-disabled") == "true"
    closed.evaluate("input => input.click()")
    assert block(page) == before and not closed.is_checked()
    assert "MI350X and MI355X only" in page.locator('[data-axis="quantization"] [data-cb=why]').inner_text()
    assert "names no image" in page.locator('[data-axis="image"] [data-cb=why]').inner_text()


def test_the_badge_belongs_to_the_exact_selection(address: str, page: Page) -> None:
    badge = page.locator("[data-cb=badge]")
    page.goto(address + GAUDI)
    assert badge.inner_text() == "Reported"
    assert page.get_by_text("Reported, not verified here.").is_visible()
    page.goto(address + SGLANG)
    assert badge.inner_text() == "Not verified"
    page.goto(f"{address}{SGLANG}?hardware=MI355X")
    assert badge.inner_text() == "Reported"
    page.goto(f"{address}{SGLANG}?hardware=MI350X")
    assert badge.inner_text() == "Not verified"


def test_configuration_and_request_follow_the_choice(address: str, page: Page) -> None:
    page.goto(f"{address}{SGLANG}?hardware=MI355X")
    table = page.locator("[data-cb=configuration]").inner_text()
    assert "4 × MI355X" in table and "rocm/sgl-dev:v0.5.17-rocm720-mi35x-20260812" in table and "TP 4" in table
    request = page.locator("#client").inner_text()
    assert '"amd/Kimi-K2.7-Code-MXFP4"' in request and "localhost:30000" in request
    page.goto(address + GAUDI)
    assert "localhost:8000" in page.locator("#client").inner_text()
    assert "131,072 tokens served (262,144 native)" in page.locator("[data-cb=configuration]").inner_text()


def test_copying_gives_the_block(address: str, context: BrowserContext, page: Page) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{address}{GAUDI}?kernels=off")
    page.locator("button[data-copy=block]").click()
    assert page.evaluate("navigator.clipboard.readText()") == block(page)
    assert "KIMI_MXK=0" in block(page)
    assert page.locator("button[data-copy=block]").inner_text() == "Copied"


def test_the_builder_works_from_the_keyboard(address: str, page: Page) -> None:
    page.goto(address + GAUDI)
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "kernels":
            break
    assert page.evaluate("document.activeElement.value") == "on"
    outline = page.evaluate("getComputedStyle(document.activeElement.nextElementSibling).outlineStyle")
    assert outline == "solid", "the focus is visible"
    page.keyboard.press("ArrowRight")
    assert "KIMI_MXK=0" in block(page) and "kernels=off" in page.url
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") != "kernels"


def test_the_keyboard_passes_over_what_is_not_offered(address: str, page: Page) -> None:
    page.goto(address + SGLANG)
    page.locator('input[value="INT4"]').focus()
    before = block(page)
    page.keyboard.press("ArrowRight")
    assert block(page) == before and page.locator('input[value="INT4"]').is_checked()


def _first_view(page: Page, place: str) -> dict[str, int]:
    """Gzipped size of each answer until the page is at rest."""
    sizes: dict[str, int] = {}

    def note(response: Any) -> None:
        sizes[urlparse(response.url).path] = len(gzip.compress(response.body(), 9, mtime=0))

    page.on("response", note)
    page.goto(place, wait_until="networkidle")
    return sizes


@pytest.mark.parametrize("path", [GAUDI, SGLANG])
def test_the_first_view_weighs_at_most_60_kb(path: str, address: str, page: Page) -> None:
    sizes = _first_view(page, address + path)
    assert sum(sizes.values()) <= 60_000, sizes


def test_no_request_leaves_the_site(address: str, context: BrowserContext) -> None:
    elsewhere = []
    context.on("request", lambda request: None if request.url.startswith(address) else elsewhere.append(request.url))
    page = context.new_page()
    for path in PAGES:
        page.goto(address + path)
        page.mouse.move(200, 300)
        page.keyboard.press("Tab")
        page.wait_for_load_state("networkidle")
    page.goto(address)
    page.locator("[data-md-component=search-query]").click()
    page.keyboard.type("kimi")
    page.locator(".md-search-result__item").first.wait_for()
    assert elsewhere == []


def test_the_search_finds_recipes_and_their_sections(address: str, page: Page) -> None:
    page.goto(address)
    page.locator("[data-md-component=search-query]").click()
    page.keyboard.type("known issues")
    link = page.locator(".md-search-result__link").first
    link.wait_for()
    links = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    assert any(GAUDI in href and "#known-issues" in href for href in links), links


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing(scheme: Any, width: int, address: str, browser: Browser) -> None:
    """No violation of WCAG 2.1 A and AA on any page."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    rules = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
    found = {}
    for path in [*PAGES, f"{SGLANG}?hardware=MI355X"]:
        page.goto(address + path)
        if page.locator("details.cb-lines").count():
            page.locator("details.cb-lines").evaluate("details => { details.open = true }")
        assert page.locator("body").get_attribute("data-md-color-scheme") == {"light": "default", "dark": "slate"}[scheme]
        violations = Axe().run(page, options=rules).response["violations"]
        if violations:
            found[path] = [(v["id"], [node["target"] for node in v["nodes"]][:3]) for v in violations]
    context.close()
    assert found == {}


@pytest.mark.parametrize("path", PAGES)
def test_nothing_sticks_out_at_360_pixels(path: str, address: str, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(address + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


def test_the_colours_can_be_switched_and_stay(address: str, page: Page) -> None:
    page.goto(address + GAUDI)
    body = page.locator("body")
    seen = set()
    for _ in range(3):
        page.locator("[data-md-component=palette] label:visible").click()
        page.wait_for_timeout(150)
        seen.add(body.get_attribute("data-md-color-scheme"))
    assert seen == {"default", "slate"}
    while body.get_attribute("data-md-color-scheme") != "slate":
        page.locator("[data-md-component=palette] label:visible").click()
        page.wait_for_timeout(150)
    page.goto(address + SGLANG)
    assert body.get_attribute("data-md-color-scheme") == "slate"


def test_a_browser_that_keeps_nothing(address: str, context: BrowserContext) -> None:
    """Material's own script fails there, as it does on every site; ours go on."""
    page = context.new_page()
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('closed', 'SecurityError'); }});"
    )
    page.goto(address + SGLANG)
    page.locator('input[value="B300"]').check(force=True)
    assert "hardware=B300" in page.url
    assert page.locator(".cb-copy").first.is_visible()


def test_paper_is_light(address: str, browser: Browser) -> None:
    context = browser.new_context(color_scheme="dark", reduced_motion="reduce")
    page = context.new_page()
    page.goto(address + GAUDI)
    colour = "element => getComputedStyle(element).color"
    on_screen = page.locator("#block").evaluate(colour)
    page.emulate_media(media="print")
    on_paper = page.locator("#block").evaluate(colour)
    page.emulate_media(media="print", color_scheme="light")
    assert page.locator("#block").evaluate(colour) == on_paper != on_screen
    context.close()


def test_on_paper_the_block_is_whole(address: str, page: Page) -> None:
    page.goto(address + GAUDI)
    page.emulate_media(media="print")
    assert page.locator("#block").is_visible()
    assert not page.locator("[data-cb=axes]").is_visible()
    overflow = page.locator("#block").evaluate("code => code.scrollWidth - code.parentElement.clientWidth")
    assert overflow <= 1


def test_the_finder_filters_and_keeps_the_filters_in_the_address(address: str, page: Page) -> None:
    page.goto(address)
    cards = page.locator(".cb-card:visible")
    assert cards.count() == len(RECIPES)
    page.locator("select[name=engine]").select_option("sglang")
    assert cards.count() == 1 and "moonshotai" in cards.first.inner_text()
    page.locator("select[name=engine]").select_option("")
    page.locator("select[name=hardware]").select_option("gaudi2")
    assert cards.count() == 1 and "amd" in cards.first.inner_text()
    page.reload()
    assert cards.count() == 1 and "hardware=gaudi2" in page.url
    page.locator(".cb-reset").click()
    page.wait_for_timeout(50)
    assert cards.count() == len(RECIPES) and "?" not in page.url
    page.locator("input[name=memory]").fill("768")
    assert cards.count() == len(RECIPES), "eight cards of 96 GB, four of 192"
    page.locator("input[name=memory]").fill("767")
    assert cards.count() == 0 and page.get_by_text("No recipe fits.").is_visible()
    page.locator("[data-cb=clear]").click()
    page.wait_for_timeout(50)
    assert cards.count() == len(RECIPES)
    page.goto(f"{address}?hardware=toaster&memory=much")
    count = page.locator("[data-cb=count]")
    assert cards.count() == len(RECIPES) and "what no recipe has: hardware=toaster, memory=much" in count.inner_text()
    page.locator("select[name=engine]").select_option("sglang")
    assert count.inner_text() == f"1 of {len(RECIPES)} recipes"


def test_every_link_inside_the_site_leads_somewhere(address: str, page: Page) -> None:
    ids: dict[str, set[str]] = {}
    wanted: list[tuple[str, str]] = []
    for path in PAGES[:-1]:
        page.goto(address + path)
        ids[address + path] = set(page.locator("[id]").evaluate_all("all => all.map(element => element.id)"))
        for href in page.locator("a[href]").evaluate_all("links => links.map(link => link.getAttribute('href'))"):
            target = urljoin(address + path, href)
            if target.startswith(address):
                wanted.append((path, target))
    for path, target in dict.fromkeys(wanted):
        plain, _, anchor = target.partition("#")
        assert page.request.get(plain).ok, f"{path or 'home'}: {target}"
        if anchor and plain in ids:
            assert anchor in ids[plain], f"{path or 'home'}: {target}"


def test_programs_find_the_same_data(address: str, page: Page) -> None:
    listed = page.request.get(f"{address}recipes.json").json()["recipes"]
    assert [item["id"] for item in listed] == [loaded.identity for loaded in RECIPES]
    for item, loaded in zip(listed, RECIPES, strict=True):
        described = page.request.get(address + item["json"]).json()
        assert described == json.loads(json.dumps(describe(loaded.program)))
        shell = page.request.get(address + item["shell"]).text()
        assert shell == render(loaded.program, resolve(loaded.program["axes"], {}))
        assert shell in page.request.get(address + item["markdown"]).text()
    text = page.request.get(f"{address}llms.txt").text()
    assert all(f"recipes/{loaded.identity}/index.md" in text for loaded in RECIPES)


def test_the_site_holds_no_placeholder(address: str, page: Page) -> None:
    for path in PAGES:
        html = page.request.get(address + path).text()
        assert "cookbook-frame" not in html and "_owner" not in html, path
        if path.startswith("recipes/"):
            assert "{{" not in html
    assert page.request.get(f"{address}recipes/_owner/_name/").status == 404
