"""What the README's pictures must not be: blank, cut off, too large, or made up."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from PIL import Image

from tools.pictures import __main__ as command
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


@pytest.mark.parametrize("place", [ROOT, Path(sys.prefix), Path.home()])
def test_a_path_of_this_machine_is_refused(place: Path) -> None:
    with pytest.raises(DrawError, match="path of this machine"):
        refuse_paths(f"records: {place}/canary_output")
    refuse_paths("records: canary_output/demo-1")
