"""The live panel: what it shows, how wide, how often, and that it draws in place."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from canary.config.load import load_config
from canary.protocol.job import Result
from canary.runner.display.figures import Pace
from canary.runner.display.panel import REDRAWS_PER_S, LivePanel, fitted, panel_lines
from tests.unit.record.test_summary import row

PHASES = {
    "data": 0.01,
    "generation": 0.40,
    "reward": 0.10,
    "logprob": 0.08,
    "advantage": 0.02,
    "forward": 0.15,
    "backward": 0.20,
    "optimizer": 0.04,
}
MOVE = re.compile(r"\x1b\[([\d;]*)([FKJm])|\n")


def ppo_row(step: int, **changes: Any) -> Any:
    host = {"computing_s": 1.0, "waiting_s": 0.3, "others_s": 0.1, "run_delay_s": 0.0}
    return row(
        step,
        completion_tokens=2000,
        phases=PHASES,
        phases_cpu={name: 1.5 * seconds for name, seconds in PHASES.items()},
        host=host | {"own_cpu_s": 0.7, "gil_held": 0.6},
        rl={"objective/scores": 0.51, "objective/kl": 0.0134, "policy/clipfrac_avg": 0.02},
        **changes,
    )


def alert(step: int, severity: str = "high") -> Any:
    message = "the KL to the reference is 14 times its usual value, and grew in each of ten steps"
    return {"severity": severity, "type": "kl_spike", "step": step, "message": message}


def pace(rows: int = 20, **changes: Any) -> Pace:
    found = Pace()
    found.begin(40)
    for step in range(1, rows + 1):
        found.add(ppo_row(step, **changes))
    found.reading = {"gpu_utilization": 87.0, "gpu_memory_bytes": 12.25 * 2**30}
    return found


def text_of(pace: Pace, width: int, **more: str) -> str:
    return "\n".join("".join(text for text, _ in line) for line in panel_lines(pace, width, **more))


def screen(written: str) -> list[str]:
    """What a terminal shows after it was sent this."""
    lines, place, column = [""], 0, 0
    while written:
        found = MOVE.search(written)
        plain = written if found is None else written[: found.start()]
        lines[place] = (
            lines[place][:column].ljust(column) + plain + lines[place][column + len(plain) :]
        )
        column += len(plain)
        if found is None:
            break
        written = written[found.end() :]
        if found[0] == "\n":
            place, column = place + 1, 0
            lines += [""] * (place + 1 - len(lines))
        elif found[2] == "F":
            place, column = place - int(found[1]), 0
            assert place >= 0, "above the top of the screen"
        elif found[2] == "K":
            lines[place] = lines[place][:column]
        elif found[2] == "J":
            lines[place:] = [lines[place][:column]]
    return lines


def test_everything_is_told_in_the_names_of_rlhf() -> None:
    shown = text_of(pace(), 200)
    for part in (
        "20/40",
        "step loss 2",
        "1000 ms/step",
        "8.0 samples/s",
        "2,000 completion tokens/s",
        "rollout 40%  reward 10%  reference 8%  advantage 2%  update 39%  data 1%",
        "CPU 150%",
        "GPU 87%",
        "300 MB",
        "12.2 GB of the GPU in use",
        "GIL 10%",
        "reward 0.51",
        "KL 0.0134",
        "clipped 0.02",
        "20 s left",
    ):
        assert part in shown, part


@pytest.mark.parametrize("width", [20, 120])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(width: int) -> None:
    running = pace()
    for step in range(21, 26):
        running.add(ppo_row(step, alerts=[alert(step)]))
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, height=50)
    panel = LivePanel(console)
    panel._pace, panel._open = running, True
    panel.launch_ended(Result(status="completed"))
    shown = screen(stream.getvalue())
    assert max(cell_len(line) for line in shown) < width
    for part in ("25/40", "completion", "update 39%", "GIL 10%", "clipped", "2 alerts"):
        assert any(part in line for line in shown), part
    assert sum(line.startswith("high kl_spike") for line in shown) == 3


def test_a_look_is_not_timed_and_what_is_not_measured_is_not_told() -> None:
    found = Pace()
    found.begin(4)
    found.add(row(1, loss=None, look=True))
    shown = text_of(found, 100)
    assert "ms/step" not in shown
    assert "loss" not in shown
    assert "CPU" not in shown
    assert "300 MB" in shown


def test_it_is_drawn_in_place_and_the_last_state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, color_system="standard", width=100, height=30
    )
    panel = LivePanel(console)
    panel.run_begins(Path("out/run"), load_config(None).config)
    for index in range(2):
        panel.launch_begins(index, 4)
        for step in range(1, 4):
            clock[0] += 1.0
            told = [alert(step, "critical")] if step < 3 else []
            panel.step_ended(ppo_row(step, alerts=told))
        panel.launch_ended(Result(status="timeout" if index else "completed"))
    panel.waiting()
    shown = screen(stream.getvalue())
    assert sum("━" in line for line in shown) == 2
    assert shown[1] == "record: out/run"
    assert ["timeout" in line for line in shown if line.startswith("timed")] == [False, True]
    assert sum("kl_spike" in line for line in shown) == 4
    assert "\x1b[1;31mcritical kl_spike" in stream.getvalue()


def test_it_draws_eight_times_a_second_at_most_and_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    panel = LivePanel(Console(file=stream, force_terminal=True, width=100, height=30))
    drawn: list[float] = []
    original = panel._draw

    def draw() -> None:
        drawn.append(clock[0])
        original()

    monkeypatch.setattr(panel, "_draw", draw)
    panel.launch_begins(0, 1000)
    for step in range(1, 401):
        clock[0] += 0.005
        panel.step_ended(ppo_row(step))
        panel.waiting()
    assert 2 * (REDRAWS_PER_S - 2) <= len(drawn) <= 2 * REDRAWS_PER_S + 1
    before = len(drawn)
    for _ in range(200):
        clock[0] += 0.05
        panel.waiting()
    assert len(drawn) <= before + 1, "nothing was new"
    panel.sampled({"gpu_utilization": 50.0})
    panel.waiting()
    assert len(drawn) >= before + 1
    assert "GPU 50%" in stream.getvalue()


def test_no_message_steers_the_terminal() -> None:
    assert fitted("bad\x1b[2J\nnext", 80) == "bad [2J next"
    assert fitted("日本語日本語", 7) == "日本語…"
