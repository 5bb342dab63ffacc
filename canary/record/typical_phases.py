"""The phases of a typical step: the seconds that every output shows. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from canary.record.types import PHASES, RunRecord

Seconds = Mapping[str, float]


def phases_of_launches(records: Sequence[RunRecord]) -> list[dict[str, float]]:
    """Return seconds by phase of each completed launch, steps cut to the 95th percentile;
    of whole records of earlier versions."""
    launches = (
        launch.phases_steady
        for record in records
        for launch in record.launches
        if launch.status == "completed"
    )
    return all_or_none(launches) or all_or_none(r.phases for r in records if r.phases)


def all_or_none(found: Iterable[Seconds]) -> list[dict[str, float]]:
    """Return the phases of all launches; an empty list if one did not measure them."""
    launches = list(found)
    return [dict(phases) for phases in launches] if all(launches) else []


def typical_phases(launches: Sequence[Seconds]) -> dict[str, float]:
    """Return the median launch's seconds for each phase; a missing phase took none."""
    return {
        name: statistics.median(launch.get(name, 0.0) for launch in launches) for name in PHASES
    }
