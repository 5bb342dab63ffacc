"""Pages in the browser, and what axe finds in them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENS = [("light", 375), ("dark", 1280)]


class Opened:
    """A file in the browser; every request but the one for it is aborted and noted."""

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


def unfold(page: Page) -> None:
    """Open all that is folded."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def leave_three_rows(page: Page) -> None:
    """Of each table leave three rows of each state: axe looks at every cell."""
    page.evaluate(
        "for (const body of document.querySelectorAll('tbody')) { const seen = {};"
        " for (const row of [...body.rows]) {"
        " seen[row.className] = (seen[row.className] ?? 0) + 1;"
        " if (seen[row.className] > 3) row.remove(); } }"
    )


@cache
def _axe() -> str:
    (axe,) = (file for file in files("axe-playwright-python") or () if file.name == "axe.min.js")
    return Path(str(axe.locate())).read_text(encoding="utf-8")


def serious(page: Page) -> list[tuple[str, str, str]]:
    """What axe finds: rule, element and summary."""
    page.evaluate(_axe())
    # What holds is not asked for: describing it takes as long as finding it.
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        (rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0]["failureSummary"])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
