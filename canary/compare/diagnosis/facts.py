"""Facts for the causes: a comparison, its two records, and values derived from them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from canary.compare.checks import SPEED
from canary.compare.diagnosis.batch_rows import BatchChange, batch_change
from canary.compare.diagnosis.changed_settings import SettingChange, setting_changes
from canary.compare.diagnosis.operators import OperatorDifferences, operator_differences
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.exact.inputs_stages import is_rollout, not_seen, total
from canary.compare.exact.lane import most_different, newest_looked
from canary.compare.exact.learning_stages import (
    APPLIED_GRADIENT,
    gradient_norms,
    loss_floor,
    losses,
)
from canary.compare.exact.rollout_stage import SIGNALS
from canary.compare.exact.sides import Sides, is_finite
from canary.compare.exact.stages import LEARNED_STAGES, STAGE_OF
from canary.compare.exact.tolerances import relative_difference, tolerance_for
from canary.compare.report import Check, Comparison, Difference, Records
from canary.compare.timing.phases import PhaseGrowth, StepGrowth, phase_growth
from canary.record.exact import Exact, Micro, Series, TokenCount
from canary.record.types import RunRecord

T = TypeVar("T")

NO_WORK = ("detach", "alias", "view", "zeros", "empty")
"""Operators with one of these in their name compute nothing."""
LEAST_VALUES = 6
"""So many values must be exact numbers of a narrow dtype to show it."""


@dataclass(frozen=True)
class Facts:
    """One comparison, as the causes see it."""

    report: Comparison
    current: Records
    baseline: Records
    source: SourceChanges = field(default_factory=SourceChanges)

    @cached_property
    def before(self) -> RunRecord:
        """Return the baseline's record with exact signals."""
        return newest_looked(self.baseline)

    @cached_property
    def now(self) -> RunRecord:
        """Return the current side's record with exact signals."""
        return most_different(self.current, self.before)

    def exact(self, read: Callable[[Exact], T]) -> tuple[T, T]:
        """Return one part of the exact signals, of (baseline, current)."""
        return read(self.before.exact), read(self.now.exact)

    def metric(self, name: str) -> tuple[Series, Series]:
        """Return a metric of the trainer for each step of the look; empty if not reported."""
        return self.exact(lambda exact: exact.get("trajectory", {}).get("rl", {}).get(name, []))

    def looked_batches(self) -> tuple[list[list[Micro]], list[list[Micro]]]:
        """Return the micro-batches of each step of both looks."""
        return self.exact(lambda exact: exact.get("batches", []))

    def unrecorded(self, stages: Sequence[str]) -> list[str]:
        """Return, in words, the stages that a side did not record."""
        return [
            LEARNED_STAGES[stage]
            for stage in stages
            if not all(STAGE_OF[stage].named_in(side.exact) for side in (self.before, self.now))
        ]

    def failed(self, *names: str) -> Check | None:
        """Return the first of these checks that failed or needs acceptance."""
        found = (self.report.find_check(name) for name in names)
        return next((check for check in found if check is not None and check.failed), None)

    def rose(self, name: str) -> Check | None:
        """Return a check whose count rose and failed or warned."""
        check = self.report.find_check(name)
        if check is None or not (check.failed or check.status == "warn"):
            return None
        return check if (check.delta or 0) > 0 else None

    def differences(self, stage: str) -> list[Difference]:
        """Return the differences of a stage."""
        return [d for d in self.report.differences if d.stage == stage]

    def difference(self, stage: str, signal: str) -> Difference | None:
        """Return the difference of one signal of a stage."""
        return next((d for d in self.differences(stage) if d.signal == signal), None)

    @cached_property
    def slower(self) -> Check | None:
        """Return the check that found more time or CPU time per step than noise explains."""
        found = (check for check in map(self.report.find_check, SPEED) if check is not None)
        loud = (check for check in found if check.status in ("fail", "warn"))
        return next((check for check in loud if (check.delta or 0) > 0), None)

    @cached_property
    def rollout(self) -> bool:
        """Return whether the trainer generates the text that it trains on."""
        return is_rollout(self.now)

    @cached_property
    def unseen(self) -> str:
        """Return in words what of the batches a side did not see; empty if all was seen."""
        return not_seen(self.before, self.now)

    @cached_property
    def entry(self) -> str | None:
        """Return the learning stage that differs first and affects the later ones.

        Dataset rows that the steps did not reach by then do not count. Nor do other micro-batches
        of the same rows if nothing follows.
        """
        found = [d.stage for d in self.report.differences if d.stage in LEARNED_STAGES]
        stages = [*dict.fromkeys(found)]
        if stages == ["batches"] and self.difference("batches", "micro_batches"):
            return None
        if stages[0:1] == ["data"] and stages[1:] and stages[1] != "batches":
            stages = stages[1:]
        return stages[0] if stages else None

    @cached_property
    def learning_unexamined(self) -> bool:
        """Return whether a side has no exact signals, so that no stage of learning can differ."""
        return not (self.before.exact and self.now.exact)

    @cached_property
    def learned_worse(self) -> bool:
        """Return whether a check of learning failed."""
        return any(check.failed and check.group == "stability" for check in self.report.checks)

    def exact_count(self, name: TokenCount) -> tuple[int, int]:
        """Return totals over the steps that both sides have; (0, 0) if a side did not count."""
        looks = self.looked_batches()
        was, now = (total(look[: min(map(len, looks))], name) for look in looks)
        return (0, 0) if was is None or now is None else (was, now)

    @cached_property
    def batches(self) -> BatchChange:
        """Return how the batches differ, row by row."""
        return batch_change(*self.looked_batches())

    def metric_moved(self, name: str, step: int = 1) -> bool:
        """Return whether a logged metric differs at a step by more than rounding."""
        before, after = self.metric(name)
        if min(len(before), len(after)) < step:
            return False
        was, now = before[step - 1], after[step - 1]
        scale = max((abs(v) for v in (*before, *after) if is_finite(v)), default=0.0)
        allowed = 100 * tolerance_for(self.now).at_step(step)
        return relative_difference(was, now, scale) > allowed

    def first_step(self, signal: Literal["loss", "grad_norm"]) -> int | None:
        """Return the first step, from 1, at which the series differs; None if none does."""
        found = {"loss": losses, "grad_norm": gradient_norms}[signal](Sides(self.before, self.now))
        return next((one.step for one in found if one.signal == signal), None)

    @cached_property
    def same_parameters_after_first_update(self) -> bool | None:
        """Return whether the parameters are bit-equal; None if not recorded."""
        before, after = self.exact(lambda exact: exact.get("first_update", {}).get("after_sha256"))
        return None if before is None or after is None else before == after

    @cached_property
    def rollout_signal(self) -> Difference | None:
        """Return the first rollout signal that differs, if nothing before it differs."""
        if self.entry == "rollout":
            return self.differences("rollout")[0]
        if self.entry != "trajectory":
            return None
        later = [d for d in self.differences("trajectory") if d.step is not None]
        first = min((d.step or 0 for d in later), default=0)
        # "entropy" is also the name of a trainer's metric.
        return next(
            (d for d in later if d.signal in SIGNALS and d.signal != "entropy" and d.step == first),
            None,
        )

    def signal(self, *names: str) -> Difference | None:
        """Return the first rollout signal that differs, if it is one of these."""
        found = self.rollout_signal
        return found if found is not None and found.signal in names else None

    @cached_property
    def rewards_read_other_data(self) -> bool:
        """Return whether scores differ first, and the dataset in columns that rewards may read."""
        other = self.difference("data", "dataset_sha256")
        return self.signal("scores") is not None and other is not None

    @cached_property
    def gradient_factor(self) -> float | None:
        """Return the factor by which the first gradient of every module group grew, or None."""
        before, after = self.exact(lambda e: e.get("first_gradient", {}).get("groups", {}))
        pairs = [
            (was, after[name])
            for name, was in before.items()
            if is_finite(was) and is_finite(after.get(name))
        ]
        largest = max((was for was, _ in pairs), default=0.0)
        factors = sorted(now / was for was, now in pairs if was > 1e-4 * largest)
        if not factors or factors[0] <= 0:
            return None
        middle = factors[len(factors) // 2]
        same = all(abs(factor / middle - 1) < 1e-3 for factor in factors)
        return middle if same and abs(middle - 1) > 2e-3 else None

    @cached_property
    def gradient_cut(self) -> Evidence | None:
        """Return evidence of a backward through less of the graph, or None.

        A step computes fewer matrix products in as many forward passes, and nothing more often.
        """
        was, now = self.forwards
        fewer = -self.more_calls("mm.")
        more = [row.name for row in self.operators.rows if (row.growth_calls or 0) > 0]
        others = [name for name in more if not any(part in name for part in NO_WORK)]
        if was is None or was != now or fewer <= 0 or others:
            return None
        words = f"{fewer:,.0f} fewer matrix products per step for equally many forward passes"
        return Evidence("operators", words, unit="calls")

    @cached_property
    def first_other_update(self) -> int | None:
        """Return the first update of step 1, from 1, whose loss differs, or None."""
        before, after = self.exact(lambda exact: exact.get("first_loss", {}).get("updates", []))
        allowed, floor = tolerance_for(self.now).trajectory, loss_floor(self.now)
        pairs = enumerate(zip(before, after, strict=False), start=1)
        return next((n for n, sides in pairs if relative_difference(*sides, floor) > allowed), None)

    @cached_property
    def unclipped(self) -> bool:
        """Return whether clipping of policy or values began or ended in step 1."""
        names = ("value_clip_ratio", "clip_ratio")
        pairs = ([next(iter(side), None) for side in self.metric(name)] for name in names)
        return any(None not in pair and (pair[0] == 0) != (pair[1] == 0) for pair in pairs)

    @cached_property
    def clipping(self) -> Difference | None:
        """Return the difference in clipping after an equal backward, if it is the first."""
        found = self.difference(self.entry or "", APPLIED_GRADIENT)
        loss = self.first_step("loss")
        return found if found is None or loss is None or loss > (found.step or 1) else None

    @cached_property
    def advantages_exchanged(self) -> bool:
        """Return whether step 1 of online RL has equal advantages in another order."""
        was, now = (
            [value for micro in next(iter(side), ()) for value in micro.get("advantages", [])]
            for side in self.looked_batches()
        )
        before, after = ([value for value in side if is_finite(value)] for side in (was, now))
        if not len(was) == len(now) == len(before) == len(after) or not was:
            return False
        near = 1e-3 * max(map(abs, before))
        placed, ordered = (
            any(abs(a - b) > near for a, b in zip(*sides, strict=True))
            for sides in ((before, after), (sorted(before), sorted(after)))
        )
        return placed and not ordered

    @cached_property
    def half_precision(self) -> str:
        """Return the dtype to which only the current losses or a metric are rounded, or ""."""
        tables = self.exact(_told_series)
        for dtype in ("bfloat16", "float16"):
            was, now = ({k: _is_of_dtype(v, dtype) for k, v in one.items()} for one in tables)
            if any(now[name] and was.get(name) is False for name in now):
                return dtype
        return ""

    @cached_property
    def reference_rounded(self) -> str:
        """Return the dtype to which the current side's reference is rounded, or "".

        It counts only if neither the policy nor the baseline's reference is rounded to it.
        """
        before, after = self.exact(lambda exact: exact.get("model", {}).get("rounded_to", {}))
        dtype = after.get("reference", "")
        return "" if dtype in (after.get("policy"), before.get("reference")) else dtype

    @cached_property
    def forwards(self) -> tuple[int | None, int | None]:
        """Return the forward passes per step; None if not counted."""
        return self.exact(lambda exact: exact.get("work", {}).get("forwards"))

    @cached_property
    def more_forwards(self) -> bool:
        """Return whether the forward passes per step rose by more than a twentieth."""
        was, now = (count or 0 for count in self.forwards)
        return was > 0 and now > 1.05 * was

    @cached_property
    def phases(self) -> StepGrowth | None:
        """Return the growth of a step's phases beyond a slower machine."""
        return phase_growth(self.current, self.baseline)

    def grown_phase(self, *names: str) -> PhaseGrowth | None:
        """Return the phase among these that grew most, if one stands out."""
        grown = self.phases.grown if self.phases else ()
        return next((phase for phase in grown if phase.phase in names), None)

    @cached_property
    def operators(self) -> OperatorDifferences:
        """Return the operators that differ."""
        return operator_differences(self.now, self.before)

    def more_calls(self, *parts: str) -> float:
        """Return how many more calls per step the operators with one of these in their name had."""
        return sum(
            row.growth_calls or 0.0
            for row in self.operators.rows
            if any(part in row.name for part in parts)
        )

    @cached_property
    def settings(self) -> tuple[SettingChange, ...]:
        """Return the settings that differ, in the config or only in the training."""
        return setting_changes(self.report.config_changes, self.before, self.now)


def _told_series(exact: Exact) -> dict[str, Series]:
    """Return the losses and each metric of the trainer."""
    trajectory, first = exact.get("trajectory", {}), exact.get("first_loss", {})
    losses = [*trajectory.get("losses", []), *first.get("micro_losses", [])]
    return {**trajectory.get("rl", {}), "losses": losses}


def _is_of_dtype(values: Sequence[float | None], dtype: str) -> bool | None:
    """Return whether `bfloat16` or `float16` holds all values; None if too few differ to tell."""
    fractions = {v for v in values if is_finite(v) and v != round(v)}
    if len(fractions) < LEAST_VALUES:
        return None
    kind, rest = ("<e", b"") if dtype == "float16" else ("<f", b"\0\0")
    try:
        packed = [(struct.pack(kind, value), value) for value in fractions]
    except OverflowError:
        return False
    return all(
        struct.unpack(kind, bits)[0] == value and bits.startswith(rest) for bits, value in packed
    )
