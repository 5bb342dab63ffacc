"""The host's part of a record, from rows and launches. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from canary.record.step_row import HostSeconds, Row
from canary.record.types import Host, RunRecord

LARGEST_DELAY = 0.95
"""At most this share of the time without a core is subtracted; beyond it little is left."""


def host_of(record: RunRecord, rows: Sequence[Row]) -> Host:
    """Return the section from all launches' rows after warm-up."""
    on_host = [row["host"] for row in rows if row.get("host")]
    delay, waiting, others = _thread_shares(rows)
    cores, percent = record.env.get("cpu_usable"), record.perf.cpu_utilization_avg
    held = _mean(launch.host.get("gil_held") for launch in record.launches)
    return Host(
        gil_contention=_least(held, waiting, others),
        gil_held=held,
        waiting=waiting,
        other_threads=others,
        run_delay=delay,
        cpu_seconds_per_step=_mean(
            sum(row["phases_cpu"].values()) for row in rows if row.get("phases_cpu")
        ),
        main_cpu_seconds_per_step=_mean(host["own_cpu_s"] for host in on_host),
        cpu_utilization_of_cores=percent / cores if cores and percent is not None else None,
    )


def typical_cpu_s_per_step(record: RunRecord) -> float | None:
    """Return CPU seconds per step for comparisons: the launches' geometric mean; on a device, and
    in records of earlier versions, the process's mean."""
    known = [launch.cpu_s_per_step for launch in record.launches if launch.cpu_s_per_step]
    return statistics.geometric_mean(known) if known else record.host.cpu_seconds_per_step


def on_core_step_time_s(rows: Sequence[Row]) -> float | None:
    """Return `Launch.on_core_step_time_s`; None on a device, which works on without the thread."""
    on_cpu = [row for row in rows if row.get("cpu_s") is not None]
    delays = [row["host"].get("run_delay_s") for row in on_cpu if row.get("host")]
    known = [delay for delay in delays if delay is not None]
    if not known or len(known) < len(rows):
        return None
    return statistics.fmean(row["wall_s"] - delay for row, delay in zip(on_cpu, known, strict=True))


def gil_contention(rows: Sequence[Row]) -> float | None:
    """Return `Host.gil_contention` of a training that still runs; None if Python's lock is not
    sampled, or not yet."""
    held = rows[-1].get("host", {}).get("gil_held") if rows else None
    _, waiting, others = _thread_shares(rows)
    return _least(held, waiting, others)


def _thread_shares(rows: Sequence[Row]) -> tuple[float | None, float | None, float | None]:
    """Return `Host`'s `run_delay`, `waiting` and `other_threads`."""
    on_host = [row["host"] for row in rows if row.get("host")]
    delay = _share(on_host, "run_delay_s", sum(row["wall_s"] for row in rows if row.get("host")))
    computing = sum(host["computing_s"] for host in on_host)
    # Waits for a core are the machine's doing; assume the same share in the computing phases.
    without = min(LARGEST_DELAY, delay or 0.0) * computing
    waiting = _share(on_host, "waiting_s", computing - without, without)
    others = _share(on_host, "others_s", computing - without)
    return delay, waiting, others


def _share(
    on_host: Sequence[HostSeconds],
    key: Literal["run_delay_s", "waiting_s", "others_s"],
    whole_s: float,
    without_s: float = 0.0,
) -> float | None:
    seconds = [value for host in on_host if (value := host.get(key)) is not None]
    if not seconds or whole_s <= 0:
        return None
    return max(0.0, (math.fsum(seconds) - without_s) / whole_s)


def _least(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return min(1.0, *known) if len(known) == len(values) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
