"""The two walks of ARCHITECTURE.md: each place is there and leads to the next."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.contract.workflow_files import ROOT
from tests.github.gatehouse import Gatehouse

MOST_FILES = 12
PLACE = re.compile(r"^\d+\. `(canary/\S+\.py)`, `(\w+)`: ", re.MULTILINE)
Place = tuple[Path, str]


def walks() -> tuple[list[Place], list[Place]]:
    """The places of both walks: to the training, and to the comment."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    there, back = text.split("From the command to the training:")[1].split("From the record to")
    to_training, to_comment = (
        [(ROOT / file, name) for file, name in PLACE.findall(part)] for part in (there, back)
    )
    assert 5 < len(to_training) <= MOST_FILES
    assert 5 < len(to_comment) <= MOST_FILES
    return to_training, to_comment


def test_a_config_comes_to_the_training_through_these_files() -> None:
    """Each place is named by one before it; the worker's module by the command that starts it."""
    places, _ = walks()
    read = ""
    for file, name in places:
        text = file.read_text(encoding="utf-8")
        made = {getattr(node, "name", None) for node in ast.parse(text).body}
        assert name in made, f"{file} has no {name}"
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        imported = rf"from {module} import (\([^)]*|[^\n]*)\b{name}\b"
        assert not read or re.search(rf'{imported}|"{module}"', read), f"none leads to {file}"
        read += text


def test_a_record_comes_to_the_comment_through_these_files(house: Gatehouse) -> None:
    _, places = walks()
    house.baseline()
    pull = house.pull()
    wanted = {(str(file), name): None for file, name in places}
    called: dict[tuple[str, str], None] = {}

    def calls(frame: FrameType, event: str, argument: Any) -> None:
        place = (frame.f_code.co_filename, frame.f_code.co_name)
        if event == "call" and place in wanted:
            called.setdefault(place)

    run = house.run(0.2)
    sys.setprofile(calls)
    try:
        house.judge(pull, run)
    finally:
        sys.setprofile(None)
    assert [*called] == [*wanted]
