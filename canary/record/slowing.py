"""Whether a launch slows down within itself: the seconds of a step that are its own. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from canary.record.jsonio import number
from canary.record.step_row import Row

APART = ("checkpoint", "evaluation")
"""Phases of work that comes every so many steps, and is no part of training one."""
CROWDED = 0.1
"""Share of a step without a core, from which on threads that compute together also wait for each
other, which nobody counts ..."""
OTHERS = 0.1
"""... where other threads than the one that trains have so much of the CPU time."""
LEAST_STEPS = 8
"""Of a part: what fewer steps take is chance."""


def own_seconds(row: Row) -> float | None:
    """Seconds of a step without those of checkpoints and, where no device trains, without those in
    which it was ready and had no core: other work on the machine moves them little. None for a
    step that was profiled, where nobody counted them, or whose threads waited for each other."""
    if row.get("profiled"):
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
    own = (row.get("host") or {}).get("own_cpu_s")
    return own is not None and total - own > OTHERS * total


def _apart(seconds: Mapping[str, float] | None) -> float:
    return math.fsum((seconds or {}).get(name, 0.0) for name in APART)


def tokens_of(row: Row) -> float | None:
    """Tokens of a step: those that enter it, or else the generated ones."""
    for key in ("input_tokens", "completion_tokens"):
        if row.get(key) is not None:
            return float(number(row[key]))
    return None


def more_work(early: Sequence[float], late: Sequence[float]) -> float:
    """How many times longer a step may take for its tokens, 1 at least: attention takes their
    square."""
    if not early or not late or not (before := statistics.median(early)):
        return 1.0
    return float(max(1.0, statistics.median(late) / before) ** 2)


def slowing(rows: Sequence[Row]) -> float | None:
    """The last third of one launch's steps over the first third, in their median own seconds and
    beyond what longer sequences explain; None of a launch too short to tell. `rows` are those
    after the warm-up."""
    told = [(own, tokens_of(row)) for row in rows if (own := own_seconds(row)) is not None]
    third = len(told) // 3
    if third < LEAST_STEPS:
        return None
    parts = (told[:third], told[-third:])
    early, late = (statistics.median(own for own, _ in part) for part in parts)
    tokens = ([count for _, count in part if count is not None] for part in parts)
    return late / early / more_work(*tokens)
