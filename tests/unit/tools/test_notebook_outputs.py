"""What is stored of a notebook's outputs names neither the machine nor the day."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.notebooks import outputs


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """The cleaner of a notebook that `mira` ran on the machine `build7`."""
    monkeypatch.setattr(getpass, "getuser", lambda: "mira")
    monkeypatch.setattr(platform, "node", lambda: "build7")
    return outputs.cleaner(tmp_path)


def test_names_folders_and_days_are_left_out(clean: Callable[[str], str], tmp_path: Path) -> None:
    assert clean(f"{tmp_path}/after/20260102-030405-sft-ab12") == "./after/DATE-TIME-sft-ab12"
    assert (
        clean("5 runs on 2026-01-02, by mira on build7") == "5 runs on DATE, by MACHINE on MACHINE"
    )
    assert clean("<b>mira</b>") == "<b>MACHINE</b>"


def test_the_attributes_of_a_chart_stay(clean: Callable[[str], str]) -> None:
    picture = '<g class="mark-group role-frame mira">'
    assert clean(picture) == picture


def test_lines_end_as_elsewhere(clean: Callable[[str], str]) -> None:
    assert clean("one\r\ntwo\r\r\n\x1b[1mthree\x1b[0m\n") == "one\ntwo\nthree\n"
