"""The report in a browser: whole without a network, in both schemes and widths, by keyboard."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import altair as alt
import pytest

from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from canary.report.charts.chart import Chart, Layer
from canary.report.charts.sides import ShownRun, ShownSides
from canary.report.comparison_page import comparisons_page
from canary.report.page import Page, page_text
from tests.browser.opened import SCREENS, Opened, leave_three_rows, serious, unfold
from tests.unit.comparing import history, records
from tests.unit.hostile import PAYLOADS, planted
from tests.unit.pages.making import numbers, page_of, rows

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def text() -> str:
    return page_of(records([0.15] * 3, first=50), history(count=5), steps=120)


@pytest.fixture(scope="module")
def file(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "report.html"
    made.write_text(text, encoding="utf-8")
    return made


def of_few_steps(run: RunRecord) -> RunRecord:
    """The run with short curves: their tables have few rows."""
    for values in (run.stability.loss_values, run.stability.grad_norm_values):
        del values[6:]
    return run


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all charts and checks."""
    now = [of_few_steps(run) for run in records([0.15] * 3, first=50)]
    made = tmp_path_factory.mktemp("short") / "report.html"
    text = page_of(now, [of_few_steps(run) for run in history(count=3)], steps=4)
    made.write_text(text, encoding="utf-8")
    return made


@pytest.fixture(params=SCREENS)
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


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_axe_finds_nothing_serious(browser: Browser, short: Path, scheme: str, width: int) -> None:
    opened = Opened(browser, short, color_scheme=scheme, viewport={"width": width, "height": 800})
    unfold(opened.page)
    leave_three_rows(opened.page)
    assert serious(opened.page) == []
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
    layer = Layer([{"x": 1}], alt.Chart().mark_point().encode(x="x:Q"))
    chart = Chart("loss", "Loss", "1.", ("text",), (("=HYPERLINK(1)",),), (layer,))
    made = tmp_path / "report.html"
    made.write_text(page_text(Page("a page", "One."), [chart]), encoding="utf-8")
    opened = Opened(browser, made)
    opened.page.locator("#loss summary").click()
    with opened.page.expect_download() as download:
        opened.page.locator("#loss button").click()
    download.value.save_as(tmp_path / "loss.csv")
    assert "'=HYPERLINK(1)" in (tmp_path / "loss.csv").read_text()
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


HOSTILE = " ".join((*PAYLOADS, "</script><script>alert(1)</script>"))


def test_no_text_of_a_record_runs(browser: Browser, tmp_path: Path) -> None:
    before = [of_few_steps(run) for run in history(count=3)]
    hostile = planted(HOSTILE)
    hostile.alerts = [
        {"severity": "high", "category": HOSTILE, "type": HOSTILE, "message": HOSTILE, "step": 3}
    ]
    found = compare_to_baseline([of_few_steps(hostile)], before)
    shown = ShownSides((ShownRun(hostile, rows(3)),), tuple(map(ShownRun, before)), found)
    made = tmp_path / "report.html"
    made.write_text(comparisons_page([(HOSTILE, shown)]), encoding="utf-8")
    opened = Opened(browser, made)
    unfold(opened.page)
    assert opened.page.locator("article").count() == 1
    assert opened.said == []
    assert opened.requested == []
    assert opened.page.locator("img, iframe, a:not([href^='#part']), script[src]").count() == 0
    opened.context.close()
