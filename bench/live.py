"""The live panel's CPU time in the parent process: `python -m bench.live`.

Plays steps of 25 ms to the panel on a simulated clock. Then rich's live display draws the same
lines, for comparison. Prints medians of rounds.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable
from unittest import mock

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from canary.record.step_row import Row
from canary.runner.display.pace import Pace
from canary.runner.display.panel import LivePanel, panel_lines

STEP_S = 0.025
POLL_S = 0.0125
PHASES = {
    "data": 0.001,
    "generation": 0.010,
    "reward": 0.001,
    "logprob": 0.003,
    "advantage": 0.001,
    "forward": 0.004,
    "backward": 0.004,
    "optimizer": 0.001,
}


def step_row(step: int) -> Row:
    """Return the row of a PPO step with every value that the panel shows."""
    return {
        "launch": 1,
        "step": step,
        "wall_s": STEP_S,
        "phases": PHASES,
        "phases_cpu": PHASES,
        "host": {
            "computing_s": 0.024,
            "waiting_s": 0.001,
            "others_s": 0.002,
            "own_cpu_s": 0.023,
            "run_delay_s": 0.0,
            "gil_held": 0.5,
        },
        "loss": 0.5,
        "input_tokens": 900,
        "completion_tokens": 500,
        "samples": 16,
        "rss_bytes": 2**29,
        "peak_bytes": None,
        "rl": {"reward": 0.5, "kl": 0.01, "entropy": 1.2, "clip_ratio": 0.02, "policy_loss": 0.1},
    }


def console() -> Console:
    """Return a hidden terminal of 120 columns."""
    return Console(file=io.StringIO(), force_terminal=True, width=120, height=40)


def played(steps: int) -> float:
    """Return the CPU seconds per step, of events and redraws together."""
    rows = [step_row(step) for step in range(1, steps + 1)]
    panel = LivePanel(console())
    now = 1000.0

    def moment() -> float:
        return now

    with mock.patch("canary.runner.display.panel.time.monotonic", moment):
        panel.launch_begins(1, steps)
        start = time.process_time()
        for row in rows:
            panel.step_ended(row)
            now += POLL_S
            panel.waiting()
            now += STEP_S - POLL_S
        return (time.process_time() - start) / steps


def redraws(draw: Callable[[], None], times: int) -> float:
    """Return the CPU seconds per redraw."""
    draw()
    start = time.process_time()
    for _ in range(times):
        draw()
    return (time.process_time() - start) / times


def main() -> None:
    """Print three lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=9, help="rounds")
    rounds = parser.parse_args().n
    pace = Pace()
    pace.begin(100)
    for step in range(1, 51):
        pace.add(step_row(step))
    panel = LivePanel(console())
    panel._pace = pace
    with Live(console=console(), auto_refresh=False, redirect_stderr=False) as live:

        def by_rich() -> None:
            grid = Table.grid()
            for line in panel_lines(pace, 119):
                grid.add_row(Text.assemble(*line))
            live.update(grid, refresh=True)

        found = [
            (played(2000), redraws(panel._draw, 200), redraws(by_rich, 50)) for _ in range(rounds)
        ]
    step, mine, rich = (statistics.median(values) for values in zip(*found, strict=True))
    print(f"per step of {1000 * STEP_S:.0f} ms: {1e6 * step:.1f} us, {100 * step / STEP_S:.3f}%")
    print(f"per redraw: {1e6 * mine:.0f} us")
    print(f"per redraw by rich's live display: {1e6 * rich:.0f} us")


if __name__ == "__main__":
    main()
