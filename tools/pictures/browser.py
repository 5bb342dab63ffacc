"""Pages of the comment and of the terminal, and Chromium, which takes pictures of pages."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from markdown_it import MarkdownIt
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.text import Text

from tools.pictures.recorded_demo import COLUMNS, DrawError, refuse_paths

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
REPORT_WIDTH = 1120
"""The narrowest window with four answers and three charts in a row, in CSS pixels."""
MARGIN = 14
"""Space that the report's picture keeps under the charts, in CSS pixels."""
FIRST_CHARTS_END = """figures => Math.max(...figures.map(f => f.getBoundingClientRect())
    .filter((box, _, [first]) => box.top === first.top).map(box => box.bottom))"""
HAS_COLOUR_EMOJI = """() => {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.font = "20px sans-serif";
  canvas.fillText("\\u274c", 0, 24);
  return canvas.getImageData(0, 0, 32, 32).data.some((value, place) => place % 4 === 0 && value);
}"""
"""A glyph without colours of its own is black, so its red is 0."""

TERMINAL_ENDS = "== What next"
"""The picture shows the terminal down to this line: the answers are the last thing on it."""

COMMENT = """<!doctype html><meta charset="utf-8"><style>
* {{ box-sizing: border-box }}
body {{ margin: 0; padding: 12px; background: #fff; color: #1f2328;
  font: 14px/1.5 "Liberation Sans", "DejaVu Sans", "Noto Color Emoji", sans-serif }}
.box {{ border: 1px solid #d1d9e0; border-radius: 6px }}
.head {{ padding: 7px 16px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0;
  border-radius: 6px 6px 0 0; color: #59636e }}
.head b {{ color: #1f2328 }}
.bot {{ border: 1px solid #d1d9e0; border-radius: 2em; padding: 0 6px; font-size: 12px }}
.text {{ padding: 14px 16px }}
p, ul, ol, table {{ margin: 0 0 12px }} ul, ol {{ padding-left: 2em }} ul ul, ol ul {{ margin: 0 }}
code {{ background: #818b981f; border-radius: 6px; padding: .2em .4em;
  font: 12px "DejaVu Sans Mono", monospace }}
</style><div class="box"><div class="head"><b>github-actions</b> <span class="bot">bot</span>
commented</div><div class="text">{body}</div></div>"""

TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 14px 18px; background: #0d1117; color: #e6edf3; width: max-content }}
pre {{ margin: 0; font: 14px/1.35 "DejaVu Sans Mono", "Liberation Mono", monospace }}
.typed {{ color: #3fb950; font-weight: bold }}
</style><pre><span class="typed">$ canary demo</span>
{body}</pre>"""


def chromium() -> str | None:
    """Return the path of an installed browser."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def opened(path: str) -> Iterator[Browser]:
    """Open the browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def has_colour_emoji(browser: Browser) -> bool:
    """Whether this machine has a font that draws the verdict's sign."""
    with _page(browser, 100, 1.0) as page:
        return bool(page.evaluate(HAS_COLOUR_EMOJI))


def report_picture(browser: Browser, report: Path, scheme: Literal["light", "dark"]) -> Image.Image:
    """Return the top of the report, down to the first row of charts."""
    with _page(browser, REPORT_WIDTH, 1.5, scheme) as page:
        page.goto(report.as_uri())
        refuse_paths(page.inner_text("body"))
        charts = page.locator(".charts figure")
        if not charts.count():
            raise DrawError(f"{report.name} has no charts: install the extra [report]")
        bottom = float(charts.evaluate_all(FIRST_CHARTS_END)) + MARGIN
        clip = {"x": 0, "y": 0, "width": REPORT_WIDTH, "height": bottom}
        return _image(page.screenshot(full_page=True, clip=clip))  # type: ignore[arg-type]


def page_picture(browser: Browser, html: str, width: int) -> Image.Image:
    """Return a whole page, at least `width` CSS pixels wide."""
    with _page(browser, width, 2.0) as page:
        page.set_content(html)
        return _image(page.screenshot(full_page=True))


@contextmanager
def _page(
    browser: Browser, width: int, scale: float, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": width, "height": 100},
        device_scale_factor=scale,
        color_scheme=scheme,
        offline=True,
    )
    yield context.new_page()
    context.close()


def _image(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def comment_page(comment: str) -> str:
    """Return a comment in a box like GitHub's."""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(comment)
    return COMMENT.format(body=body)


def terminal_page(screen: str) -> str:
    """Return the terminal from the typed command to the answers, with its colours."""
    shown, end, _ = screen.partition(f"\n{TERMINAL_ENDS} ")
    if not end:
        raise DrawError(f"the demo did not print '{TERMINAL_ENDS}':\n{screen[-2000:]}")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(shown.rstrip()), soft_wrap=True)
    return TERMINAL.format(body=console.export_html(code_format="{code}", inline_styles=True))
