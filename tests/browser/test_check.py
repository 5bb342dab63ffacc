"""The page of a check in a browser: nothing is wider than the window, and nothing is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from canary.check.page import check_page
from canary.check.run import Checked
from canary.relations import RELATIONS
from canary.relations.relation import outcome
from tests.browser.opened import SCREENS, Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("browser")

LONG = "the test failed: https://example.org/" + "x" * 300


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_a_check_fits_the_window(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    names = list(RELATIONS)
    outcomes = (
        outcome(names[0], "broken", LONG, "row 1, token 3", (-1.23456, -2.5), 1.1e-4),
        outcome(names[1], "undecided", LONG),
        *(
            outcome(name, "holds", "log-probabilities differ by at most 0", tolerance=1e-5)
            for name in names[2:]
        ),
    )
    file = tmp_path / "report.html"
    file.write_text(check_page(Checked("mine", outcomes, tmp_path, 3, 61.0)), encoding="utf-8")
    opened = Opened(browser, file, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert opened.said == []
    assert opened.requested == []
    sizes = opened.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]
    assert opened.page.locator("table.broken a").count() == 1
    assert opened.page.locator("table.broken thead").is_visible() == (width > 600)
    opened.context.close()
