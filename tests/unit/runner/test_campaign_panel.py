"""The progress of a campaign's runs: each draws on the campaign's screen, and its panel goes."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from canary.campaign.side import finish_child, start_child
from canary.runner.display.progress import CampaignPanel, Screen, campaign_panel

CHILD = """
import os, sys
import canary.runner.display.progress
from canary.protocol.job import SHOWN, Result
from tests.unit.record.test_summary import row
canary.runner.display.progress.LINE_EVERY_S = 0.0
listener = canary.runner.display.progress.listener_for(sys.stderr, quiet=True)
assert SHOWN not in os.environ
listener.warned("mind this")
listener.launch_begins(1, 3)
for step in (1, 2):
    listener.step_ended(row(step, 0.5))
listener.inner._moment = -1.0
listener.waiting()
listener.launch_ended(Result("completed"))
"""


def shown(tmp_path: Path, name: str, **how: Any) -> str:
    """What a run in another process shows."""
    path = tmp_path / "screen"
    with path.open("w") as stream:
        screen = Screen(stream.fileno(), **how)
        environment = {**os.environ, **screen.environment(name)}
        child = start_child([sys.executable, "-c", CHILD], Path.cwd(), environment, screen.file)
        assert finish_child(child) == (0, "", "")
    return path.read_text(encoding="utf-8")


def test_a_run_in_another_process_draws_its_panel_and_removes_it(tmp_path: Path) -> None:
    text = shown(tmp_path, "pair 2 of 3, head (4 min left)")
    assert "pair 2 of 3, head (4 min left) timed" in text
    assert "2/3" in text
    assert "500 ms/step" in text
    assert text.endswith("F\x1b[J")
    assert "mind this" not in text


def test_the_lines_of_a_named_run_are_those_of_its_steps(tmp_path: Path) -> None:
    lines = shown(tmp_path, "basic, timed", lines=True).splitlines()
    assert [line.partition(" · ")[0] for line in lines] == [
        "  basic, timed: step 1/3",
        "  basic, timed: step 2/3",
    ]
    every = shown(tmp_path, "", lines=True).splitlines()
    assert every[0] == "note: mind this"
    assert every[1].startswith("launch 2: 3 steps")
    assert every[-1].startswith("  completed after 2 steps")


def test_only_a_terminal_gets_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert campaign_panel(io.StringIO(), quiet=False) is None
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    assert campaign_panel(io.StringIO(), quiet=True) is None
    assert isinstance(campaign_panel(io.StringIO(), quiet=False), CampaignPanel)
