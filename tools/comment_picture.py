"""Make `docs/images/comment.png`: a pull request's comment as GitHub shows it.

    canary demo
    canary publish canary_output/DEMO/masked_eos --dry-run | python -m tools.comment_picture

Needs chromium (`--chromium` names it), Pillow, and markdown-it-py, which comes with rich. The
picture ends before the heading `--until`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from markdown_it import MarkdownIt
from PIL import Image

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "comment.png"
WIDTH = 860
COLOURS = 128
BEGIN = "<!-- rlhf-canary -->"
PAGE = """<!doctype html><meta charset="utf-8"><style>
* {{ box-sizing: border-box }}
body {{ margin: 0; padding: 12px; background: #fff; color: #1f2328;
  font: 14px/1.5 "Liberation Sans", "Noto Color Emoji", Arial, sans-serif }}
.box {{ border: 1px solid #d1d9e0; border-radius: 6px }}
.head {{ padding: 7px 16px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0;
  border-radius: 6px 6px 0 0; color: #59636e }}
.head b {{ color: #1f2328 }}
.bot {{ border: 1px solid #d1d9e0; border-radius: 2em; padding: 0 6px; font-size: 12px }}
.text {{ padding: 14px 16px 2px }}
p, ul, ol, table {{ margin: 0 0 12px }} ul, ol {{ padding-left: 2em }} ul ul, ol ul {{ margin: 0 }}
h3 {{ font-size: 17px; line-height: 1.25; margin: 18px 0 10px }}
table {{ border-collapse: collapse }} th, td {{ border: 1px solid #d1d9e0; padding: 4px 13px }}
tr:nth-child(2n) td {{ background: #f6f8fa }}
code {{ background: #818b981f; border-radius: 6px; padding: .2em .4em;
  font: 12px "DejaVu Sans Mono", monospace }}
</style><div class="box"><div class="head"><b>github-actions</b> <span class="bot">bot</span>
commented</div><div class="text">{body}</div></div>
<script>document.title = document.documentElement.scrollHeight</script>"""


def page(comment: str, until: str) -> str:
    """Return the comment as HTML in a box like GitHub's, from its mark to the heading `until`."""
    text = comment[max(comment.find(BEGIN), 0) :].split(f"\n### {until}\n")[0]
    text = text.split("\n<sub>")[0]  # a comment made by hand names no commit
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return PAGE.format(body=body)


def shoot(chromium: str, html: str, picture: Path) -> None:
    """Write the picture, as high as the page."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "comment.html"
        file.write_text(html, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--disable-lcd-text"]
        command = [chromium, *options, f"--user-data-dir={scratch}"]
        dom = _ran([*command, f"--window-size={WIDTH},100", "--dump-dom", file.as_uri()])
        height = re.search(r"<title>(\d+)</title>", dom)
        assert height is not None, "the page has no title"
        picture.parent.mkdir(parents=True, exist_ok=True)
        size = f"--window-size={WIDTH},{height[1]}"
        _ran([*command, size, f"--screenshot={picture}", file.as_uri()])
    reduced = Image.open(picture).convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE)
    reduced.save(picture, optimize=True)


def _ran(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def main() -> None:
    """Read the comment from standard input and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=PICTURE)
    parser.add_argument("--until", default="Undecided")
    parser.add_argument("--chromium", default="chromium")
    given = parser.parse_args()
    shoot(given.chromium, page(sys.stdin.read(), given.until), given.output.resolve())
    print(f"{given.output}: {given.output.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
