"""Stored runs of a drawer: the numbers that a history keeps, and what changed on the machine.

A run gives one number per metric. What is timed is the geometric mean over its launches, as in
checks. A gate of `metrics:` gives its own statistic. A record is read once. Only what the series
need is kept of it, so that a history of 1,000 runs fits into memory.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from canary.baseline.entry import Entry
from canary.baseline.history import entries, periods
from canary.compare.exact.changes import environment_changes
from canary.compare.metrics.samples import curve_in, own_name, title, unit_of
from canary.compare.metrics.statistic import reading
from canary.compare.timing.excuses import compute_threads
from canary.compare.timing.lane import Metric, launch_seconds, tokens_per_step
from canary.config.metric_gates import MetricGate
from canary.errors import cut, printable
from canary.record.end_loss import end_loss
from canary.record.folder import parse_record
from canary.record.types import Profiler, RunRecord, Stability
from canary.trends.model import MachineChange, StoredPoint

SHA = re.compile(r"[0-9a-f]{12,64}")
NAMES = {"gpus": "gpu", "device.name": "gpu", "cpu_usable": "usable cores", "cpu_count": "cores"}
LONGEST = 60
UNIMPORTANT = ("device.type", "ram_bytes", "gpu_reason")
"""Facts that follow from others, or that the host's kernel changes by a little."""
MachineChanges = Mapping[int, tuple[MachineChange, ...]]
"""What changed on the machine before a run, by the run's place."""
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
    tokens = tokens_per_step(record, "completion_tokens")
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
        words, unit = title(gate), unit_of(gate, own_name(record, gate.name))
        # A metric that has a series already keeps it.
        name = gate.name if gate.name not in found else words
        found[name] = Number(words, unit, LOWER_IS_BETTER.get(gate.worse or ""), value)


@dataclass(frozen=True)
class Run:
    """One run of a history."""

    record: RunRecord
    """As it was stored; in what is kept without rows, curves and signals."""
    point: StoredPoint
    """Without a value."""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    """By metric, in what is kept."""

    def kept(self, gates: Sequence[MetricGate]) -> Run:
        """Return what a history keeps of the run: its numbers, machine, packages and config.

        `gates`: those of the newest run."""
        small = self.record.model_copy(
            update={
                "stability": Stability(),
                "profiler": Profiler(),
                "rl": {},
                "curves": {},
                "alerts": [],
                "memory": type(self.record.memory)(),
                "exact": {"model": self.record.exact.get("model", {})},
            }
        )
        return Run(small, self.point, numbers_of(self.record, gates))


def run_of(
    record: RunRecord,
    commit: str = "",
    verdict: str = "",
    period: int | None = 1,
    accepted: bool = False,
) -> Run:
    """Return a record as a run of a history; see `StoredPoint` for the other fields."""
    point = StoredPoint(record.run_id, commit, record.timestamp, None, period, verdict, accepted)
    return Run(record, point)


def stored_runs(folder: Path) -> Iterator[Run]:
    """Yield the runs of a drawer, the newest first; the next is read when it is asked for.

    Raises:
        RecordError: an entry cannot be read.
    """
    found = entries(folder)
    kept = [entry for entry in found if not entry.red]
    numbers = dict(zip(kept, periods(kept), strict=True))
    for entry in reversed(found):
        yield _stored_run(entry, numbers.get(entry))


def _stored_run(entry: Entry, period: int | None) -> Run:
    stored = entry.stored()
    record, context = parse_record(stored.record, entry.path), stored.context
    named = (context.commit if context else "") or str(record.git.get("sha") or "")
    commit = named if SHA.fullmatch(named) else ""
    return run_of(record, commit, context.verdict if context else "", period, entry.accepted)


def changes_of(facts: Sequence[Run]) -> MachineChanges:
    """Return all changes of the machine over the runs, given oldest first."""
    found = {}
    for place, (before, now) in enumerate(pairwise(facts), start=1):
        if changes := tuple(_between(before, now)):
            found[place] = changes
    return found


def suspects(machines: MachineChanges, first: int, last: int) -> tuple[MachineChange, ...]:
    """Return what changed on the machine where a series changed, each fact once.

    Args:
        machines: all changes of the machine.
        first: first run that may be of the new level.
        last: first run that surely is.
    """
    places = range(max(1, first), last + 1)
    found = {one.name: one for place in places for one in machines.get(place, ())}
    return tuple(found.values())


def _between(before: Run, now: Run) -> Iterator[MachineChange]:
    if before.record.env == now.record.env:
        return
    changes = environment_changes(before.record, now.record)
    for change in sorted(changes, key=lambda change: change.cosmetic):
        if change.key in UNIMPORTANT or (change.cosmetic and change.key.startswith("packages.")):
            continue
        name = NAMES.get(change.key, change.key)
        name = name.removeprefix("packages.").removeprefix("variables.")
        yield MachineChange(_cut(name), _text(change.baseline), _text(change.current))


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        names = [str(one.get("name") or "unknown") for one in value]
        value = f"{len(names)} x {names[0]}" if len(names) > 1 else names[0] if names else None
    return _cut("none" if value is None else str(value))


def _cut(text: str) -> str:
    return cut(printable(text), LONGEST)
