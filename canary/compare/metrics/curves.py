"""Find the curve that a gate is about, under the canary's name or the name in the source. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from canary.errors import nearest
from canary.record.curves import ROW_METRICS, Curve, gated_metrics
from canary.record.types import RunRecord


def curve_in(record: RunRecord, name: str) -> Curve | None:
    """Return a record's curve of a metric, by either name; None without a value."""
    for key in (name, own_name(record, name)):
        curve = record.curves.get(key)
        if curve is not None and curve.steps:
            return curve
    return None


def own_name(record: RunRecord, name: str) -> str:
    """Return the canary's name for a metric, given any of its names."""
    names = record.source.names if record.source is not None else {}
    return next((own for own, theirs in names.items() if theirs == name), name)


def known_names(records: Iterable[RunRecord]) -> list[str]:
    """Return all names of the metrics that the records have a curve of."""
    found: dict[str, None] = {}
    for record in records:
        names = record.source.names if record.source is not None else {}
        for key in record.curves:
            found[key] = None
            if key in names:
                found[names[key]] = None
    return list(found)


def was_logged(records: Iterable[RunRecord], name: str) -> bool:
    """Whether a run had the metric, although its record keeps no curve of it."""
    return any(_was_logged(record, name) for record in records)


def _was_logged(record: RunRecord, name: str) -> bool:
    names = {name, own_name(record, name)}
    if names & record.rl.keys():
        return True
    # These stand in no list. An import, and a run with a gate on one, would have its curve.
    kept = record.source is not None or names & set(gated_metrics(record.config))
    return not kept and not names.isdisjoint(ROW_METRICS)


def nearest_name(records: Sequence[RunRecord], name: str) -> str:
    """Return the end of a sentence that names the most similar metric; empty without one."""
    logged = {metric for record in records for metric in record.rl}
    near = nearest(name, [*known_names(records), *sorted(logged), *ROW_METRICS])
    return f" (did you mean '{near}'?)" if near is not None and near != name else ""
