"""Write the JSON document of a history's trends: one object of strict JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from canary.report.document import json_lines
from canary.trends.model import HistoryTrends, Series

HISTORY_VERSION = 1


def history_json(found: Sequence[HistoryTrends]) -> str:
    """Return the document as text that ends with one line break."""
    drawers = [_drawer(one) for one in found]
    return json_lines({"schema_version": HISTORY_VERSION, "histories": drawers})


def _drawer(found: HistoryTrends) -> dict[str, Any]:
    return {
        "canary": found.canary,
        "machine": found.machine,
        "notes": list(found.notes),
        "machine_changes": [
            {"place": place, "changes": [_change(change) for change in changes]}
            for place, changes in found.machine_changes
        ],
        "series": [_series(series) for series in found.series],
    }


def _change(change: Any) -> dict[str, Any]:
    kept = asdict(change)
    del kept["runs_before"]  # Only a change of a series has it.
    return kept


def _series(series: Series) -> dict[str, Any]:
    """Return the model as it is, and the newest value."""
    values = [point.value for point in series.points if point.value is not None]
    whole = asdict(series)
    return {
        "metric": whole.pop("metric"),
        "title": whole.pop("title"),
        "newest": values[-1] if values else None,
        **whole,
    }
