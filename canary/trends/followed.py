"""The metrics that a history follows, and each run's number of them.

A run gives one number per metric. What is timed is the geometric mean over its launches, as in
checks. A gate of `metrics:` gives its own statistic.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from canary.compare.metrics.samples import UNITS, curve_in, own_name, title
from canary.compare.metrics.statistic import reading, usable
from canary.compare.timing.crowding import compute_threads
from canary.compare.timing.lane import Metric, completion_tokens_per_step, launch_seconds
from canary.config.metric_gates import MetricGate
from canary.record.end_loss import end_loss
from canary.record.types import RunRecord

LOWER_IS_BETTER = {"higher": True, "lower": False}
"""By the bad direction of a gate; neither for both directions."""


@dataclass(frozen=True)
class Number:
    """One run's number of a metric."""

    title: str
    unit: str
    lower_is_better: bool | None
    value: float
    """Not finite if the run's number was not."""
    kind: str = ""
    """Kind of measurement, a key of `FLOORS`; empty for what a trainer reports."""
    per_token: float | None = None
    """Tokens generated per step, for a time."""


def numbers_of(record: RunRecord, gates: Sequence[MetricGate]) -> Mapping[str, Number]:
    """Return a run's numbers by metric, those of the canary first."""
    found: dict[str, Number] = {}
    _add_times(found, record)
    memory = record.perf.max_mem_mb
    if memory is not None:
        kind = f"{record.perf.max_mem_kind or 'resident'}_memory"
        found["max_memory"] = Number("peak memory", "MB", True, memory, kind)
    rate = record.perf.approx_tokens_per_sec
    if rate is not None:
        found["tokens_per_sec"] = Number("tokens per second", "tokens/s", False, rate, "step_time")
    loss = end_loss(record)
    if loss is not None:
        found["final_loss"] = Number("final loss", "", True, loss)
    norms = [norm for norm in record.stability.grad_norm_values if norm is not None]
    if norms:
        found["grad_norm"] = Number("gradient norm", "", None, statistics.median(norms))
    _add_gates(found, record, gates)
    return found


def _add_times(found: dict[str, Number], record: RunRecord) -> None:
    times: tuple[tuple[Metric, str, str], ...] = (
        ("step_time_median", "step time", "step_time"),
        ("cpu_time", "CPU time per step", "cpu_time"),
    )
    tokens = completion_tokens_per_step(record)
    for name, words, kind in times:
        if name == "cpu_time" and compute_threads(record) != 1:
            continue  # Threads that share an operator spin, see `canary.compare.timing.cpu_time`.
        seconds = [s for s in launch_seconds(record, name) if 0 < s < math.inf]
        if seconds:
            mean = 1e3 * statistics.geometric_mean(seconds)
            found[name] = Number(words, "ms", True, mean, kind, tokens)


def _add_gates(found: dict[str, Number], record: RunRecord, gates: Sequence[MetricGate]) -> None:
    for gate in gates:
        curve = curve_in(record, gate.name)
        if curve is None:
            continue
        read = reading(curve, gate)
        value = float(read.broken) if read.value is None and read.broken else read.value
        if value is None:
            continue
        words = title(gate)
        plain = gate.of_step is None and gate.statistic not in ("count", "share_above")
        unit = UNITS.get(own_name(record, gate.name), "") if plain else ""
        lower = LOWER_IS_BETTER.get(gate.worse or "")
        found[_free(found, gate.name, words)] = Number(words, unit, lower, value)


def _free(found: Mapping[str, Number], name: str, words: str) -> str:
    """Return a gate's key: its metric, or its whole title if the metric has a series already."""
    return name if name not in found else words


def finite(value: float) -> bool:
    """Return whether a number can be computed with."""
    return math.isfinite(value) and usable(value)
