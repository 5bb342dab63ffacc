"""The entry points: a drawer, or stored runs, in; levels, change points and drifts of all metrics
out. They read files but start no process and need no network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from canary.baseline.comparability import machine_key
from canary.baseline.history import NOISE_FILE
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.config.metric_gates import MetricGate, gates_in
from canary.errors import ConfigError, InputError
from canary.record.types import RunRecord
from canary.trends.followed import Number, finite
from canary.trends.model import HistoryTrends, Series, StoredPoint
from canary.trends.runs import RunFacts, StoredRun, facts_of, stored_runs

MOST_SERIES = 100
"""Metrics of a drawer that are followed."""


def trends_of(drawer_folder: Path) -> HistoryTrends:
    """Return the trends of one drawer, in the order in which its runs started.

    Raises:
        RecordError: an entry cannot be read.
    """
    notes = []
    noise = None
    if (drawer_folder / NOISE_FILE).exists():
        try:
            noise = load_noise(drawer_folder / NOISE_FILE)
        except InputError as error:
            notes.append(f"the noise is estimated from the runs: {error.message}")
    newest_first = stored_runs(drawer_folder, newest_first=True)
    return _trends(newest_first, noise, drawer_folder.parent.name, drawer_folder.name, notes)


def trends_of_runs(
    runs: Sequence[StoredRun | RunRecord], noise: NoiseModel | None = None
) -> HistoryTrends:
    """Return the trends of the runs of one canary on one machine, given oldest first."""
    newest_first = (_as_stored(run) for run in reversed(runs))
    newest = _as_stored(runs[-1]).record if runs else None
    canary, machine = (newest.name, machine_key(newest)) if newest else ("", "")
    return _trends(newest_first, noise, canary, machine, [])


def _as_stored(run: StoredRun | RunRecord) -> StoredRun:
    if isinstance(run, StoredRun):
        return run
    return StoredRun(run, str(run.git.get("sha") or ""), "", 1, False)


def _trends(
    newest_first: Iterable[StoredRun],
    noise: NoiseModel | None,
    canary: str,
    machine: str,
    notes: list[str],
) -> HistoryTrends:
    facts: list[RunFacts] = []
    gates: tuple[MetricGate, ...] = ()
    for run in newest_first:
        if not facts:
            gates = _gates(run.record, notes)
        facts.append(facts_of(run, gates))
    facts.reverse()
    found = [_series(name, number, facts) for name, number in _followed(facts, notes).items()]
    return HistoryTrends(canary, machine, tuple(found), tuple(notes))


def _gates(newest: RunRecord, notes: list[str]) -> tuple[MetricGate, ...]:
    """Return the gates of the newest run's config."""
    try:
        return gates_in(newest.config.get("metrics"), f"run {newest.run_id}")
    except ConfigError as error:
        notes.append(f"the gates of the newest run cannot be read: {error.message}")
        return ()


def _followed(facts: Sequence[RunFacts], notes: list[str]) -> dict[str, Number]:
    """Return the newest number of each metric, in the order of the newest run."""
    found: dict[str, Number] = {}
    for run in reversed(facts):
        for name, number in run.numbers.items():
            found.setdefault(name, number)
    kept = dict(list(found.items())[:MOST_SERIES])
    if len(found) > len(kept):
        notes.append(f"{len(found) - len(kept)} more metrics are not followed")
    return kept


def _series(name: str, newest: Number, facts: Sequence[RunFacts]) -> Series:
    values = [run.numbers.get(name) for run in facts]
    points = tuple(
        StoredPoint(
            run.run_id,
            run.commit,
            run.start,
            number.value if number is not None and finite(number.value) else None,
            run.period,
            run.verdict,
            run.accepted,
        )
        for run, number in zip(facts, values, strict=True)
    )
    notes = []
    bad = sum(number is not None and not math.isfinite(number.value) for number in values)
    if bad:
        notes.append(f"{bad} run{'' if bad == 1 else 's'} had a value that is not finite")
    return Series(
        name,
        newest.title,
        newest.unit,
        newest.lower_is_better,
        points,
        levels=(),
        changes=(),
        drift=None,
        trend=None,
        notes=tuple(notes),
    )
