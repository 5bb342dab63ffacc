"""The served pages in a browser: they grow, ask nobody else, and work by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from canary.record.step_row import RowAlert
from canary.serve import live, pages
from tests.browser.opened import SCREENS, serious
from tests.unit.serve.running import add_rows, finished, rewrite, rows_between, running, serving
from tests.unit.serve.test_server import serving_process

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


GOING = "20260301-080000-dpo_smoke-00aa"
BEFORE, NOW = (f"20260101-00000{n}-sft_smoke-000{n}" for n in (1, 2))
PAGES = {
    "list": "",
    "running": f"run/{GOING}",
    "ended": f"run/{NOW}",
    "comparison": f"compare?current={NOW}&baseline={BEFORE}",
}
ALERT: RowAlert = {
    "severity": "high",
    "category": "gradients",
    "type": "gradient_spike",
    "message": "gradient norm 31",
    "step": 40,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that have ended, and one that goes on."""
    made = tmp_path_factory.mktemp("served")
    finished(made, 1)
    finished(made, 2, median_s=0.15)
    add_rows(running(made, GOING), [{**row, "alerts": [ALERT]} for row in rows_between(1, 30)])
    return made


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with serving(root) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """The pages of the server in this process look often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "CHARTS_EVERY_S", 0.2)
        patch.setattr(live, "CHARTS_SHARE", 1.0)
        for place in (live, pages):
            patch.setattr(place, "EVERY_MS", 200)
        yield


class Opened:
    """A page of the server; what the console says and what is asked of others is noted."""

    def __init__(self, browser: Browser, url: str, path: str = "", **context: Any) -> None:
        self.said: list[str] = []
        self.elsewhere: list[str] = []
        self.context = browser.new_context(**context)
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", self._note)
        self._url = url
        self.page.goto(f"{url}{path}")

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self._url, "blob:")):
            self.elsewhere.append(request.url)

    def close(self) -> None:
        """Close it. Nothing was said, and nobody else was asked."""
        assert self.said == []
        assert self.elsewhere == []
        self.context.close()


@pytest.mark.parametrize(
    ("kind", "scheme", "width"),
    [
        *(("running", *screen) for screen in SCREENS),
        ("list", *SCREENS[0]),
        ("ended", *SCREENS[0]),
        ("comparison", *SCREENS[1]),
    ],
)
def test_every_page_is_silent_and_fits_the_window(
    browser: Browser, address: str, kind: str, scheme: str, width: int
) -> None:
    screen = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    opened = Opened(browser, address, PAGES[kind], **screen)
    opened.page.locator("h1").wait_for()
    if kind != "list":
        assert opened.page.locator("figure svg").count() >= 2
    inner, outer = opened.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert inner <= outer
    if kind in ("list", "running"):  # The others are reports, as in `test_report.py`.
        assert serious(opened.page) == []
    opened.close()


def test_a_page_grows_keeps_what_is_open_and_becomes_the_report(
    browser: Browser, address: str, root: Path
) -> None:
    folder = running(root, "20260301-090000-dpo_smoke-00bb")
    add_rows(folder, rows_between(1, 10))
    opened = Opened(browser, address, f"run/{folder.path.name}")
    page = opened.page
    page.locator("#loss summary").click()
    assert page.locator("#loss tbody tr").count() == 10
    add_rows(folder, [{**row, "alerts": [ALERT]} for row in rows_between(11, 25)])
    page.locator("#loss tbody tr").nth(24).wait_for(state="attached")
    assert "25 of 100" in page.locator("#live-numbers").inner_text()
    assert "gradient_spike" in page.locator("#live-alerts").inner_text()
    assert page.locator("#loss details").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.matches('#loss summary')")
    with page.expect_download() as download:
        page.locator("#loss button").click()
    assert download.value.suggested_filename == "loss.csv"
    spoken = page.locator("[aria-live]").evaluate_all("all => all.map((one) => one.id)")
    assert spoken == ["live-state", "live-alerts"]
    rewrite(folder, status="completed")
    page.locator("h1", has_text="Completed").wait_for()
    opened.close()


def test_two_runs_are_picked_and_compared_by_keyboard(
    browser: Browser, address: str, root: Path
) -> None:
    opened = Opened(browser, address)
    page = opened.page
    for name, run in (("current", NOW), ("baseline", BEFORE)):
        page.locator(f"[name={name}][value='{run}']").focus()
        page.keyboard.press("Space")
    new = finished(root, 7).path.name  # The list is replaced, and the picks stay.
    page.locator("a", has_text=new).wait_for()
    assert page.locator("input:checked").count() == 2
    assert page.evaluate("document.activeElement.name") == "baseline"
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?*")
    assert "tep time" in page.locator("h1").inner_text()
    page.locator("nav a").focus()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Runs in").wait_for()
    opened.close()


def test_what_is_pressed_while_the_list_changes_is_not_lost(
    browser: Browser, address: str, root: Path
) -> None:
    opened = Opened(browser, address)
    page = opened.page
    pick = page.locator(f"[name=current][value='{NOW}']")
    for press, let_go in (
        (lambda: page.keyboard.down("Space"), lambda: page.keyboard.up("Space")),
        (page.mouse.down, page.mouse.up),
    ):
        page.locator(f"[name=current][value='{BEFORE}']").check()
        pick.focus()
        pick.hover()
        press()
        new = finished(root, len(list(root.iterdir())) + 10).path.name
        for _ in range(2):  # The first look may have begun before.
            page.evaluate(
                "new Promise((is) => document.addEventListener('looked', is, { once: true }))"
                ".then(() => null)"
            )
        assert page.locator("a", has_text=new).count() == 0
        let_go()
        page.locator("a", has_text=new).wait_for()
        assert pick.is_checked()
    opened.close()


def test_a_server_that_goes_is_said_and_one_that_comes_back_is_used(
    browser: Browser, tmp_path: Path
) -> None:
    folder = running(tmp_path)
    add_rows(folder, rows_between(1, 3))
    with serving_process(tmp_path) as (url, _):
        opened = Opened(browser, url, f"run/{folder.path.name}")
        assert opened.page.locator("#lost").is_hidden()
    opened.page.locator("#lost").wait_for(state="visible")
    assert opened.page.locator("figure svg").count() >= 2
    with serving(tmp_path, port=int(url.split(":")[2].strip("/"))):
        opened.page.locator("#lost").wait_for(state="hidden")
        add_rows(folder, rows_between(4, 6))
        opened.page.locator("dd", has_text="6 of 100").wait_for()
        opened.context.close()


def test_without_scripts_everything_is_there(browser: Browser, address: str) -> None:
    opened = Opened(browser, address, PAGES["running"], java_script_enabled=False)
    page = opened.page
    assert "30 of 100" in page.locator("#live-numbers").inner_text()
    assert page.locator("figure svg").count() >= 5
    page.goto(address)
    for name, run in (("current", NOW), ("baseline", BEFORE)):
        page.locator(f"[name={name}][value='{run}']").check()
    page.locator("button", has_text="Compare").click()
    page.wait_for_url("**/compare?*")
    opened.close()
