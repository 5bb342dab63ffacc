"""What the README's pictures must not be: blank, cut off, too large, or made up."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from PIL import Image

from tools.pictures import __main__ as command
from tools.pictures.pages import terminal_page
from tools.pictures.recorded_demo import ROOT, DrawError, refuse_paths

SIZE = (900, 300)


def _noise() -> Image.Image:
    return Image.frombytes("L", SIZE, random.Random(0).randbytes(SIZE[0] * SIZE[1])).convert("RGB")


@pytest.mark.parametrize(
    ("picture", "why"),
    [
        (Image.new("RGB", SIZE, "white"), "shows nothing"),
        (Image.new("RGB", (900, 20), "white"), "cut off"),
        (_noise(), "the limit is 200,000"),
    ],
)
def test_a_bad_picture_is_refused(picture: Image.Image, why: str) -> None:
    with pytest.raises(DrawError, match=f"some.png .*{why}"):
        command.as_png(picture, "some.png")


def test_common_colours_stay_exact_and_rare_hues_stay() -> None:
    picture = Image.new("RGB", SIZE, (13, 17, 23))
    picture.paste((246, 248, 250), (100, 100, 500, 200))
    for shade in range(200):
        picture.paste((shade, shade, shade), (shade, 0, shade + 1, 20))
    picture.putpixel((700, 250), (255, 0, 0))
    few = command.few_colours(picture).convert("RGB")
    assert few.getpixel((800, 290)) == (13, 17, 23)
    assert few.getpixel((200, 150)) == (246, 248, 250)
    assert few.getpixel((700, 250)) == (255, 0, 0)


def test_the_terminal_shows_all_that_was_printed_up_to_the_answers() -> None:
    screen = "1. A\n\n\x1b[31mred\x1b[0m <b>\nRegression: B\n\n== What next ==\n\nC\n"
    _, _, shown = terminal_page(screen).partition("$ canary demo</span>\n")
    assert shown.startswith("1. A\n\n<span")
    assert "red</span> &lt;b&gt;\nRegression: B" in shown
    assert "What next" not in shown


def test_nothing_is_drawn_of_an_output_without_the_answer() -> None:
    with pytest.raises(DrawError, match="did not print"):
        terminal_page("1. A\n")


@pytest.mark.parametrize("place", [ROOT, Path(sys.prefix), Path.home()])
def test_a_path_of_this_machine_is_refused(place: Path) -> None:
    with pytest.raises(DrawError, match="path of this machine"):
        refuse_paths(f"records: {place}/canary_output")
    refuse_paths("records: canary_output/demo-1")


@pytest.mark.parametrize(
    ("options", "ci", "code"), [([], "", 1), (["--optional"], "", 0), (["--optional"], "true", 1)]
)
def test_a_missing_browser_may_be_skipped_except_in_ci(
    options: list[str], ci: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "chromium", lambda: None)
    monkeypatch.setenv("CI", ci)
    assert command.main(options) == code
