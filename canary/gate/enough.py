"""Whether a run proves as much as the base branch's config requires."""

from __future__ import annotations

from collections.abc import Sequence

from canary.config.load import LoadedConfig
from canary.config.spans import WARMUP
from canary.gate.base_config import AT_LEAST, AT_MOST
from canary.record.types import RunRecord


def fewer_steps(records: Sequence[RunRecord], base: LoadedConfig | None) -> str:
    """Return why the runs prove less than the base branch requires; empty if they prove enough."""
    for record in records if base else ():
        assert base is not None
        if other := _imported_otherwise(record, base):
            return other
        for key in AT_LEAST:
            asked, took = getattr(base.config, key), record.config.get(key)
            if asked is None:
                continue  # a user's command trains as long as it wants
            if not isinstance(took, int):
                return (
                    f"run {record.run_id} has {key} {took!r}, which is not a number of steps; "
                    "train again"
                )
            if took < asked:
                return (
                    f"run {record.run_id} has {key} {took}, the base branch's config requires "
                    f"{asked}; change it there first"
                )
        for key in AT_MOST:
            asked, took = getattr(base.config, key), record.config.get(key)
            asked = WARMUP if asked is None else asked
            if not isinstance(took, int) or took > asked:
                return (
                    f"run {record.run_id} has {key} {took!r}, the base branch's config allows "
                    f"{asked}; change it there first"
                )
        bare = record.status == "completed" and not record.exact
        if base.config.look_steps and bare:
            reason = record.unmeasured.get("exact", "it has no look")
            return f"run {record.run_id} has no exact signals: {reason}"
        done = len(record.stability.loss_values)
        if record.source is not None:  # its source may have no loss
            done = max(done, *(launch.steps for launch in record.launches), 0)
        if record.status == "completed" and done < (base.config.max_steps or 1):
            return f"run {record.run_id} is marked completed after only {done} steps; train again"
    return ""


def _imported_otherwise(record: RunRecord, base: LoadedConfig) -> str:
    """Return an error if a completed run was not imported as the base branch says."""
    if record.status != "completed":
        return ""
    section = base.config.imports
    asked = None if section is None else section.model_dump()
    if (record.source is None) == (section is None) and record.config.get("import") == asked:
        return ""
    if section is None:
        return f"run {record.run_id} was imported, the base branch's config has no `import`"
    return (
        f"run {record.run_id} was not read as `import` in the base branch's config says; "
        "change it there first"
    )
