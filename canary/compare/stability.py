"""Check whether training still works: trends over the steps, metrics that trainers log, and alerts
that only the current side raised: these warn and never fail."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from canary.baseline.comparability import look_alone
from canary.compare.checks import CHECKS, change, check_of
from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.report import Check, CheckStatus, Moved, RaisedAlert, Records
from canary.compare.thresholds import Thresholds
from canary.errors import counted
from canary.record.alert import WORST_FIRST
from canary.record.digits import significant
from canary.record.end_loss import TAIL_SHARE, finite, tail_mean
from canary.record.jsonio import number, shown
from canary.record.metric_names import QUANTITIES, Quantity
from canary.record.summary import untimed_steps
from canary.record.types import RunRecord

MIN_LOSSES = 20
USUAL_RISE = 1.1
"""A rise up to this many times the baseline's rise is not a new divergence."""
KL_FLOOR = 0.01
"""A smaller KL is never a blow-up."""
SUSPICIOUS = 2.0
"""A rise of reward or margin above this many times the allowed drop is a warning."""
NAMED_ALERTS = 3

BadSteps = Literal["nan_steps", "inf_steps"]


def stability_checks(current: Records, baseline: Records, thresholds: Thresholds) -> list[Check]:
    """Return all checks of stability; the worst current record decides. Of the quantities that
    trainers log, those that both sides log, in the order of `Thresholds`."""
    limited = {quantity.limit: quantity for quantity in QUANTITIES.values() if quantity.limit}
    logged = (
        _logged(limited[key], current, baseline, float(getattr(thresholds, key)))
        for key in Thresholds.model_fields
        if key in limited
    )
    return [
        _steps_trained(current, baseline, thresholds.max_steps_lost_pct),
        _bad_steps("nan_steps", current, baseline, thresholds.max_nan_steps),
        _bad_steps("inf_steps", current, baseline, thresholds.max_inf_steps),
        _divergence(current, baseline, thresholds.max_loss_rise),
        _final_loss(current, baseline, thresholds),
        _gradient_explosion(current, baseline, thresholds.max_grad_norm_ratio),
        *(check for check in logged if check is not None),
    ]


def _fewest_steps(records: Records) -> int | None:
    """Return the steps of the shortest launch; None without one."""
    launches = (launch for record in records for launch in record.launches)
    counts = (launch.steps for launch in launches if launch.status == "completed")
    return min(counts, default=None)


def _steps_trained(current: Records, baseline: Records, limit: float) -> Check:
    """Fail if a training that ended without an error lost many of the baseline's steps."""
    name = "steps_trained"
    before, after = _fewest_steps(baseline), _fewest_steps(current)
    if not before or after is None:
        return check_of(name, "skip", "no launches to compare")
    lost = 100 * (1 - after / before)
    words = f"{CHECKS[name].title} {before} -> {after}"
    status: CheckStatus = "fail" if lost > limit else "warn" if lost > 0 else "pass"
    if lost > 0:
        words += ": the training ended earlier" + (f", limit {limit:g}%" if lost > limit else "")
    numbers = change(before, after)
    return check_of(name, status, words, **numbers, unit="steps", threshold=-limit)


def bad_steps(record: RunRecord, name: BadSteps) -> int | None:
    """Return how many steps had a NaN (or infinite) loss; None if no losses were recorded."""
    count: int = getattr(record.stability, name)
    return count if count or record.stability.loss_values else None


def _bad_steps(name: BadSteps, current: Records, baseline: Records, limit: int) -> Check:
    if all(bad_steps(record, name) is None for record in current):
        return check_of(name, "skip", "no losses were recorded")
    worst = max(current, key=lambda record: bad_steps(record, name) or 0)
    count = bad_steps(worst, name) or 0
    before = largest(bad_steps(record, name) for record in baseline)
    kind, steps = "a NaN", worst.stability.nan_at
    if name == "inf_steps":
        kind, steps = "an infinite", worst.stability.inf_at
    first = f", first at step {steps[0]}" if steps else ""
    return check_of(
        name,
        "fail" if count > limit else "pass",
        f"{counted(count, 'step')} with {kind} loss{first}",
        baseline=before,
        current=count,
        unit="steps",
        delta=float(count - (before or 0)),
        threshold=float(limit),
        scale="steps",
    )


def _rises(records: Records) -> list[float]:
    """Return last tenth / first tenth of each record's losses, if they do not cancel to zero."""
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


def _divergence(current: Records, baseline: Records, limit: float) -> Check:
    """Fail if the loss rises from the first tenth to the last, and more than on the baseline."""
    rises, usual = _rises(current), max(_rises(baseline), default=0.0)
    if not rises:
        words = f"needs at least {MIN_LOSSES} losses, and a first tenth above zero"
        return check_of("loss_divergence", "skip", words)
    rise = max(rises)
    known = usual if 0 < usual < math.inf else None
    over = rise > limit
    failed = over and (math.isinf(rise) or rise > USUAL_RISE * usual)
    words = f"loss of the last tenth is {rise:.3g} times the first tenth"
    if math.isinf(rise):
        words = "the loss diverged: the last loss is not finite"
    elif failed:
        words = f"the loss diverged: {words}, limit {limit:g}"
    elif over:
        words += f", limit {limit:g}, as on the baseline"
    return check_of(
        "loss_divergence",
        "fail" if failed else "warn" if over else "pass",
        words,
        baseline=known,
        current=rise if math.isfinite(rise) else _broken_end(current),
        unit="x",
        delta=rise - (known or 1.0),
        delta_pct=100 * (rise / known - 1) if known and math.isfinite(rise) else None,
        threshold=limit,
        scale="x",
    )


def _final_loss(current: Records, baseline: Records, thresholds: Thresholds) -> Check:
    name, limit = "final_loss", thresholds.max_final_loss_increase_pct
    if any(is_rollout(record) for record in current):
        return check_of(name, "skip", "a policy loss is about zero by design")
    after = largest(tail_mean(r.stability.loss_values) for r in current)
    means = (tail_mean(r.stability.loss_values) for r in baseline)
    known = [mean for mean in means if mean is not None]
    before, broken = statistics.median(known) if known else None, _broken_end(current)
    if before is None or (broken is None and (after is None or before <= 1e-6)):
        return check_of(name, "skip", "no finite losses above zero to compare")
    words = f"{CHECKS[name].title} {significant(before)} -> "
    if broken is not None or after is None:
        words += f"{shown(broken or '')}: not finite at the end"
        numbers = Moved(baseline=before, current=broken, delta=math.inf, delta_pct=None)
        return check_of(name, "fail", words, **numbers, threshold=limit)
    rise = 100 * (after / before - 1)
    status: CheckStatus = "pass"
    words += significant(after)
    if rise > limit:
        status, words = "fail", f"{words}: the model learns worse"
    elif rise < -thresholds.max_final_loss_drop_pct:
        status = "warn"
        words += ": suspiciously good; check for leaked labels or packed sequences"
    return check_of(name, status, words, **change(before, after), threshold=limit)


def _broken_end(records: Records) -> str | None:
    """Return the first last loss that is not finite, as text."""
    ends = (loss for record in records for loss in record.stability.loss_values[-1:])
    return next((str(loss) for loss in ends if not math.isfinite(loss)), None)


def largest(values: Iterable[float | None]) -> float | None:
    """Return the largest known value; None without one."""
    return max((value for value in values if value is not None), default=None)


def _gradient_explosion(current: Records, baseline: Records, limit: float) -> Check:
    name = "gradient_explosion"
    norms = [
        [norm for record in side for norm in record.stability.grad_norm_values if norm is not None]
        for side in (baseline, current)
    ]
    before, after = (largest(n if math.isfinite(n) else math.inf for n in side) for side in norms)
    if after is None or not before or not math.isfinite(before):
        return check_of(name, "skip", "no gradient norms to compare")
    failed = after / before > limit
    found, numbers = significant(after), change(before, after)
    if not math.isfinite(after):
        broken = next(str(norm) for norm in norms[1] if not math.isfinite(norm))
        found = shown(broken)
        numbers = Moved(baseline=before, current=broken, delta=math.inf, delta_pct=None)
    words = f"{CHECKS[name].title} {significant(before)} -> {found}"
    words += f", limit {limit:g} times the baseline" if failed else ""
    status: CheckStatus = "fail" if failed else "pass"
    return check_of(name, status, words, **numbers, threshold=limit, scale="x")


def _mean(records: Records, name: str, part: str = "mean") -> float | None:
    """Return the mean over the records where `part` of the metric's distribution is finite."""
    logged = [float(getattr(record.rl[name], part)) for record in records if name in record.rl]
    values = [value for value in logged if math.isfinite(value)]
    return statistics.fmean(values) if values else None


def _logged(quantity: Quantity, current: Records, baseline: Records, limit: float) -> Check | None:
    """Return the check of a quantity; None if a side does not log it. It fails if the current mean
    is not finite, and is skipped if the sides log it under different names."""
    for record in current:
        for metric in quantity.names:
            found = record.rl.get(metric)
            if found is not None and found.count and not math.isfinite(found.mean):
                words = f"mean {metric} is not finite"
                return check_of(quantity.name, "fail", words, delta=1.0)
    before, after = (
        {name: mean for name in quantity.names if (mean := _mean(side, name)) is not None}
        for side in (baseline, current)
    )
    if not before or not after:
        return None
    metric = next((name for name in before if name in after), "")
    if not metric:
        was, now = next(iter(before)), next(iter(after))
        words = f"the baseline logs {was}, the current side logs {now}: the scales may differ"
        return check_of(quantity.name, "skip", words)
    return _judged(quantity, metric, (before[metric], after[metric]), (baseline, current), limit)


def _judged(
    quantity: Quantity,
    metric: str,
    means: tuple[float, float],
    sides: tuple[Records, Records],
    limit: float,
) -> Check:
    """Fail if the mean rises to more than `limit` times the baseline's, or drops by more than that.
    A drop is in percent, or in standard deviations of the baseline. `means` and `sides`: of the
    baseline, then of the current side."""
    name, (before, after) = quantity.name, means
    scale = {"ratio": "x", "std": "std", "pct": "%"}[quantity.limit.rpartition("_")[2]]
    unit = max(before, KL_FLOOR) if scale == "x" else abs(before) / 100
    if scale == "std":
        unit = _mean(sides[0], metric, "std") or 0.0
    if unit < 1e-9:
        return check_of(name, "skip", f"the baseline's {name} does not vary")
    worse = after / unit if scale == "x" else (before - after) / unit
    status: CheckStatus = "fail" if worse > limit else "pass"
    words = f"{CHECKS[name].title} {significant(before)} -> {significant(after)}"
    words += _steps_left_out(sides)
    if worse > limit:
        words += ": blow-up" if scale == "x" else f", a drop of {worse:.3g} {scale}: collapse"
    elif quantity.too_good and -worse > SUSPICIOUS * limit:
        status = "warn"
        words += f", a rise of {-worse:.3g} {scale}: suspiciously good; check for leaks or hacking"
    numbers = change(before, after)
    return check_of(
        name, status, words, **numbers, unit=quantity.unit, threshold=limit, scale=scale
    )


def _steps_left_out(sides: tuple[Records, Records]) -> str:
    """Say which steps a mean leaves out: a gate's mean may have all."""
    records = [*sides[0], *sides[1]]
    counts = {untimed_steps(record) for record in records}
    count = counts.pop() if len(counts) == 1 else 0
    if count < 1:
        return ""
    each = " of each launch" if any(len(record.launches) > 1 for record in records) else ""
    return f" without the first {f'{count} steps' if count > 1 else 'step'}{each}"


def alerts_of(records: Records) -> tuple[RaisedAlert, ...]:
    """Return one alert per type with the count of the type, worst first, then earliest."""
    found: dict[str, RaisedAlert] = {}
    for record in records:
        for alert in sorted(record.alerts, key=lambda one: _order(one["severity"], one["step"])):
            raised = RaisedAlert(
                alert["severity"],
                alert["category"],
                alert["type"],
                alert["message"],
                alert["step"],
                number(alert.get("value")),
                number(alert.get("threshold")),
            )
            kept = found.get(raised.type)
            found[raised.type] = raised if kept is None else replace(kept, count=kept.count + 1)
    return tuple(sorted(found.values(), key=lambda one: _order(one.severity, one.step)))


def new_alerts(current: Records, baseline: Records) -> list[RaisedAlert]:
    """Return the current alerts of types that the baseline did not raise, one per type."""
    known = {alert["type"] for record in baseline for alert in record.alerts}
    return [alert for alert in alerts_of(current) if alert.type not in known]


def _order(severity: str, step: int) -> tuple[int, int]:
    return WORST_FIRST.index(severity), step


def alert_checks(current: Records, baseline: Records) -> list[Check]:
    """Return the check `alerts`; an empty list if detectors ran on neither side."""
    if all(record.alert_summary is None for record in (*current, *baseline)):
        return []
    watched_before, watched = (
        any(r.alert_summary is not None and not look_alone(r) for r in side)
        for side in (baseline, current)
    )
    if not watched:  # They do not run in a look.
        return [check_of("alerts", "skip", "no alert detectors ran on the current side")]
    before, after, new = alerts_of(baseline), alerts_of(current), new_alerts(current, baseline)
    words = f"{counted(len(after), 'alert type')}, also in the baseline" if after else "no alerts"
    if new:
        words = "; ".join(map(_alert_words, new[:NAMED_ALERTS]))
        words += f"; {len(new) - NAMED_ALERTS} more" if len(new) > NAMED_ALERTS else ""
        words += "" if watched_before else " (no alert detectors ran on the baseline)"
    found = check_of(
        "alerts",
        "warn" if new else "pass",
        words,
        baseline=len(before),
        current=len(after),
        unit="types",
        delta=float(len(new)),
        threshold=0.0,
        scale="types",
    )
    return [found]


def _alert_words(alert: RaisedAlert) -> str:
    at = f"{alert.type} ({alert.severity}) at step {alert.step}"
    return at if alert.value is None else f"{at}, value {alert.value:.4g}"
