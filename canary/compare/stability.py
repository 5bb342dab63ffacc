"""Stability: does the training still train. Trends over the steps, with absolute limits and the
baseline's own range."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from canary.compare.checks import CHECKS, check_of
from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.metric_trends import metric_checks
from canary.compare.report import Check, CheckStatus
from canary.compare.thresholds import Thresholds
from canary.record.end_loss import TAIL_SHARE, finite, tail_mean
from canary.record.jsonio import shown
from canary.record.types import RunRecord

MIN_LOSSES = 20
USUAL_RISE = 1.1
"""A loss that rises by no more than this over the baseline's own rise did not diverge anew."""


def stability_checks(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> list[Check]:
    """All checks of the lane; the worst record of the current side speaks for it."""
    found = [
        _bad_steps("nan_steps", current, baseline, thresholds.max_nan_steps),
        _bad_steps("inf_steps", current, baseline, thresholds.max_inf_steps),
        _divergence(current, baseline, thresholds),
        _final_loss(current, baseline, thresholds),
        _gradient_explosion(current, baseline, thresholds),
    ]
    return found + metric_checks(current, baseline, thresholds)


BadSteps = Literal["nan_steps", "inf_steps"]


def bad_steps(record: RunRecord, name: BadSteps) -> int | None:
    """Steps of a run whose loss was none; None where it told no losses."""
    count: int = getattr(record.stability, name)
    return count if count or record.stability.loss_values else None


def _bad_steps(
    name: BadSteps,
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    limit: int,
) -> Check:
    word = "NaN" if name == "nan_steps" else "Inf"
    if all(bad_steps(record, name) is None for record in current):
        return check_of(name, "skip", "the loop told no losses")
    worst = max(current, key=lambda record: getattr(record.stability, name))
    count = int(getattr(worst.stability, name))
    counts = [bad_steps(record, name) for record in baseline]
    before = max((known for known in counts if known is not None), default=None)
    places = worst.stability.nan_at if name == "nan_steps" else worst.stability.inf_at
    where = f", first at step {places[0]}" if places else ""
    words = f"{count} step{'' if count == 1 else 's'} with a loss of {word}{where}"
    return replace(
        check_of(name, "fail" if count > limit else "pass", words),
        baseline=before,
        current=count,
        unit="steps",
        delta=float(count - (before or 0)),
        threshold=float(limit),
        scale="steps",
    )


def _rises(records: Sequence[RunRecord]) -> list[float]:
    """The last tenth of the losses over the first; of losses that cancel to zero there is none."""
    rises = []
    for record in records:
        losses = record.stability.loss_values
        kept = finite(losses)
        if losses and not math.isfinite(losses[-1]):
            rises.append(math.inf)
        elif len(kept) >= MIN_LOSSES and not is_rollout(record):
            tenth = max(1, len(kept) // TAIL_SHARE)
            start, end = statistics.fmean(kept[:tenth]), statistics.fmean(kept[-tenth:])
            if start > 1e-3:
                rises.append(end / start)
    return rises


def _divergence(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Check:
    """A loss that rose from the first tenth of the steps to the last, and not as it always does."""
    rises, usual = _rises(current), max(_rises(baseline), default=0.0)
    if not rises:
        words = f"needs {MIN_LOSSES} losses that start above zero"
        return check_of("loss_divergence", "skip", words)
    rise = max(rises)
    known = usual if 0 < usual < math.inf else None
    over = rise > thresholds.max_loss_rise
    failed = over and (math.isinf(rise) or rise > USUAL_RISE * usual)
    words = (
        "the last loss is not finite" if math.isinf(rise) else f"last tenth over first {rise:.3g}"
    )
    if failed:
        words += f", over {thresholds.max_loss_rise:g}: the loss diverged"
    elif over:
        words += f", over {thresholds.max_loss_rise:g}, as in the baseline"
    return replace(
        check_of("loss_divergence", "fail" if failed else "warn" if over else "pass", words),
        baseline=known,
        current=rise if math.isfinite(rise) else _first_broken(current),
        unit="x",
        delta=rise - (known or 1.0),
        delta_pct=100 * (rise / known - 1) if known and math.isfinite(rise) else None,
        threshold=thresholds.max_loss_rise,
        scale="x",
    )


def _final_loss(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Check:
    name, words = "final_loss", CHECKS["final_loss"].title
    if any(is_rollout(record) for record in current):
        return check_of(name, "skip", "a policy objective cancels to zero")
    after = _worst([tail_mean(r.stability.loss_values) for r in current])
    before = _middle([tail_mean(r.stability.loss_values) for r in baseline])
    broken = _first_broken(current)
    if broken is not None and before is not None:
        message = f"{words} {before:.4g} -> {shown(broken)}: not finite at the end"
        return replace(
            check_of(name, "fail", message),
            baseline=before,
            current=broken,
            delta=math.inf,
            threshold=thresholds.max_final_loss_increase_pct,
        )
    if before is None or after is None or before <= 1e-6:
        return check_of(name, "skip", "no finite losses above zero to compare")
    change = 100 * (after / before - 1)
    status: CheckStatus = "pass"
    message = f"{words} {before:.4g} -> {after:.4g}"
    if change > thresholds.max_final_loss_increase_pct:
        status, message = "fail", f"{message}: learns worse"
    elif change < -thresholds.max_final_loss_drop_pct:
        status = "warn"
        message += ": suspiciously good; look for labels that leaked or sequences packed together"
    return replace(
        check_of(name, status, message),
        baseline=before,
        current=after,
        delta=after - before,
        delta_pct=change,
        threshold=thresholds.max_final_loss_increase_pct,
    )


def _ends_broken(record: RunRecord) -> str | None:
    """The name of what a run's last loss is, where it is not finite."""
    last = record.stability.loss_values[-1:]
    return None if all(map(math.isfinite, last)) else str(last[0])


def _first_broken(records: Sequence[RunRecord]) -> str | None:
    return next((found for r in records if (found := _ends_broken(r)) is not None), None)


def _worst(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return max(found) if found else None


def _middle(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def _largest_gradient(record: RunRecord) -> float | None:
    values = [v for v in record.stability.grad_norm_values if v is not None]
    if any(not math.isfinite(v) for v in values):
        return math.inf
    return max(values) if values else None


def _gradient_explosion(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Check:
    name = "gradient_explosion"
    after = _worst([_largest_gradient(record) for record in current])
    before = _worst([_largest_gradient(record) for record in baseline])
    if after is None or not before or not math.isfinite(before):
        return check_of(name, "skip", "no gradient norms to compare")
    ratio = after / before
    failed = ratio > thresholds.max_grad_norm_ratio
    told: float | str = after
    if not math.isfinite(after):
        norms = (norm for record in current for norm in record.stability.grad_norm_values)
        told = next(str(norm) for norm in norms if norm is not None and not math.isfinite(norm))
    found = shown(told) if isinstance(told, str) else f"{told:.4g}"
    words = f"{CHECKS[name].title} {before:.4g} -> {found}"
    words += ", far outside the baseline's range" if failed else ""
    return replace(
        check_of(name, "fail" if failed else "pass", words),
        baseline=before,
        current=told,
        delta=after - before if math.isfinite(after) else math.inf,
        delta_pct=100 * (ratio - 1) if math.isfinite(ratio) else None,
        threshold=thresholds.max_grad_norm_ratio,
        scale="x",
    )
