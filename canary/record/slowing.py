"""Whether a launch's steps get slower while it runs. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from canary.record.jsonio import number
from canary.record.step_row import Row, is_timed

APART = ("checkpoint", "evaluation")
"""Phases that come only every so many steps and are not training."""
CROWDED = 0.1
"""From this share of a step without a core, computing threads also wait for each other. These
waits are not measured ..."""
OTHERS = 0.1
"""... if threads other than the training thread use this share of the CPU time."""
LEAST_STEPS = 8
"""Per third; the time of fewer steps is chance."""


def own_seconds(row: Row) -> float | None:
    """Return a step's seconds without checkpoints and evaluation; on a CPU also without waits for
    a core, because those depend on other work. None if the step was profiled, its waits were not
    measured, or its threads waited for each other."""
    if not is_timed(row):
        return None
    cpu_s = row.get("phases_cpu")
    if row.get("peak_bytes") is not None:
        seconds = row["wall_s"] - _apart(row.get("phases"))
    elif (delay := (row.get("host") or {}).get("run_delay_s")) is not None:
        if delay > CROWDED * row["wall_s"] and _several_threads(row):
            return None
        seconds = row["wall_s"] - delay - _apart(row.get("phases"))
    elif cpu_s:
        seconds = math.fsum(cpu_s.values()) - _apart(cpu_s)
    else:
        return None
    return seconds if seconds > 0 else None


def _several_threads(row: Row) -> bool:
    total = math.fsum((row.get("phases_cpu") or {}).values())
    main = (row.get("host") or {}).get("own_cpu_s")
    return main is not None and total - main > OTHERS * total


def _apart(seconds: Mapping[str, float] | None) -> float:
    return math.fsum((seconds or {}).get(name, 0.0) for name in APART)


def tokens_of(row: Row) -> float | None:
    """Return a step's input tokens, or else its generated tokens."""
    for key in ("input_tokens", "completion_tokens"):
        if row.get(key) is not None:
            return float(number(row[key]))
    return None


def more_work(early: Sequence[float], late: Sequence[float]) -> float:
    """Return the factor, at least 1, by which more tokens explain longer steps: attention's cost
    grows with their square."""
    if not early or not late or not (before := statistics.median(early)):
        return 1.0
    return float(max(1.0, statistics.median(late) / before) ** 2)


def slowing(rows: Sequence[Row]) -> float | None:
    """Return the median `own_seconds` of a launch's last third of steps over the first third's,
    beyond what longer sequences explain; None if the launch is too short. `rows`: after warm-up."""
    timed = [(time, tokens_of(row)) for row in rows if (time := own_seconds(row)) is not None]
    third = len(timed) // 3
    if third < LEAST_STEPS:
        return None
    parts = (timed[:third], timed[-third:])
    early, late = (statistics.median(time for time, _ in part) for part in parts)
    tokens = ([count for _, count in part if count is not None] for part in parts)
    return late / early / more_work(*tokens)
