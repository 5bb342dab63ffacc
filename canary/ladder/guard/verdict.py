"""The guard of a level: it may be faster, and must not learn anything else.

Every level trains a few steps on the completions that the baseline sampled (teacher-forced), with
the same prompts, seed and schedule. Losses, gradient norms and the trainer's own log-probabilities
and rewards are held against the baseline's, step by step, within what arithmetic alone may move.
What generation would have drawn in the place of these completions is held against the policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from canary.config.trainers import trainer_row
from canary.ladder.guard.on_policy import Deviation, looked_at, of_generation, own_gap, unfit
from canary.ladder.levels import Rounding
from canary.record.exact import Exact, Trajectory
from canary.record.metric_names import QUANTITIES

GUARD_STEPS = 5
"""Steps of a guard's probe: enough for an update to show in the next losses."""


@dataclass(frozen=True)
class Tolerances:
    """Largest relative differences that arithmetic makes; measured with `python -m bench.ladder
    --tolerances` (docs/ladder.md has what was seen)."""

    loss: float
    gradient: float
    metric: float
    generation: float
    """Of a drawn token's log-probability, absolute."""


TOLERANCES: dict[Rounding, Tolerances] = {
    "float32": Tolerances(loss=1e-5, gradient=1e-4, metric=1e-4, generation=1e-4),
    "bfloat16": Tolerances(loss=1e-1, gradient=3e-1, metric=1e-1, generation=3e-1),
}

FLOOR = 0.1
"""Scale below which a signal's own size is none to measure by: policy losses and KL start at 0."""

ROUNDED_AWAY = frozenset(
    name for quantity in QUANTITIES.values() if quantity.rounded_away for name in quantity.names
)
"""Differences of two log-probabilities that are nearly equal: bfloat16 leaves nothing of them, so
they are guarded in float32 alone."""


@dataclass(frozen=True)
class Verdict:
    """What a guard saw."""

    rounding: Rounding
    signals: int
    steps: int
    worst: Deviation | None = None
    """The nearest to its tolerance, or the farthest beyond it."""
    first: Deviation | None = None
    """The first that is out of tolerance; None where the guard holds."""
    problem: str = ""
    """Why nothing could be compared."""
    ran: bool = True
    """False: it did not run, and says nothing of what is learned."""
    unseen: tuple[str, ...] = ()
    """What these steps did not show."""
    deviations: tuple[Deviation, ...] = field(default=(), repr=False)
    """Of every signal its largest."""

    @property
    def holds(self) -> bool:
        """Whether all stayed within tolerance."""
        return self.first is None and not self.problem

    @property
    def broken(self) -> bool:
        """Whether it ran, and something was out of tolerance or could not be compared."""
        return self.ran and not self.holds


def compare(baseline: Exact, level: Exact, trainer: str, rounding: Rounding) -> Verdict:
    """Two probes' `exact` of equal steps on equal completions."""
    left_out = ROUNDED_AWAY if rounding == "bfloat16" else frozenset()
    metrics = [name for name in trainer_row(trainer).metrics if name not in left_out]
    expected = dict(_signals(baseline.get("trajectory", {}), metrics))
    found = dict(_signals(level.get("trajectory", {}), metrics))
    if not expected or not any(map(_told, expected.values())):
        return Verdict(rounding, 0, 0, problem="the baseline's probe told no loss")
    steps = max(len(values) for values in expected.values())
    lost = [name for name in expected if len(found.get(name, ())) != len(expected[name])]
    if lost:
        return Verdict(rounding, 0, steps, problem=f"{lost[0]} has another number of steps")
    deviations: list[Deviation] = []
    largest: list[Deviation] = []
    signals = [_deviations(name, expected[name], found[name], rounding) for name in expected]
    signals += _first_update(baseline, level, TOLERANCES[rounding].gradient)
    signals += of_generation(baseline, level, TOLERANCES[rounding].generation)
    for of_signal in map(list, signals):
        deviations += of_signal
        largest += sorted(of_signal, key=lambda one: -one.share)[:1]
    broken = sorted((one for one in deviations if one.share > 1), key=lambda one: one.step)
    worst = max(largest, key=lambda one: one.share, default=None)
    return Verdict(
        rounding,
        len(signals),
        steps,
        worst,
        broken[0] if broken else None,
        unseen=tuple(unseen(baseline, level, trainer)),
        deviations=tuple(largest),
    )


def _signals(
    trajectory: Trajectory, metrics: Sequence[str]
) -> Iterator[tuple[str, Sequence[float | None]]]:
    """Each compared signal with a value a step; a metric only where it is there."""
    if losses := trajectory.get("losses"):
        yield "loss", losses
    if norms := trajectory.get("grad_norms"):
        yield "grad norm", norms
    told = trajectory.get("rl", {})
    yield from ((name, told[name]) for name in metrics if name in told)


def _first_update(baseline: Exact, level: Exact, tolerance: float) -> list[Iterator[Deviation]]:
    """How far the first update moved the parameters, relative to the baseline's: another optimizer
    shows there long before it does in a loss."""
    before, after = (one.get("first_update", {}).get("delta_norm") for one in (baseline, level))
    if not before or after is None:
        return []
    relative = abs(after - before) / before
    relative = relative if math.isfinite(relative) else math.inf
    return [iter([Deviation("first update", 1, before, after, relative, tolerance)])]


def _told(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _deviations(
    name: str, expected: Sequence[float | None], found: Sequence[float | None], rounding: Rounding
) -> Iterator[Deviation]:
    allowed = TOLERANCES[rounding]
    tolerance = {"loss": allowed.loss, "grad norm": allowed.gradient}.get(name, allowed.metric)
    sizes = [abs(value) for value in expected if value is not None and math.isfinite(value)]
    scale = max([FLOOR, *sizes])
    for step, (before, after) in enumerate(zip(expected, found, strict=True), 1):
        if before is None and after is None:
            continue
        one, other = (math.nan if value is None else value for value in (before, after))
        told = before is not None and after is not None
        same = one == other or (told and math.isnan(one) and math.isnan(other))
        relative = 0.0 if same else abs(one - other) / scale
        if not math.isfinite(relative):
            relative = math.inf
        yield Deviation(name, step, one, other, relative, tolerance)


def unseen(baseline: Exact, level: Exact, trainer: str) -> Iterator[str]:
    """In words, each."""
    rates = baseline.get("trajectory", {}).get("learning_rates", [])
    row = trainer_row(trainer)
    # What an update does shows in the next step's loss; of several per step also in their own's.
    shown = rates if row.own_loop else rates[:-1]
    if rates and not any(shown):
        yield "the optimizer: no update of these steps shows, its learning rate is 0 or comes last"
    if not row.online:
        return
    if unfit(baseline):
        yield (
            "generation: the baseline's own does not draw from its policy "
            f"({own_gap(baseline):.1e} apart)"
        )
    elif not looked_at(level):
        yield "generation: it is not the model's own `generate`"
