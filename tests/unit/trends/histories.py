"""Made-up histories: noise that lasts, spikes, levels, ramps; and runs that carry them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from canary.baseline.comparability import machine_key
from canary.record.types import RunRecord
from canary.trends.history import trends_of_stored
from canary.trends.model import HistoryTrends, Series, StoredPoint
from canary.trends.runs import Number, Run, changes_of, run_of
from canary.trends.series import series_of
from tests.unit.comparing import example, record

Values = npt.NDArray[np.float64]
FLOOR = 0.002
BUDGET = 0.0025


def noise(
    count: int, seed: int, *, sd: float = 0.01, lasting: float = 0.0, spikes: float = 0.0
) -> Values:
    """Logarithms about 0; `lasting` is the correlation of neighbours, `spikes` their share."""
    rng = np.random.default_rng(seed)
    fresh = rng.normal(size=count) * sd
    values = np.empty(count)
    values[0] = fresh[0]
    for place in range(1, count):
        values[place] = lasting * values[place - 1] + math.sqrt(1 - lasting**2) * fresh[place]
    hit = rng.random(count) < spikes
    values[hit] += rng.exponential(8 * sd, size=int(hit.sum()))
    return values


def stepped(values: Values, place: int, percent: float) -> Values:
    """The same with a level that begins at a place."""
    made = values.copy()
    made[place:] += math.log1p(percent / 100)
    return made


def facts(
    values: Sequence[float | None],
    *,
    kind: str = "",
    accepted: Sequence[int] = (),
    red: Sequence[int] = (),
    lower_is_better: bool | None = True,
    records: dict[int, RunRecord] | None = None,
) -> list[Run]:
    """Runs that have one number, `it`."""
    plain = example()
    return [
        Run(
            (records or {}).get(place, plain),
            StoredPoint(
                f"run-{place}",
                f"{place:040x}",
                f"2026-01-01T00:00:{place % 60:02}+00:00",
                None,
                None if place in red else 1,
                "regression" if place in red else "pass",
                place in accepted,
            ),
            {} if value is None else {"it": Number("it", "ms", lower_is_better, value, kind)},
        )
        for place, value in enumerate(values)
    ]


def series(values: Sequence[float | None], **rest: Any) -> Series:
    """The series of such runs."""
    runs = facts(values, **rest)
    newest = Number("it", "ms", rest.get("lower_is_better", True), 1.0, rest.get("kind", ""))
    return series_of("it", newest, runs, BUDGET, None, changes_of(runs))


def times(values: Values) -> list[float]:
    """Milliseconds about 100."""
    return [100 * math.exp(value) for value in values.tolist()]


def runs_of(values: Values, memory: Values | None = None) -> list[RunRecord]:
    """Records with these step times about 0.1 s."""
    room = np.zeros(len(values)) if memory is None else memory
    return [
        record(place, 0.1 * math.exp(value), memory_mb=600 * math.exp(float(room[place])))
        for place, value in enumerate(values.tolist())
    ]


def trends_of_runs(runs: Sequence[RunRecord]) -> HistoryTrends:
    """The trends of runs that are not stored, given oldest first."""
    stored = [run_of(run, str(run.git.get("sha") or "")) for run in runs[::-1]]
    canary, machine = (runs[-1].name, machine_key(runs[-1])) if runs else ("", "")
    return trends_of_stored(stored, None, canary, machine, [])
