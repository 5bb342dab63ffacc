"""The host's part of a record, from rows and from what the launches told. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from canary.record.step_row import HostSeconds, Row
from canary.record.types import Host, Launch, RunRecord

LARGEST_DELAY = 0.95
"""Share of the time without a core that is taken out of the rest; above it little is left."""


def host_of(record: RunRecord, rows: Sequence[Row]) -> Host:
    """The section, from the rows after warm-up of all launches."""
    told = [row["host"] for row in rows if row.get("host")]
    launches = [launch for launch in record.launches if launch.kind == "measured"]
    delay, waiting, others = _thread_shares(rows)
    held = _mean(launch.host.get("gil_held") for launch in launches)
    return Host(
        gil_contention=_least(held, waiting, others),
        gil_held=held,
        waiting=waiting,
        other_threads=others,
        run_delay=delay,
        cpu_seconds_per_step=_mean(
            sum(row["phases_cpu"].values()) for row in rows if row.get("phases_cpu")
        ),
        main_cpu_seconds_per_step=_mean(host["own_cpu_s"] for host in told),
        voluntary_switches_per_step=_per_step(launches, "voluntary_switches"),
        involuntary_switches_per_step=_per_step(launches, "involuntary_switches"),
        cpu_utilization_of_cores=_of_cores(record),
    )


def typical_cpu_s_per_step(record: RunRecord) -> float | None:
    """CPU seconds per step of a run's launches, as comparisons have it; of a device, and of earlier
    versions, the process's mean."""
    told = [launch.cpu_s_per_step for launch in record.launches if launch.kind == "measured"]
    known = [seconds for seconds in told if seconds]
    return statistics.geometric_mean(known) if known else record.host.cpu_seconds_per_step


def on_core_step_time_s(rows: Sequence[Row]) -> float | None:
    """As `Launch` has it. A device works on while the thread has no core."""
    told = [row for row in rows if row.get("cpu_s") is not None]
    delays = [row["host"].get("run_delay_s") for row in told if row.get("host")]
    known = [delay for delay in delays if delay is not None]
    if not known or len(known) < len(rows):
        return None
    return statistics.fmean(row["wall_s"] - delay for row, delay in zip(told, known, strict=True))


def gil_contention(rows: Sequence[Row]) -> float | None:
    """The same as the record's, of rows of a training that still runs; None where Python's lock is
    not sampled, or not yet."""
    held = rows[-1].get("host", {}).get("gil_held") if rows else None
    _, waiting, others = _thread_shares(rows)
    return _least(held, waiting, others)


def _thread_shares(rows: Sequence[Row]) -> tuple[float | None, float | None, float | None]:
    """Of the thread that trains: `run_delay`, `waiting` and `other_threads` as `Host` has them."""
    told = [row["host"] for row in rows if row.get("host")]
    delay = _share(told, "run_delay_s", sum(row["wall_s"] for row in rows if row.get("host")))
    computing = sum(host["computing_s"] for host in told)
    # What the thread wanted a core for is the machine's time, in the computing phases as in all.
    without = min(LARGEST_DELAY, delay or 0.0) * computing
    waiting = _share(told, "waiting_s", computing - without, without)
    others = _share(told, "others_s", computing - without)
    return delay, waiting, others


def _share(
    told: Sequence[HostSeconds],
    key: Literal["run_delay_s", "waiting_s", "others_s"],
    whole_s: float,
    without_s: float = 0.0,
) -> float | None:
    seconds = [value for host in told if (value := host.get(key)) is not None]
    if not seconds or whole_s <= 0:
        return None
    return max(0.0, (math.fsum(seconds) - without_s) / whole_s)


def _least(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return min(1.0, *known) if len(known) == len(values) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _per_step(launches: Sequence[Launch], key: str) -> float | None:
    return _mean(
        launch.host[key] / launch.host["steps"]
        for launch in launches
        if launch.host.get("steps") and key in launch.host
    )


def _of_cores(record: RunRecord) -> float | None:
    cores, percent = record.env.get("cpu_usable"), record.perf.cpu_utilization_avg
    return percent / cores if cores and percent is not None else None
