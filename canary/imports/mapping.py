"""A run's metrics as rows of a record: names and units are ours where a preset knows them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from canary.imports.entries import Telling, counted, listed
from canary.imports.preset import Preset
from canary.imports.series import Series
from canary.record.curves import ROW_METRICS
from canary.record.step_row import Row
from canary.record.summary import MIN_STEPS

LAUNCH = 0
"""The number of the only launch."""
MOST_METRICS = 2_000
"""Metrics in a record."""
LARGEST_TIME_S = 1e9
"""Seconds of a step."""
LARGEST_MEMORY = 2.0**60
"""Bytes."""
FROM_TIMES = "differences of the times at which the source was written"


@dataclass(frozen=True)
class Mapped:
    """The rows of a record, and where their values come from."""

    rows: list[Row]
    names: dict[str, str]
    """Our name -> the source's, for the metrics that the preset knows."""
    others: int
    """Metrics that keep their name."""
    step_time: str
    """Where step times come from; empty without them."""
    no_step_time: str
    """Why there are none."""

    @property
    def count(self) -> int:
        """The number of the source's metrics."""
        return len(self.names) + self.others


def mapped(series: Series, preset: Preset | None, telling: Telling) -> Mapped:
    """Return a run's rows."""
    known = _known(series, preset)
    values = _renamed(series, known, telling)
    step_time = ""
    if "step_time_s" in values:
        step_time = f"the source's {known['step_time_s'][0]}"
        values["step_time_s"] = _within(values["step_time_s"], LARGEST_TIME_S, "step time", telling)
    elif times := _between(series, telling):
        step_time, values["step_time_s"] = FROM_TIMES, times
    if "max_memory_bytes" in values:
        memory = values["max_memory_bytes"]
        memory = _within(memory, LARGEST_MEMORY, "memory", telling)
        values["max_memory_bytes"] = {step: int(value) for step, value in memory.items()}
    timed = len(values.get("step_time_s", {}))
    if timed < MIN_STEPS:
        values.pop("step_time_s", None)
    untimed = "not recorded: the source has no step time and no times of its rows"
    if step_time:
        untimed = f"the source has a time for only {timed} steps, {MIN_STEPS} are needed"
    steps = sorted({step for by_step in values.values() for step in by_step})
    return Mapped(
        rows=[_row(step, values, series) for step in steps],
        names={ours: name for ours, (name, _) in known.items() if ours in values},
        others=sum(name not in known for name in values if name not in ROW_METRICS),
        step_time=step_time if timed >= MIN_STEPS else "",
        no_step_time=untimed if timed < MIN_STEPS else "",
    )


def _known(series: Series, preset: Preset | None) -> dict[str, tuple[str, float]]:
    """Return our name -> the source's name and scale. A name that is ours needs no preset."""
    known = {} if preset is None else preset.names_in(series.values)
    taken = {name for name, _ in known.values()}
    for ours in ROW_METRICS:
        if ours not in known and ours in series.values and ours not in taken:
            known[ours] = (ours, 1.0)
    return known


def _renamed(
    series: Series, known: Mapping[str, tuple[str, float]], telling: Telling
) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for ours, (name, scale) in known.items():
        values[ours] = {step: value * scale for step, value in series.values[name].items()}
    taken = {name for name, _ in known.values()}
    left: list[str] = []
    for name in series.values:
        if name in taken:
            continue
        # The source's own `reward` is not the metric that the preset calls so.
        kept = f"source/{name}" if name in known or name in ROW_METRICS else name
        kept = kept.encode("utf-8", "backslashreplace").decode()
        if len(values) >= MOST_METRICS:
            left.append(name)
        else:
            values[kept] = dict(series.values[name])
    if left:
        what = f"{len(left):,} metrics were left out, a record has {MOST_METRICS:,}: {listed(left)}"
        telling.tell(what)
    return values


def _within(
    by_step: dict[int, float], most: float, what: str, telling: Telling
) -> dict[int, float]:
    """Return the values that can be times or bytes."""
    good = {step: value for step, value in by_step.items() if 0 < value <= most}
    if bad := len(by_step) - len(good):
        words = counted(bad, "value", "values")
        telling.tell(f"{words} of {what} left out: 0, negative, not finite or too large")
    return good


def _between(series: Series, telling: Telling) -> dict[int, float]:
    """Return the seconds per step between the times of one process."""
    found: dict[int, float] = {}
    backwards = 0
    steps = sorted(series.times)
    for before, step in itertools.pairwise(steps):
        (was, earlier), (now, later) = series.times[before], series.times[step]
        if was != now:
            continue
        if later > earlier:
            found[step] = (later - earlier) / (step - before)
        else:
            backwards += later < earlier
    if backwards:
        telling.tell(f"the times go backwards at {backwards:,} steps: no step time there")
    return found


def _row(step: int, values: Mapping[str, Mapping[int, float]], series: Series) -> Row:
    here = {name: by_step[step] for name, by_step in values.items() if step in by_step}
    row: dict[str, object] = {"launch": LAUNCH, "step": step}
    row |= {key: here.pop(name) for name, key in ROW_METRICS.items() if name in here}
    if here:
        row["rl"] = here
    if step in series.times:
        row["time"] = series.times[step][1]
    return cast("Row", row)


def span(rows: Sequence[Row]) -> tuple[int, int]:
    """Return the first and the last step."""
    return rows[0]["step"], rows[-1]["step"]
