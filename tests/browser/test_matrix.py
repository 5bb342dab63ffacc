"""The page of a matrix in a browser: nothing is wider than the window, and a link opens a cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from canary.matrix.stored import write_page
from tests.browser.opened import Opened
from tests.unit.matrix.making import Made

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.parametrize("width", [375, 1280])
def test_a_matrix_fits_the_window(browser: Browser, tmp_path: Path, width: int) -> None:
    made = Made(tmp_path / "m")
    made.end(f"failed-{'x' * 70}", "run", 4, f"{'y' * 999}\n")
    made.check("asked", "holds")
    file = tmp_path / "report.html"
    write_page(made.left(), file, tmp_path)
    opened = Opened(browser, file, viewport={"width": width, "height": 800})
    assert opened.said == []
    assert opened.requested == []
    article = opened.page.locator("#part3-top")
    assert not article.is_visible(), "a cell that is ok is folded"
    opened.page.click("table.cells a >> text=asked")
    article.wait_for(state="visible")
    sizes = opened.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]
    opened.context.close()
