"""The guard of a level: a level may be faster, but must learn the same as the baseline.

Every level trains a few steps with the baseline's prompts, seed and schedule, teacher-forced on the
completions that the baseline sampled. Losses, gradient norms, log-probabilities and rewards may
differ from the baseline's only by rounding. Generation is compared with the level's policy instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from canary.config.trainers import trainer_row
from canary.ladder.levels import Rounding
from canary.record.exact import DrawnStep, Exact, Trajectory
from canary.record.metric_names import QUANTITIES

GUARD_STEPS = 5
"""Steps of a guard's look: enough to see an update in the next losses."""


@dataclass(frozen=True)
class Tolerances:
    """Largest relative differences that rounding causes; measured with `python -m bench.ladder
    --tolerances` (results: docs/ladder.md)."""

    loss: float
    gradient: float
    metric: float
    generation: float
    """Absolute difference of a sampled token's log-probability."""


TOLERANCES: dict[Rounding, Tolerances] = {
    "float32": Tolerances(loss=1e-5, gradient=1e-4, metric=1e-4, generation=1e-4),
    "bfloat16": Tolerances(loss=1e-1, gradient=3e-1, metric=1e-1, generation=3e-1),
}

FLOOR = 0.1
"""Smallest scale of a relative difference: policy losses and KL start at 0."""

ROUNDED_AWAY = frozenset(
    name for quantity in QUANTITIES.values() if quantity.rounded_away for name in quantity.names
)
"""Differences of two nearly equal log-probabilities. bfloat16 rounds them away, so they are guarded
only in float32."""


@dataclass(frozen=True)
class Verdict:
    """The result of one guard."""

    rounding: Rounding
    signals: int
    steps: int
    worst: Deviation | None = None
    """The deviation closest to its tolerance, or farthest beyond it."""
    first: Deviation | None = None
    """The first deviation out of tolerance; None if the guard holds."""
    problem: str = ""
    """Why nothing could be compared."""
    ran: bool = True
    """False: it did not run, so what the level learns is unknown."""
    unseen: tuple[str, ...] = ()
    """Descriptions of what these steps could not check."""
    deviations: tuple[Deviation, ...] = field(default=(), repr=False)
    """The largest deviation of every signal."""

    @property
    def holds(self) -> bool:
        """Whether all signals are within tolerance."""
        return self.first is None and not self.problem

    @property
    def broken(self) -> bool:
        """Whether it ran, and a signal is out of tolerance or cannot be compared."""
        return self.ran and not self.holds


def compare(baseline: Exact, level: Exact, trainer: str, rounding: Rounding) -> Verdict:
    """Compare the `exact` of two looks with equal steps and completions."""
    left_out = ROUNDED_AWAY if rounding == "bfloat16" else frozenset()
    metrics = [name for name in trainer_row(trainer).metrics if name not in left_out]
    expected = dict(_signals(baseline.get("trajectory", {}), metrics))
    found = dict(_signals(level.get("trajectory", {}), metrics))
    if not expected or not any(map(_has_values, expected.values())):
        return Verdict(rounding, 0, 0, problem="the baseline's look has no loss")
    steps = max(len(values) for values in expected.values())
    unequal = [name for name in expected if len(found.get(name, ())) != len(expected[name])]
    if unequal:
        return Verdict(rounding, 0, steps, problem=f"{unequal[0]} has a different number of steps")
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
    """Yield each compared signal with one value per step; missing metrics are left out."""
    if losses := trajectory.get("losses"):
        yield "loss", losses
    if norms := trajectory.get("grad_norms"):
        yield "grad norm", norms
    reported = trajectory.get("rl", {})
    yield from ((name, reported[name]) for name in metrics if name in reported)


def _first_update(baseline: Exact, level: Exact, tolerance: float) -> list[Iterator[Deviation]]:
    """Compare how far the first update moved the parameters: a different optimizer shows there long
    before it shows in a loss."""
    before, after = (one.get("first_update", {}).get("delta_norm") for one in (baseline, level))
    if not before or after is None:
        return []
    relative = abs(after - before) / before
    relative = relative if math.isfinite(relative) else math.inf
    return [iter([Deviation("first update", 1, before, after, relative, tolerance)])]


def _has_values(values: Sequence[float | None]) -> bool:
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
        both = before is not None and after is not None
        same = one == other or (both and math.isnan(one) and math.isnan(other))
        relative = 0.0 if same else abs(one - other) / scale
        if not math.isfinite(relative):
            relative = math.inf
        yield Deviation(name, step, one, other, relative, tolerance)


def unseen(baseline: Exact, level: Exact, trainer: str) -> Iterator[str]:
    """Yield what the looks could not check, in words."""
    rates = baseline.get("trajectory", {}).get("learning_rates", [])
    row = trainer_row(trainer)
    # An update shows in the next step's loss; with several per step, also in the same step's.
    shown = rates if row.own_loop else rates[:-1]
    if rates and not any(shown):
        yield "the optimizer (no update shows: every learning rate is 0, except perhaps the last)"
    if not row.online:
        return
    if unfit(baseline):
        yield (
            "generation (the baseline's does not sample from its policy: "
            f"difference {largest_gap(baseline):.1e})"
        )
    elif not examined_steps(level):
        yield "generation (it does not use the model's `generate`)"


GAP = "generation off its policy"
RANK = "rank of drawn tokens"
ODDS = 1e-9
"""Chance that a mean rank is out of tolerance although the tokens come from the policy."""
UNFIT = 0.3
"""A baseline whose generation differs from its policy by more than this cannot be a reference."""


@dataclass(frozen=True)
class Deviation:
    """The difference of one signal at one step from the baseline's, or from its expected value."""

    signal: str
    step: int
    expected: float
    found: float
    relative: float
    """|found - expected| over the signal's largest baseline value, at least FLOOR; the absolute
    difference for generation."""
    tolerance: float

    @property
    def share(self) -> float:
        """The difference as a share of the tolerance; above 1 the guard is broken."""
        return self.relative / self.tolerance

    @property
    def words(self) -> str:
        """Signal, step and both values."""
        return f"{self.signal} {self.expected:.6g} -> {self.found:.6g} at step {self.step}"


def of_generation(baseline: Exact, level: Exact, allowed: float) -> list[Iterator[Deviation]]:
    """Return gap and rank of each step whose generation was examined.

    Twice the baseline's gap is allowed too, because forwards of quantized layers differ.
    """
    if unfit(baseline):
        return []
    steps = examined_steps(level)
    tolerance = max(allowed, 2 * largest_gap(baseline))
    signals = []
    if any(step.get("gap") is not None for step in steps):
        signals.append(_gaps(steps, tolerance))
    if any(step.get("rank") is not None for step in steps):
        signals.append(_ranks(steps))
    return signals


def unfit(baseline: Exact) -> bool:
    """Whether the baseline's generation does not sample from its policy."""
    ranks = (one.share > 1 for one in _ranks(examined_steps(baseline)))
    return largest_gap(baseline) > UNFIT or any(ranks)


def examined_steps(exact: Exact) -> list[DrawnStep]:
    """Return the steps whose generation was examined."""
    return exact.get("generation", {}).get("steps", [])


def largest_gap(exact: Exact) -> float:
    """Return the largest gap of a look's steps; 0 without any."""
    gaps = (step.get("gap") for step in examined_steps(exact))
    return max((gap for gap in gaps if gap is not None), default=0.0)


def _gaps(steps: list[DrawnStep], tolerance: float) -> Iterator[Deviation]:
    for step in steps:
        if (gap := step.get("gap")) is not None:
            yield Deviation(GAP, step["step"], 0.0, gap, gap, tolerance)


def _ranks(steps: list[DrawnStep]) -> Iterator[Deviation]:
    """Bound the mean of n ranks in [0, 1], each with expectation 1/2 given the earlier ones: it is
    off by more than sqrt(ln(2 / odds) / 2n) with a chance of at most `odds` (Azuma 1967)."""
    for step in steps:
        if (rank := step.get("rank")) is not None:
            tolerance = math.sqrt(math.log(2 / ODDS) / (2 * step["ranked"]))
            yield Deviation(RANK, step["step"], 0.5, rank, abs(rank - 0.5), tolerance)
