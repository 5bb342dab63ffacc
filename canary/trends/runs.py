"""Stored runs of a drawer, and the facts of each that a history needs.

A record is read once. Only what the series need is kept of it, so that a history of 1,000 runs
fits into memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.baseline.entry import Entry, context_of
from canary.baseline.history import entries, periods
from canary.config.metric_gates import MetricGate
from canary.record.folder import parse_record
from canary.record.types import Profiler, RunRecord, Stability
from canary.trends.followed import Number, numbers_of

SHA = re.compile(r"[0-9a-f]{12,64}")


@dataclass(frozen=True)
class StoredRun:
    """One run of a history."""

    record: RunRecord
    commit: str
    """Full sha; empty if unknown."""
    verdict: str
    """Empty: not judged."""
    period: int | None
    """None for a red run."""
    accepted: bool


@dataclass(frozen=True)
class RunFacts:
    """What a history keeps of a run."""

    run_id: str
    commit: str
    start: str
    verdict: str
    period: int | None
    accepted: bool
    numbers: Mapping[str, Number]
    """By metric."""
    record: RunRecord
    """Without rows, curves and signals: machine, packages and config are left."""


def stored_runs(folder: Path, *, newest_first: bool = False) -> Iterator[StoredRun]:
    """Yield the runs of a drawer; the next is read when it is asked for.

    Raises:
        RecordError: an entry cannot be read.
    """
    found = entries(folder)
    kept = [entry for entry in found if not entry.red]
    numbers = dict(zip(kept, periods(kept), strict=True))
    for entry in reversed(found) if newest_first else found:
        yield _stored_run(entry, numbers.get(entry))


def _stored_run(entry: Entry, period: int | None) -> StoredRun:
    document = entry.document()
    record = parse_record(document.get("record"), entry.path)
    context = context_of(document, entry.path)
    named = (context.commit if context else "") or str(record.git.get("sha") or "")
    commit = named if SHA.fullmatch(named) else ""
    return StoredRun(record, commit, context.verdict if context else "", period, entry.accepted)


def facts_of(run: StoredRun, gates: Sequence[MetricGate]) -> RunFacts:
    """Return what a history keeps of a run; `gates`: those of the newest run."""
    record = run.record
    small = record.model_copy(
        update={
            "stability": Stability(),
            "profiler": Profiler(),
            "rl": {},
            "curves": {},
            "alerts": [],
            "memory": type(record.memory)(),
            "exact": {"model": record.exact.get("model", {})},
        }
    )
    return RunFacts(
        record.run_id,
        run.commit,
        record.timestamp,
        run.verdict,
        run.period,
        run.accepted,
        numbers_of(record, gates),
        small,
    )
