"""The canary's golden files: values with their tolerances, the history of refreshes, and a record.

The record is of the run behind the values. With it, a later difference can be explained.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from canary.errors import UsageError
from canary.golden.formats.schema import NotThis, Schema, by_step
from canary.golden.model import Entry, Golden, GoldenMetric, Statistic
from canary.golden.tolerance import parse_tolerance
from canary.record import jsonio
from canary.record.section import Section
from canary.record.types import (
    Host,
    Memory,
    Perf,
    Profiler,
    RunRecord,
)

FORMAT: Literal["rlhf-canary golden"] = "rlhf-canary golden"
MOST_ENTRIES = 1_000


class _Metric(Section):
    tolerance: str
    compared: Statistic = "step"
    values: dict[str, Any]
    """By step."""


class _Document(Section):
    format: Literal["rlhf-canary golden"] = FORMAT
    schema_version: Literal[1] = 1
    metrics: dict[str, _Metric]
    history: list[Entry] = Field(default_factory=list, max_length=MOST_ENTRIES)
    record: RunRecord | None = None


def without_times(record: RunRecord) -> RunRecord:
    """Return the record with what can explain a changed value: exact signals, config, packages and
    commit. Times and memory are left out, because a golden file judges neither."""
    return record.model_copy(
        update={
            "launches": [one for one in record.launches if one.kind == "probe"],
            "perf": Perf(),
            "profiler": Profiler(),
            "memory": Memory(),
            "host": Host(),
            "phases": {},
            "rl": {},
            "curves": {},
            "alerts": [],
            "gpu_health": {},
            "bottlenecks": None,
            "bottlenecks_not_judged": {},
            "unmeasured": {},
            "owner": None,
        }
    )


def _recognizes(document: Any) -> bool:
    return bool(document.get("format") == FORMAT)


def _read(document: dict[str, Any]) -> Golden:
    try:
        jsonio.check_bounds({**document, "metrics": None})
        whole = _Document.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])[:200]
        raise NotThis(f"{key}: {first['msg']}") from error
    metrics = {}
    for name, one in whole.metrics.items():
        try:
            tolerance = parse_tolerance(one.tolerance)
        except UsageError as error:
            raise NotThis(f"metrics.{name[:200]}.tolerance: {error}") from error
        metrics[name] = GoldenMetric(by_step(one.values, name), tolerance, one.compared)
    return Golden("canary", metrics, whole.record, tuple(whole.history))


def _write(golden: Golden) -> str:
    document = {
        "format": FORMAT,
        "schema_version": 1,
        "metrics": {
            name: {
                "tolerance": str(one.tolerance),
                "compared": one.statistic,
                "values": {str(step): value for step, value in one.series.at().items()},
            }
            for name, one in golden.metrics.items()
        },
        "history": [
            entry.model_dump(exclude_defaults=True) for entry in golden.history[-MOST_ENTRIES:]
        ],
    }
    text = jsonio.dumps(document, indent=1)
    if golden.record is not None:
        # On one line: in a diff the values matter.
        record = jsonio.dumps(without_times(golden.record).model_dump())
        text = f'{text[:-2]},\n "record": {record}\n}}'
    return text + "\n"


SCHEMA = Schema(
    "canary",
    "",
    _recognizes,
    _read,
    _write,
    any_tolerance=True,
)
