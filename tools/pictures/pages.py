"""HTML pages of the comment and of the terminal, for a browser to show."""

from __future__ import annotations

import io

from markdown_it import MarkdownIt
from rich.console import Console
from rich.text import Text

from tools.pictures.recorded_demo import COLUMNS, DrawError

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
