"""The page of a history in a browser: it fits the window, silently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.opened import SCREENS, Opened
from tests.unit.pages.test_history_page import WORSE, drawn, made

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


Show = Callable[[], tuple["Page", int]]


@pytest.fixture(params=SCREENS)
def show(request: pytest.FixtureRequest, browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens `report.html` in each scheme and width; the page is no wider than the window."""
    scheme, width = request.param
    shown: list[Opened] = []

    def opened() -> tuple[Page, int]:
        screen = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        shown.append(Opened(browser, tmp_path / "report.html", **screen))
        return shown[0].page, width

    yield opened
    assert shown[0].said == []
    assert shown[0].requested == []
    sizes = shown[0].page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]
    shown[0].context.close()


def test_changes_of_a_history_are_labelled_inside_the_picture(show: Show, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(drawn(made(changes=(WORSE,))), encoding="utf-8")
    page, _ = show()
    picture = page.locator("figure svg").first.bounding_box()
    label = page.locator("figure svg text", has_text="+6.1% 666666666").last.bounding_box()
    assert picture is not None
    assert label is not None
    assert picture["x"] <= label["x"]
    assert label["x"] + label["width"] <= picture["x"] + picture["width"]
    assert picture["y"] <= label["y"]
