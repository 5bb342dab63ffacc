"""The learning stages: first loss, first gradient (and its clipping), first update, trajectory, and
where the training ends.

Each function compares one signal. A value that only one side recorded is no difference: the check
of its stage says that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from canary.compare.exact.inputs_stages import cut_otherwise, is_rollout
from canary.compare.exact.sides import (
    Sides,
    is_finite,
    learned,
    number_difference,
    of_baseline,
    show,
    size_words,
)
from canary.compare.exact.tolerances import relative_difference, repeats_bitwise
from canary.compare.report import Difference
from canary.record.exact import Exact, Series
from canary.record.types import RunRecord

OTHER_SIGNALS = ("num_tokens", "loss", "explained_variance")
"""Logged metrics that other signals compare better: batches, the raw loss, values and returns.
`explained_variance` is a quotient of small variances, so it shows rounding."""
METRIC_FACTOR = 100.0
"""A metric's tolerance is this many times the loss's, relative to the metric's largest value:
metrics are means over few tokens, or differences of large sums."""
KL_FLOOR = 0.01
"""A smaller KL is compared on this scale. It is a difference of log-probabilities of at least
order one, so rounding shows: another attention kernel moved a KL of 1e-3 by 5e-7."""
GRADIENT_NORM_FACTOR = 10.0
VANISHING = 0.05
"""Share of the largest gradient norm of a rollout trainer; a smaller norm is compared on this
scale. If all rewards of every group are equal, the gradient is only rounding."""


def loss_floor(record: RunRecord) -> float:
    """Return the smallest scale for losses: 1 for policy losses, as they cancel to zero."""
    return 1.0 if is_rollout(record) else 0.01


def first_loss(sides: Sides) -> list[Difference]:
    """Compare the loss of step 1."""
    was, now = sides.read(lambda exact: exact.get("first_loss", {}).get("loss"))
    floor = loss_floor(sides.current)
    if not _moved(was, now, sides.tolerance.first_loss, floor):
        return []
    return [number_difference("first_loss", "loss", was, now, floor, "loss")]


def _moved(was: float | None, now: float | None, allowed: float, floor: float = 0.0) -> bool:
    """Whether both sides recorded a number, and it differs by more than `allowed`."""
    return None not in (was, now) and relative_difference(was, now, floor) > allowed


def micro_losses(sides: Sides) -> list[Difference]:
    """Return the micro-batch loss of step 1 that differs most.

    An empty list if the loss of the whole step differs, or if the sides cut it differently."""
    floor, allowed = loss_floor(sides.current), sides.tolerance.first_loss
    whole = sides.read(lambda exact: exact.get("first_loss", {}).get("loss"))
    if relative_difference(*whole, floor) > allowed or _cut_in(sides, 1):
        return []
    before, after = sides.read(lambda exact: exact.get("first_loss", {}).get("micro_losses", []))
    sizes = _sizes(before, after, floor)
    if max(sizes, default=0.0) <= allowed:
        return []
    place = sizes.index(max(sizes))
    words = f"loss of micro-batch {place + 1}"
    was, now = before[place], after[place]
    return [number_difference("first_loss", "micro_losses", was, now, floor, words)]


def _cut_in(sides: Sides, steps: int) -> bool:
    """Whether one of the first steps is cut into different micro-batches."""
    before, after = sides.read(lambda exact: exact.get("batches", [])[:steps])
    return any(cut_otherwise(was, now) for was, now in zip(before, after, strict=False))


def first_gradient(sides: Sides) -> list[Difference]:
    """Compare the gradient norm of step 1 before clipping: total, and per module group."""
    before, after = sides.read(lambda exact: exact.get("first_gradient", {}))
    was, now = before.get("total"), after.get("total")
    groups, groups_now = before.get("groups", {}), after.get("groups", {})
    floor = 1e-3 * max(abs(was or 0), abs(now or 0))
    differing = {
        name: relative_difference(groups.get(name), groups_now.get(name), floor)
        for name in dict.fromkeys((*groups, *groups_now))
    }
    allowed = sides.tolerance.gradient
    differing = {name: size for name, size in differing.items() if size > allowed}
    if not differing and relative_difference(was, now) <= allowed:
        return []
    largest = max(differing, key=lambda name: differing[name]) if differing else "total"
    words = (
        f"norm {show(was)} -> {show(now)}; {len(differing)} of {len({*groups, *groups_now})} "
        f"module groups, most in {largest}"
    )
    relative, _ = of_baseline(was, now)
    more = {"count": max(len(differing), 1), "relative": relative}
    return [learned("first_gradient", "total", was, now, words, **more)]


def tensors_without_gradient(sides: Sides) -> list[Difference]:
    """Compare the tensors that the first gradient does not reach."""
    before, after = sides.read(lambda exact: exact.get("first_gradient", {}))
    was, now = (side.get("tensors_without_gradient") for side in (before, after))
    if was is None or now is None or was == now:
        return []
    words, count = f"tensors without a gradient {len(was)} -> {len(now)}", len(set(was) ^ set(now))
    names = ("first_gradient", "tensors_without_gradient")
    return [learned(*names, len(was), len(now), words, count=count)]


def learning_rate(sides: Sides) -> list[Difference]:
    """Return the first step whose learning rate differs."""
    was, now = sides.read(lambda exact: exact.get("trajectory", {}).get("learning_rates", []))
    differing = [step for step, size in enumerate(_sizes(was, now)) if size > 1e-9]
    if not differing:
        return []
    first = differing[0]
    words = (
        f"learning rate {show(was[first])} -> {show(now[first])} at step {first + 1}, "
        f"{len(differing)} of {min(len(was), len(now))} steps"
    )
    relative, _ = of_baseline(was[first], now[first])
    more = {"count": len(differing), "relative": relative, "step": first + 1}
    return [learned("first_update", "learning_rate", was[first], now[first], words, **more)]


def update_norm(sides: Sides) -> list[Difference]:
    """Compare the size of the first update."""
    was, now = sides.read(lambda exact: exact.get("first_update", {}).get("delta_norm"))
    if not _moved(was, now, sides.tolerance.update):
        return []
    return [number_difference("first_update", "delta_norm", was, now, 0.0, "norm of the update")]


def tensors_changed(sides: Sides) -> list[Difference]:
    """Compare how many tensors the first update changed."""
    before, after = sides.read(lambda exact: exact.get("first_update", {}))
    was, now = before.get("tensors_changed"), after.get("tensors_changed")
    if None in (was, now) or was == now:
        return []
    names = [set(side.get("tensors_unchanged", [])) for side in (before, after)]
    words, count = f"tensors changed {was} -> {now}", len(names[0] ^ names[1]) or 1
    return [learned("first_update", "tensors_changed", was, now, words, count=count)]


def losses(sides: Sides) -> list[Difference]:
    """Compare the look's losses; on a CPU also those of all steps, which repeat exactly."""
    baseline, current = sides.baseline, sides.current
    floor = loss_floor(current)
    before, after = sides.read(lambda exact: exact.get("trajectory", {}).get("losses", []))
    found = _sequence("loss", sides, before, after, floor)
    if not found and repeats_bitwise(baseline) and repeats_bitwise(current):
        whole = (baseline.stability.loss_values, current.stability.loss_values)
        return _sequence("loss after the look", sides, *whole, floor)
    return found


def _norms(exact: Exact) -> Series:
    """Return the gradient norms of the look before clipping."""
    return exact.get("trajectory", {}).get("grad_norms", [])


def gradient_norms(sides: Sides) -> list[Difference]:
    """Compare the gradient norms of the look's steps."""
    before, after = sides.read(_norms)
    largest = max((abs(norm) for norm in before if is_finite(norm)), default=0.0)
    floor = VANISHING * largest if is_rollout(sides.current) else 0.0
    return _sequence("grad_norm", sides, before, after, floor, GRADIENT_NORM_FACTOR)


def metrics(sides: Sides) -> list[Difference]:
    """Compare the trainer's metrics; not if micro-batches are cut differently, for metrics are
    unweighted means over micro-batches."""
    if _cut_in(sides, len(_norms(sides.baseline.exact))):
        return []
    was, now = sides.read(lambda exact: exact.get("trajectory", {}).get("rl", {}))
    found = []
    for name in was:
        if name in OTHER_SIGNALS or name not in now:
            continue
        scale = max((abs(v) for v in (*was[name], *now[name]) if is_finite(v)), default=0.0)
        if name.rpartition("/")[2] == "kl":
            scale = max(scale, KL_FLOOR)
        found += _sequence(name, sides, was[name], now[name], scale, METRIC_FACTOR)
    return found


def _sizes(
    before: Sequence[float | None], after: Sequence[float | None], floor: float = 0.0
) -> list[float]:
    """Return the relative difference at each position that both sides have."""
    return [relative_difference(a, b, floor) for a, b in zip(before, after, strict=False)]


def _sequence(
    signal: str,
    sides: Sides,
    before: Sequence[float | None],
    after: Sequence[float | None],
    floor: float,
    factor: float = 1.0,
) -> list[Difference]:
    """Return the first step that differs by more than `factor` times the step's tolerance."""
    sizes = _sizes(before, after, floor)
    allowed = sides.tolerance.at_step
    over = [place for place, size in enumerate(sizes) if size > factor * allowed(place + 1)]
    if not over:
        return []
    first, worst = over[0], sizes.index(max(sizes))
    relative, scale = of_baseline(before[worst], after[worst], floor)
    size = f"up to {size_words(relative, scale)}"
    words = (
        f"{signal} {show(before[first])} -> {show(after[first])} at step {first + 1}, "
        f"{len(over)} of {len(sizes)} steps beyond tolerance, "
        f"{size if math.isfinite(relative) else 'not finite on one side'}"
    )
    return [
        learned(
            "trajectory",
            signal,
            before[first],
            after[first],
            words,
            count=len(over),
            relative=relative,
            scale=scale,
            step=first + 1,
        )
    ]


APPLIED_GRADIENT = "applied_gradient"
CUT = 1e-3
"""A norm that drops by more than this share was clipped."""


def applied_gradient(sides: Sides) -> list[Difference]:
    """Return the first step whose gradient differs at the optimizer, if no gradient before
    clipping differs up to that step."""
    before, after = sides.read(lambda exact: exact.get("clipping", {}))
    tolerance = sides.tolerance
    norms = (before.get("before", []), after.get("before", []))
    applied = (before.get("applied", []), after.get("applied", []))
    series = zip(*norms, *applied, strict=False)
    for step, (was, now, was_applied, now_applied) in enumerate(series, start=1):
        allowed = max(tolerance.gradient, GRADIENT_NORM_FACTOR * tolerance.at_step(step))
        if was is None or now is None or relative_difference(was, now) > allowed:
            return []
        size = relative_difference(was_applied, now_applied)
        if size > allowed:
            shown = [f"{v:.6g}" if v is not None else "none" for v in (was_applied, now_applied)]
            words = (
                f"gradient norm at the optimizer {' -> '.join(shown)} at step {step}, but after "
                f"backward {now:.6g} on both sides"
            )
            stage = "first_update" if step == 1 else "trajectory"
            more = {"relative": size, "step": step}
            return [learned(stage, APPLIED_GRADIENT, was_applied, now_applied, words, **more)]
    return []


LENGTH = "steps"
"""The signal of the trajectory that says how long the training is."""


@dataclass(frozen=True)
class Length:
    """What a record says of the length of its training."""

    steps: int
    """Recorded ones."""
    known: bool
    """Whether the training ended by itself after them."""


def length_of(record: RunRecord) -> Length:
    """Return how long a training was. After a look, or after `max_steps`, the canary ended it."""
    most, completed = _given(record, "max_steps"), record.status == "completed"
    if record.config.get("exact"):
        looked = _given(record, "look_steps") or 0
        steps = record.exact.get("steps", 0)
        return Length(steps, completed and 0 < steps < min(looked, most or looked))
    lengths = {one.steps for one in record.launches if one.status == "completed"}
    steps = min(lengths, default=0)
    cut = most is not None and steps + record.first_step - 1 >= most
    return Length(steps, completed and len(lengths) == 1 and steps > 0 and not cut)


def _given(record: RunRecord, key: str) -> int | None:
    """Return an integer of the config; a stranger may have written it."""
    value = record.config.get(key)
    return value if isinstance(value, int) else None


def length(sides: Sides) -> list[Difference]:
    """Compare where the trainings end. Of whole trainings, only one that goes on longer: lost steps
    have a check of their own, `steps_trained`."""
    was, now = length_of(sides.baseline), length_of(sides.current)
    whole = not any(side.config.get("exact") for side in (sides.baseline, sides.current))
    if now.known and now.steps < was.steps and not whole:
        other = f"after {was.steps}" if was.known else "goes on"
        words = f"the training ends after {now.steps} steps, the baseline's {other}"
    elif was.known and was.steps < now.steps:
        words = f"the training goes on after step {was.steps}, the baseline's ends there"
        if now.known:
            words = f"the training ends after {now.steps} steps, the baseline's after {was.steps}"
    else:
        return []
    before, after = (was.steps, now.steps) if was.known and now.known else (None, None)
    step = min(was.steps, now.steps) + 1
    return [learned("trajectory", LENGTH, before, after, words, step=step)]


# fmt: off
LEARNING = (
    first_loss, micro_losses, first_gradient, tensors_without_gradient, applied_gradient,
    learning_rate, update_norm, tensors_changed, losses, gradient_norms, metrics, length,
)
# fmt: on
"""In the order in which training makes them."""
