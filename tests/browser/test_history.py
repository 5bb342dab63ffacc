"""The page of a history in a browser: labels inside their picture, in both schemes and widths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.opened import SCREENS, Opened
from tests.unit.pages.test_history_page import WORSE, drawn, made

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_changes_are_labelled_inside_the_picture(
    browser: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    file = tmp_path / "report.html"
    file.write_text(drawn(made(changes=(WORSE,))), encoding="utf-8")
    opened = Opened(browser, file, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = opened.page
    assert opened.said == []
    assert opened.requested == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture = page.locator("figure svg").first.bounding_box()
    label = page.locator("figure svg text", has_text="+6.1% 666666666").last.bounding_box()
    assert picture is not None
    assert label is not None
    assert picture["x"] <= label["x"]
    assert label["x"] + label["width"] <= picture["x"] + picture["width"]
    assert picture["y"] <= label["y"]
    opened.context.close()
