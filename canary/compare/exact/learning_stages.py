"""Stages 6 to 9 of the exact lane: first loss, first gradient, first update, trajectory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.exact.micro_batches import cut_otherwise
from canary.compare.exact.tolerances import Tolerance, relative_difference
from canary.compare.report import Difference
from canary.record.jsonio import number, shown
from canary.record.types import RunRecord

ORDER = {"first_loss": 6, "first_gradient": 7, "first_update": 8, "trajectory": 9}

TOLD_ELSEWHERE = ("num_tokens", "loss", "explained_variance")
"""Metrics of a trainer's log whose difference is that of the batches, of the raw loss, or of a
rollout's values and returns (of which a quotient of small variances shows the rounding)."""
METRIC_FACTOR = 100.0
"""Metrics are means over few tokens, differences of large sums: their tolerance is that of the
loss, so many times, of their largest value."""
KL_FLOOR = 0.01
"""A KL is a difference of log-probabilities of order one and more: below this their rounding shows
(5e-7 moved with the attention kernel, at a KL of 1e-3)."""
GRADIENT_NORM_FACTOR = 10.0
VANISHING = 0.05
"""Of the largest gradient norm of a rollout trainer: where every group earned the same, what is
left of the gradient is rounding, and has no scale of its own."""


def loss_floor(record: RunRecord) -> float:
    """Losses of policy objectives are sums that cancel to zero: they are compared on a scale of 1;
    those of the others on their own, down to 0.01."""
    return 1.0 if is_rollout(record) else 0.01


def first_loss_differences(
    baseline: RunRecord, current: RunRecord, tolerance: Tolerance
) -> list[Difference]:
    """The raw loss of step 1, and of its micro-batches where both sides have the same ones: what
    is learned is the whole step's."""
    before, after = (side.exact.get("first_loss", {}) for side in (baseline, current))
    floor = loss_floor(current)
    found = []
    size = relative_difference(number(before.get("loss")), number(after.get("loss")), floor)
    if size > tolerance.first_loss:
        found.append(_loss_difference("loss", before.get("loss"), after.get("loss"), floor))
    was, now = before.get("micro_losses") or [], after.get("micro_losses") or []
    worst = None if _cut_in(baseline, current, 1) else _worst(was, now, floor)
    if not found and worst is not None and worst[1] > tolerance.first_loss:
        place, _ = worst
        words = f"loss of micro-batch {place + 1}"
        found.append(_loss_difference("micro_losses", was[place], now[place], floor, words))
    return found


def _cut_in(baseline: RunRecord, current: RunRecord, steps: int) -> bool:
    """Whether one of the first steps is cut into other micro-batches."""
    before, after = (side.exact.get("batches", [])[:steps] for side in (baseline, current))
    return any(cut_otherwise(was, now) for was, now in zip(before, after, strict=False))


def _loss_difference(
    signal: str, was: Any, now: Any, floor: float, words: str = "loss"
) -> Difference:
    """Of losses compared on a scale of at least `floor`."""
    relative, scale = _of_baseline(was, now, floor)
    return Difference(
        ORDER["first_loss"],
        "first_loss",
        signal,
        was,
        now,
        relative=relative,
        scale=scale,
        detail=f"{words} {_show(was)} -> {_show(now)} ({_share(was, now, relative, scale)})",
        learned=True,
    )


def first_gradient_differences(
    baseline: RunRecord, current: RunRecord, tolerance: Tolerance
) -> list[Difference]:
    """Gradient norm of step 1 before clipping, in all and a module group at a time."""
    before, after = (side.exact.get("first_gradient", {}) for side in (baseline, current))
    was, now = before.get("groups", {}), after.get("groups", {})
    total = max(abs(float(before.get("total") or 0)), abs(float(after.get("total") or 0)))
    floor = 1e-3 * total
    differing = {
        name: relative_difference(was.get(name), now.get(name), floor)
        for name in dict.fromkeys((*was, *now))
    }
    differing = {name: size for name, size in differing.items() if size > tolerance.gradient}
    missing = before.get("tensors_without_gradient", []), after.get("tensors_without_gradient", [])
    found = []
    size = relative_difference(before.get("total"), after.get("total"))
    if differing or size > tolerance.gradient:
        largest = max(differing, key=lambda name: differing[name]) if differing else "total"
        found.append(
            Difference(
                ORDER["first_gradient"],
                "first_gradient",
                "total",
                before.get("total"),
                after.get("total"),
                count=max(len(differing), 1),
                relative=_of_baseline(before.get("total"), after.get("total"))[0],
                detail=(
                    f"norm {_show(before.get('total'))} -> {_show(after.get('total'))}; "
                    f"{len(differing)} of {len({*was, *now})} module groups, most in {largest}"
                ),
                learned=True,
            )
        )
    if missing[0] != missing[1]:
        found.append(
            Difference(
                ORDER["first_gradient"],
                "first_gradient",
                "tensors_without_gradient",
                len(missing[0]),
                len(missing[1]),
                count=len(set(missing[0]) ^ set(missing[1])),
                detail=f"tensors without a gradient {len(missing[0])} -> {len(missing[1])}",
                learned=True,
            )
        )
    return found


def _learning_rate_differences(baseline: RunRecord, current: RunRecord) -> list[Difference]:
    """The first step whose learning rate differs."""
    found = []
    was, now = (
        side.exact.get("trajectory", {}).get("learning_rates", []) for side in (baseline, current)
    )
    differing = [
        step
        for step, (a, b) in enumerate(zip(was, now, strict=False))
        if relative_difference(a, b) > 1e-9
    ]
    if differing:
        first = differing[0]
        found.append(
            Difference(
                ORDER["first_update"],
                "first_update",
                "learning_rate",
                was[first],
                now[first],
                count=len(differing),
                relative=_of_baseline(was[first], now[first])[0],
                detail=(
                    f"learning rate {_show(was[first])} -> {_show(now[first])} "
                    f"at step {first + 1}, "
                    f"{len(differing)} of {min(len(was), len(now))} steps"
                ),
                learned=True,
            )
        )
    return found


def first_update_differences(
    baseline: RunRecord, current: RunRecord, tolerance: Tolerance
) -> list[Difference]:
    """Learning rates, size of the first change of the parameters, tensors that changed."""
    found = _learning_rate_differences(baseline, current)
    before, after = (side.exact.get("first_update", {}) for side in (baseline, current))
    size = relative_difference(before.get("delta_norm"), after.get("delta_norm"))
    if size > tolerance.update:
        found.append(
            _difference(
                "first_update",
                "delta_norm",
                before.get("delta_norm"),
                after.get("delta_norm"),
            )
        )
    if before.get("tensors_changed") != after.get("tensors_changed"):
        found.append(
            Difference(
                ORDER["first_update"],
                "first_update",
                "tensors_changed",
                before.get("tensors_changed"),
                after.get("tensors_changed"),
                count=len(
                    set(before.get("tensors_unchanged", []))
                    ^ set(after.get("tensors_unchanged", []))
                )
                or 1,
                detail=(
                    f"tensors changed {before.get('tensors_changed')} -> "
                    f"{after.get('tensors_changed')}"
                ),
                learned=True,
            )
        )
    return found


def has_clipping(record: RunRecord) -> bool:
    """Whether its gradients were read both before clipping and as they were applied."""
    return bool(record.exact.get("clipping"))


def told_series(
    baseline: RunRecord, current: RunRecord, name: str
) -> tuple[Sequence[Any], Sequence[Any]]:
    """A series of both trajectories; empty where the baseline is of an older version that did not
    see it: of training loops in place of a trainer's own, losses and norms before clipping."""
    sides = (baseline, current)
    before, after = (side.exact.get("trajectory", {}).get(name) or [] for side in sides)
    newer = has_clipping(current) and not has_clipping(baseline)
    if newer and all(value is None for value in before):
        return (), ()
    return before, after


def trajectory_differences(
    baseline: RunRecord, current: RunRecord, tolerance: Tolerance
) -> list[Difference]:
    """Losses, gradient norms and RL metrics of the probe's steps, and on a CPU, where the measured
    launch repeats bit by bit too, its losses to the end."""
    before, after = (side.exact.get("trajectory", {}) for side in (baseline, current))
    floor = loss_floor(current)
    losses = told_series(baseline, current, "losses")
    found = _sequence("loss", *losses, floor, tolerance, 1.0)
    if not found and _repeats_bitwise(baseline) and _repeats_bitwise(current):
        found = _sequence(
            "measured loss",
            baseline.stability.loss_values,
            current.stability.loss_values,
            floor,
            tolerance,
            1.0,
        )
    norms, norms_now = told_series(baseline, current, "grad_norms")
    largest = max((abs(v) for v in norms if _finite(v)), default=0.0)
    found += _sequence(
        "grad_norm",
        norms,
        norms_now,
        VANISHING * largest if is_rollout(current) else 0.0,
        tolerance,
        GRADIENT_NORM_FACTOR,
    )
    was, now = before.get("rl", {}), after.get("rl", {})
    if _cut_in(baseline, current, len(before.get("grad_norms", []))):
        was = {}  # means of micro-batches, whatever each one holds: of others they are others
    for name in dict.fromkeys((*was, *now)):
        if name in TOLD_ELSEWHERE or name not in was or name not in now:
            continue
        scale = max((abs(v) for v in (*was[name], *now[name]) if _finite(v)), default=0.0)
        if name.rpartition("/")[2] == "kl":
            scale = max(scale, KL_FLOOR)
        found += _sequence(name, was[name], now[name], scale, tolerance, METRIC_FACTOR)
    return found


def _repeats_bitwise(record: RunRecord) -> bool:
    device = record.env.get("device") or {}
    return device.get("type", "cpu") == "cpu" and not record.env.get("gpus")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and value == value and abs(value) != float("inf")


def _sequence(
    signal: str,
    before: Sequence[Any],
    after: Sequence[Any],
    floor: float,
    tolerance: Tolerance,
    factor: float,
) -> list[Difference]:
    sizes = [
        relative_difference(number(a), number(b), floor)
        for a, b in zip(before, after, strict=False)
    ]
    over = [
        place for place, size in enumerate(sizes) if size > factor * tolerance.at_step(place + 1)
    ]
    if not over:
        return []
    first = over[0]
    worst = max(range(len(sizes)), key=lambda place: sizes[place])
    relative, scale = _of_baseline(before[worst], after[worst], floor)
    return [
        Difference(
            ORDER["trajectory"],
            "trajectory",
            signal,
            before[first],
            after[first],
            count=len(over),
            relative=relative,
            scale=scale,
            detail=(
                f"{signal} {_show(before[first])} -> {_show(after[first])} at step {first + 1}, "
                f"{len(over)} of {len(sizes)} steps beyond tolerance, "
                + (
                    f"up to {relative:.1e} {scale or 'relative'}"
                    if math.isfinite(relative)
                    else "not finite on one side"
                )
            ),
            learned=True,
            step=first + 1,
        )
    ]


def _worst(before: Sequence[Any], after: Sequence[Any], floor: float) -> tuple[int, float] | None:
    sizes = [
        relative_difference(number(a), number(b), floor)
        for a, b in zip(before, after, strict=False)
    ]
    if not sizes:
        return None
    place = max(range(len(sizes)), key=lambda i: sizes[i])
    return place, sizes[place]


def _show(value: Any) -> str:
    return shown(f"{value:.6g}" if isinstance(value, int | float) else str(value))


def _of_baseline(was: Any, now: Any, floor: float = 0.0) -> tuple[float, str]:
    """(a difference as a share of the baseline, ""); where the baseline is below `floor`, the
    difference on that scale, and the scale in words. What is decided by is `relative_difference`.
    """
    was, now = number(was), number(now)
    if not (_finite(was) and _finite(now)):
        return relative_difference(was, now, floor), ""
    own = floor == 1.0 and abs(now) > 1.0  # see `loss_floor`: a loss above 1 has its own scale
    if abs(was) < floor and not own:
        return abs(now - was) / floor, f"on a scale of {floor:.3g}"
    return (abs(now - was) / abs(was) if was else 1.0), ""


def _share(was: Any, now: Any, relative: float, scale: str) -> str:
    """A relative difference in words."""
    if was is None or now is None:
        return "missing on one side"
    if not math.isfinite(relative):
        return "not finite"
    return f"{relative:.1e} {scale or 'relative'}"


def _difference(stage: str, signal: str, was: Any, now: Any) -> Difference:
    relative, scale = _of_baseline(was, now)
    return Difference(
        ORDER[stage],
        stage,
        signal,
        was,
        now,
        relative=relative,
        detail=f"{signal} {_show(was)} -> {_show(now)} ({_share(was, now, relative, scale)})",
        learned=True,
    )
