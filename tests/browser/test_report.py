"""The report in a browser: whole without a network, in both schemes and widths, by keyboard."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.comparing import example, history, record, records
from tests.unit.hostile import PAYLOADS, planted
from tests.unit.pages.making import numbers, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.xdist_group("browser")


class Opened:
    """A page in the browser; every request but the one for its file is aborted and noted."""

    def __init__(self, browser: Browser, file: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.requested: list[str] = []
        self.context = browser.new_context(accept_downloads=True, **context)
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

        def dismiss(dialog: Any) -> None:
            self.said.append("dialog")
            dialog.dismiss()

        self.page.on("dialog", dismiss)

        def refuse(route: Any) -> None:
            if route.request.url == file.as_uri():
                route.continue_()
                return
            self.requested.append(route.request.url)
            route.abort()

        self.page.route("**/*", refuse)
        self.page.goto(file.as_uri())


@pytest.fixture(scope="module")
def text() -> str:
    return page_of(records([0.15] * 3, first=50), history(count=5), steps=120)


@pytest.fixture(scope="module")
def file(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "report.html"
    made.write_text(text, encoding="utf-8")
    return made


@pytest.fixture(params=[("light", 375), ("dark", 1280)])
def seen(request: pytest.FixtureRequest, browser: Browser, file: Path) -> Iterator[Opened]:
    """The page in each scheme and width."""
    scheme, width = request.param
    opened = Opened(browser, file, color_scheme=scheme, viewport={"width": width, "height": 800})
    yield opened
    opened.context.close()


def test_the_page_is_whole_and_silent_without_a_network(seen: Opened) -> None:
    assert seen.said == []
    assert seen.requested == []
    assert seen.page.locator("figure svg").count() >= 10
    for figure in seen.page.locator(".charts figure").all():
        box = figure.locator("svg").bounding_box()
        assert box is not None
        assert box["width"] > 280
        assert box["height"] > 150
    sizes = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]


@pytest.mark.parametrize(("scheme", "width"), [("light", 375), ("dark", 1280)])
def test_axe_finds_nothing_serious(
    browser: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    made = tmp_path / "report.html"
    made.write_text(page_of(records([0.15] * 3, first=50), history(count=3), steps=4))
    opened = Opened(browser, made, color_scheme=scheme, viewport={"width": width, "height": 800})
    for opener in opened.page.locator("summary").all():
        opener.click()
    (axe,) = (file for file in files("axe-playwright-python") or () if file.name == "axe.min.js")
    source = Path(str(axe.locate()))
    opened.page.evaluate(source.read_text(encoding="utf-8"))
    found = opened.page.evaluate("axe.run()")
    serious = [
        (rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0]["failureSummary"])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
    assert serious == []
    opened.context.close()


def test_dark_pictures_have_the_dark_colours(browser: Browser, file: Path) -> None:
    def colours(scheme: str) -> set[str]:
        opened = Opened(browser, file, color_scheme=scheme)
        found: list[str] = opened.page.evaluate(
            "[...document.querySelectorAll('figure svg path, figure svg text')]"
            ".flatMap((e) => [getComputedStyle(e).stroke, getComputedStyle(e).fill])"
        )
        opened.context.close()
        return {colour for colour in found if colour.startswith("rgb(")}

    light, dark = colours("light"), colours("dark")
    assert len(light) >= 4
    assert not light & dark - {"rgb(0, 0, 0)"}


def test_every_table_and_its_csv_is_reached_by_keyboard(
    browser: Browser, file: Path, text: str, tmp_path: Path
) -> None:
    opened = Opened(browser, file)
    page = opened.page
    page.locator("#loss summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#loss table").is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.csv") == "loss"
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "loss.csv"
    heading, *lines = list(csv.reader(saved.open(encoding="utf-8")))
    expected = numbers(text, "loss")
    assert heading == expected["columns"]
    assert [[cell or None for cell in line] for line in lines] == [
        [None if cell is None else str(cell) for cell in row] for row in expected["rows"]
    ]
    assert opened.said == []
    opened.context.close()


def test_a_cell_of_the_csv_is_no_formula(browser: Browser, tmp_path: Path) -> None:
    run = record(1, run_id="=HYPERLINK(1)")
    made = tmp_path / "report.html"
    made.write_text(page_of([run], [record(2)]), encoding="utf-8")
    opened = Opened(browser, made)
    opened.page.locator("#launches summary").click()
    with opened.page.expect_download() as download:
        opened.page.locator("#launches button").click()
    download.value.save_as(tmp_path / "launches.csv")
    assert "'=HYPERLINK(1)" in (tmp_path / "launches.csv").read_text()
    opened.context.close()


def test_it_prints_in_light_colours_without_buttons(browser: Browser, file: Path) -> None:
    opened = Opened(browser, file, color_scheme="dark")
    opened.page.emulate_media(media="print")
    body = "getComputedStyle(document.body)"
    assert opened.page.evaluate(f"{body}.color") == "rgb(36, 41, 47)"
    assert opened.page.locator("button").first.is_hidden()
    assert opened.page.pdf()[:5] == b"%PDF-"
    opened.context.close()


def test_without_scripts_all_but_the_csv_is_there(browser: Browser, file: Path) -> None:
    opened = Opened(browser, file, java_script_enabled=False)
    page = opened.page
    assert page.locator("h1").is_visible()
    assert page.locator("#checks table").is_visible()
    assert page.locator("figure svg").count() >= 10
    opened.context.close()


MARKUP = [payload for payload in PAYLOADS if "<" in payload or "://" in payload]


@pytest.mark.parametrize("payload", [*MARKUP, "</script><script>alert(1)</script>"])
def test_no_text_of_a_record_runs(browser: Browser, tmp_path: Path, payload: str) -> None:
    hostile = planted(payload)
    hostile.stability.loss_values = example().stability.loss_values
    hostile.alerts = [
        {"severity": "high", "category": payload, "type": payload, "message": payload, "step": 3}
    ]
    made = tmp_path / "report.html"
    made.write_text(page_of([hostile], history(count=3), steps=3), encoding="utf-8")
    opened = Opened(browser, made)
    for opener in opened.page.locator("summary").all():
        opener.click()
    assert opened.said == []
    assert opened.requested == []
    assert opened.page.locator("img, iframe, a, script[src]").count() == 0
    opened.context.close()
