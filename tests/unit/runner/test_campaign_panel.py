"""The panel of a campaign: each run while it trains, in this process or another, then gone."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from canary.campaign.side import events_to
from canary.protocol.job import Result
from canary.runner.display.progress import (
    CampaignPanel,
    Event,
    JsonLines,
    campaign_panel,
)

ROW: Any = {
    "launch": 1,
    "step": 1,
    "wall_s": 0.25,
    "phases": {"forward": 0.2, "backward": 0.05},
    "loss": 0.5,
    "samples": 2,
}


def panel() -> tuple[CampaignPanel, io.StringIO]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, color_system=None)
    return CampaignPanel(console), stream


def sent() -> list[str]:
    """The lines that a run sends to the program that follows it."""
    stream = io.StringIO()
    lines = JsonLines(stream)
    lines.launch_begins(0, 10)
    lines.sampled({"cpu_percent": 50.0})
    lines.step_ended(ROW)
    lines.launch_ended(Result("completed"))
    return stream.getvalue().splitlines()


def test_a_run_in_another_process_is_shown_and_its_panel_goes() -> None:
    shown, stream = panel()
    shown.name = "pair 2 of 3, head (4 min left)"
    *running, ended = (Event(**json.loads(line)) for line in sent())
    for event in running:
        shown.replay(event)
    shown._moment = -1.0
    shown.waiting()
    text = stream.getvalue()
    assert "pair 2 of 3, head (4 min left) timed" in text
    assert "1/10" in text
    assert "step loss 0.5" in text
    assert "250 ms/step" in text
    shown.replay(ended)
    assert stream.getvalue().endswith("F\x1b[J")


def test_what_another_version_sends_cannot_stop_the_campaign() -> None:
    shown, _ = panel()
    for event in (
        Event("call", "", "step_ended", ()),
        Event("call", "", "step_ended", ({"odd": 1},)),
        Event("call", "", "__init__", ()),
        Event("call", "", "replay", (1,)),
        Event("step", "text"),
    ):
        shown.replay(event)
    found: list[Event] = []
    with events_to(found.append) as file:
        for line in ('{"kind": "step", "text": "a", "new": 1}', "no json", sent()[0]):
            with open(file, "w", closefd=False) as stream:
                stream.write(f"{line}\n")
    assert [event.kind for event in found] == ["launch"]


def test_only_a_terminal_gets_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert campaign_panel(io.StringIO(), quiet=False) is None
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    assert campaign_panel(io.StringIO(), quiet=True) is None
    assert isinstance(campaign_panel(io.StringIO(), quiet=False), CampaignPanel)
