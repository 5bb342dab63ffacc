"""Draw the README's pictures: the report in light and dark, the comment, and the terminal.

    python -m tools.pictures

The command runs `canary demo` (about 100 s) and draws every picture from it. It needs Debian's
packages `chromium` and, for the comment's sign, `fonts-noto-color-emoji`. Look at the pictures
before you commit them.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tools.pictures.browser import (
    chromium,
    comment_page,
    has_colour_emoji,
    opened,
    page_picture,
    report_picture,
    terminal_page,
)
from tools.pictures.recorded_demo import ROOT, DrawError, RecordedDemo, record_demo

IMAGES = ROOT / "docs" / "images"
NAMES = ("report-light.png", "report-dark.png", "comment.png", "terminal.png")
COMMON, RARE = 96, 64
"""Colours of a written picture: its most frequent ones exactly, and some of every other hue."""
MOST_BYTES = 200_000
SMALLEST = (800, 200)
FEWEST_COLOURS = 16
"""A picture with fewer colours shows no text: text alone has more shades."""


def drawn(demo: RecordedDemo, browser: str) -> list[Image.Image]:
    """Return the pictures of `NAMES`, in that order."""
    with opened(browser) as open_browser:
        if not has_colour_emoji(open_browser):
            say("note: ❌ is not drawn: install Debian's package fonts-noto-color-emoji")
        return [
            report_picture(open_browser, demo.report, "light"),
            report_picture(open_browser, demo.report, "dark"),
            page_picture(open_browser, comment_page(demo.comment), 860),
            page_picture(open_browser, terminal_page(demo.screen), 100),
        ]


def few_colours(picture: Image.Image) -> Image.Image:
    """Return the picture in `COMMON + RARE` colours; Pillow alone tints large areas or signs."""
    counted = picture.getcolors(picture.width * picture.height) or []
    common = [colour for _, colour in sorted(counted, reverse=True)[:COMMON]]
    hues = picture.quantize(RARE, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = np.concatenate([np.array(common), np.array(hues).reshape(-1, 3)]).astype(np.int32)
    pixels = np.asarray(picture).reshape(-1, 3)
    colours, places = np.unique(pixels, axis=0, return_inverse=True)
    away = ((colours[:, None].astype(np.int32) - palette) ** 2).sum(axis=2)
    nearest = away.argmin(axis=1).astype(np.uint8)[places.reshape(-1)]
    few = Image.fromarray(nearest.reshape(picture.height, picture.width), mode="P")
    few.putpalette(palette.astype(np.uint8).tobytes())
    return few


def as_png(picture: Image.Image, name: str) -> bytes:
    """Return the picture's file with few colours.

    Raises:
        DrawError: the picture is too large, cut off or blank.
    """
    if picture.width < SMALLEST[0] or picture.height < SMALLEST[1]:
        raise DrawError(f"{name} is cut off: {picture.width} x {picture.height} pixels")
    few = few_colours(picture)
    found = len(few.getcolors() or ())
    if found < FEWEST_COLOURS:
        raise DrawError(f"{name} shows nothing: it has {found} colours")
    file = io.BytesIO()
    few.save(file, "PNG", optimize=True)
    if file.tell() > MOST_BYTES:
        raise DrawError(f"{name} has {file.tell():,} bytes; the limit is {MOST_BYTES:,}")
    return file.getvalue()


def say(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw all pictures; return 1 and write nothing if one cannot be drawn."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.pictures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", type=Path, default=IMAGES, help="folder [docs/images]")
    parser.add_argument(
        "--optional",
        action="store_true",
        help="without a browser, draw nothing and succeed, except where CI is set",
    )
    given = parser.parse_args(arguments)
    browser = chromium()
    if browser is None:
        say("README's pictures were not drawn: no browser; install Debian's package chromium")
        return 0 if given.optional and not os.environ.get("CI") else 1
    say("Running canary demo, about 45 s")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            pictures = drawn(record_demo(Path(scratch)), browser)
        files = [as_png(picture, name) for picture, name in zip(pictures, NAMES, strict=True)]
    except DrawError as problem:
        say(f"error: {problem}")
        return 1
    given.output.mkdir(parents=True, exist_ok=True)
    for name, picture, file in zip(NAMES, pictures, files, strict=True):
        (given.output / name).write_bytes(file)
        print(f"{name}: {picture.width} x {picture.height} pixels, {len(file):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
