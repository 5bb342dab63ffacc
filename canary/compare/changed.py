"""What changed between two sides, the likeliest cause first: keys, and places. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from canary.compare.causes.settings import FIRST_EFFECT
from canary.compare.commands import setting_name
from canary.compare.diagnosis.changed_settings import category_of
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.diagnosis.suspects import RegressionCategory
from canary.compare.exact.lane import ExactResult, most_different, newest_looked
from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.places import changed_places
from canary.compare.report import Check, KeyChange, Places
from canary.record.types import RunRecord

COSTLY = re.compile(
    r"(max|min)_.*(length|tokens)|.*batch_size|gradient_accumulation.*|num_generations|packing.*"
    r"|padding.*|pad_to_multiple_of|optim|use_peft|lora_r|r|target_modules|model_name.*"
)
"""Names of settings that learn otherwise and also change the time and memory of a step."""


def likeliest_first(changes: Sequence[KeyChange], checks: Sequence[Check]) -> tuple[KeyChange, ...]:
    """Return changed keys, those first that can cause what the checks found: a step that costs
    more, else the first stage of learning that differs."""
    loud = [check for check in checks if check.status == "fail"]
    loud = loud or [check for check in checks if check.failed]
    costs = any(check.group in ("memory", "performance") for check in loud)
    stage = None if costs else next((c.name for c in loud if c.name in LEARNED_STAGES), None)

    def acts(change: KeyChange) -> bool:
        name = setting_name(change.key)
        stages = FIRST_EFFECT.get(category_of(name) or RegressionCategory.CONFIG, ())
        return stage in stages or (costs and COSTLY.fullmatch(name) is not None)

    return tuple(sorted(changes, key=lambda change: not acts(change)))


def places_of(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    exact: ExactResult,
    source: SourceChanges | None,
) -> Places:
    """Return the places that can have caused what the exact lane found."""
    before = newest_looked(good)
    settings = (exact.config_changes, exact.environment_changes)
    return changed_places(before, most_different(now, before), source, exact.differences, *settings)
