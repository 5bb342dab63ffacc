"""The guard of a level: a level may be faster, but must learn the same as the baseline.

Every level trains a few steps with the baseline's prompts, seed and schedule, teacher-forced on the
completions that the baseline sampled. Losses, gradient norms, log-probabilities and rewards may
differ from the baseline's only by rounding. What a level itself would sample is not guarded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from canary.config.trainers import trainer_row
from canary.errors import RunFailed
from canary.ladder.site import Site
from canary.ladder.switches import Choice, Rounding, Settings, settings_of
from canary.record.exact import Exact, Trajectory
from canary.record.metric_names import QUANTITIES


class Tolerances(NamedTuple):
    """Largest relative differences that rounding causes, measured with `python -m bench.ladder
    --tolerances` (docs/ladder.md)."""

    loss: float
    gradient: float
    metric: float


TOLERANCES: dict[Rounding, Tolerances] = {
    "float32": Tolerances(loss=1e-5, gradient=1e-4, metric=1e-4),
    "bfloat16": Tolerances(loss=1e-1, gradient=3e-1, metric=1e-1),
}
FLOOR = 0.1
"""Smallest scale of a relative difference: policy losses and KL start at 0."""
ROUNDED_AWAY = frozenset(
    name for quantity in QUANTITIES.values() if quantity.rounded_away for name in quantity.names
)
"""Differences of two nearly equal log-probabilities. bfloat16 rounds them away, so they are guarded
only in float32."""
NUDGE = 1e-6
"""Relative change of the control's learning rate, as small as the rounding of an update."""


@dataclass(frozen=True)
class Deviation:
    """The difference of one signal at one step from the baseline's."""

    signal: str
    step: int
    expected: float
    found: float
    relative: float
    """|found - expected| over the signal's largest baseline value, at least FLOOR."""
    tolerance: float

    @property
    def share(self) -> float:
        """The difference as a share of the tolerance; above 1 the guard is broken."""
        return self.relative / self.tolerance

    @property
    def words(self) -> str:
        """Signal, step and both values."""
        return f"{self.signal} {self.expected:.6g} -> {self.found:.6g} at step {self.step}"


@dataclass(frozen=True)
class Verdict:
    """The result of one guard."""

    rounding: Rounding
    signals: int = 0
    steps: int = 0
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

    @property
    def state(self) -> str:
        """`holds`, `UNSAFE` or `not run`."""
        if not self.ran:
            return "not run"
        return "holds" if self.holds else "UNSAFE"

    @property
    def words(self) -> str:
        """One line: what was compared, and what could not be checked."""
        return "; ".join([self._compared, *(f"not checked: {what}" for what in self.unseen)])

    @property
    def _compared(self) -> str:
        if self.problem:
            return self.problem
        if first := self.first:
            tolerance = f"tolerance {first.tolerance:.0e} in {self.rounding}"
            return f"{first.words} (difference {first.relative:.1e}, {tolerance})"
        if self.worst is None:
            return "nothing to compare"
        signals = f"{self.signals} signals over {self.steps} steps"
        if self.worst.relative == 0:
            return f"{signals} are equal bit for bit"
        sizes = f"difference {self.worst.relative:.1e}, tolerance {self.worst.tolerance:.0e}"
        return f"{signals}; closest to its tolerance: {self.worst.signal} ({sizes})"


def compare(baseline: Exact, level: Exact, trainer: str, rounding: Rounding) -> Verdict:
    """Compare the `exact` of two looks with equal steps and completions."""
    allowed = TOLERANCES[rounding]
    left_out = ROUNDED_AWAY if rounding == "bfloat16" else frozenset()
    metrics = [name for name in trainer_row(trainer).metrics if name not in left_out]
    expected, found = (_signals(one.get("trajectory", {}), metrics) for one in (baseline, level))
    if not any(value is not None for values in expected.values() for value in values):
        return Verdict(rounding, problem="the baseline's look has no loss")
    steps = max(map(len, expected.values()))
    for name, values in expected.items():
        if len(found.get(name, ())) != len(values):
            problem = f"{name} has a different number of steps"
            return Verdict(rounding, steps=steps, problem=problem)
    signals = [
        *([*_deviations(name, expected[name], found[name], allowed)] for name in expected),
        *_first_update(baseline, level, allowed.gradient),
    ]
    largest = [max(each, key=lambda one: one.share) for each in signals if each]
    broken = [one for each in signals for one in each if one.share > 1]
    return Verdict(
        rounding,
        len(signals),
        steps,
        max(largest, key=lambda one: one.share, default=None),
        min(broken, key=lambda one: one.step, default=None),
        unseen=tuple(_unseen(baseline, trainer)),
        deviations=tuple(largest),
    )


Values = Sequence[float | None]


def _signals(trajectory: Trajectory, metrics: Sequence[str]) -> Mapping[str, Values]:
    """Return each compared signal with one value per step; missing metrics are left out."""
    reported = trajectory.get("rl", {})
    found = {"loss": trajectory.get("losses"), "grad norm": trajectory.get("grad_norms")}
    some = {name: values for name, values in found.items() if values}
    return some | {name: reported[name] for name in metrics if name in reported}


def _deviations(
    name: str, expected: Values, found: Values, allowed: Tolerances
) -> Iterator[Deviation]:
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
        relative = relative if math.isfinite(relative) else math.inf
        yield Deviation(name, step, one, other, relative, tolerance)


def _first_update(baseline: Exact, level: Exact, tolerance: float) -> Iterator[list[Deviation]]:
    """Compare how far the first update moved the parameters: a different optimizer shows there long
    before it shows in a loss."""
    before, after = (one.get("first_update", {}).get("delta_norm") for one in (baseline, level))
    if before and after is not None:
        relative = abs(after - before) / before
        relative = relative if math.isfinite(relative) else math.inf
        yield [Deviation("first update", 1, before, after, relative, tolerance)]


def _unseen(baseline: Exact, trainer: str) -> Iterator[str]:
    """Yield what the looks could not check, in words."""
    rates = baseline.get("trajectory", {}).get("learning_rates", [])
    row = trainer_row(trainer)
    # An update shows in the next step's loss; with several per step, also in the same step's.
    if rates and not any(rates if row.own_loop else rates[:-1]):
        yield "the optimizer (no update shows: every learning rate is 0, except perhaps the last)"
    if row.online:
        yield "generation (the completions are the baseline's)"


@dataclass(frozen=True)
class Guarded:
    """The verdicts of one level's guards."""

    exact: Verdict | None
    """In float32, within float32's rounding; None if nothing in float32 is on."""
    wide: Verdict | None = None
    """As it is, if it leaves float32."""
    blamed: tuple[str, ...] = ()
    """Switches of the level that break the guard when they are on alone."""

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts that there are, the exact one first."""
        return [one for one in (self.exact, self.wide) if one is not None]

    @property
    def broken(self) -> Verdict | None:
        """The verdict of a guard that ran and does not hold."""
        return next((one for one in self.verdicts if one.broken), None)

    @property
    def holds(self) -> bool:
        """Whether every signal differs from the baseline's by no more than rounding."""
        return all(one.holds for one in self.verdicts)


class Guards:
    """Runs the guards of one job. `base`: settings of its baseline level, the reference of all.

    After the first broken guard a control runs: the reference with a learning rate that is larger
    by a rounding error. If that breaks too, the training amplifies rounding and no guard can judge
    it.
    """

    def __init__(self, site: Site, base: Settings) -> None:
        self._site = site
        self._base = base
        self._expected: Exact = {}
        self._steady = False

    def begin(self, label: str) -> None:
        """Run the first steps of the reference; the others train on its completions.

        Raises:
            RunFailed: it does not run, or a loss is not finite.
        """
        launch = self._site.guard(label, self._base, records=True)
        if launch.problem or launch.record is None:
            status = launch.record.status if launch.record else "failed"
            raise RunFailed(f"the baseline level did not run: {launch.problem}", status)
        self._expected = launch.record.exact
        losses = self._expected.get("trajectory", {}).get("losses", [])
        for step, loss in enumerate(losses, start=1):
            if loss is not None and not math.isfinite(loss):
                raise self._unsteady(f"its loss is {loss} at step {step}")

    def of(self, label: str, choices: Sequence[Choice]) -> Guarded:
        """Guard choices together. First come those that stay in float32, in float32: there a small
        fault differs from rounding. If that holds and some leave float32, all run as they are.
        Raises as `verdict`."""
        exact, strict = in_float32(choices), None
        leaves = len(exact) < len(choices)
        if exact or not leaves:
            strict = self.verdict(label, {**self._base, **settings_of(exact)}, "float32")
            if not (strict.holds and leaves):
                return Guarded(strict)
        settings = {**self._base, **settings_of(choices)}
        return Guarded(strict, self.verdict(f"{label} as it is", settings, "bfloat16"))

    def verdict(self, label: str, settings: Settings, rounding: Rounding) -> Verdict:
        """Run the guard of `settings` and return its verdict.

        Raises:
            RunFailed: the reference amplifies rounding, so that no guard can judge it.
        """
        found = self._verdict(label, settings, rounding)
        if found.broken and not self._steady:
            rate = self._site.job.config.learning_rate
            nudged = None if rate is None else rate * (1 + NUDGE)
            control = {**self._base, "learning_rate": nudged}
            moved = self._verdict(f"{label}, control", control, "float32")
            if moved.broken:
                why = f"a learning rate larger by a millionth changes it: {moved.words}"
                raise self._unsteady(why)
            self._steady = True
        return found

    def _verdict(self, label: str, settings: Settings, rounding: Rounding) -> Verdict:
        self._site.say(f"{label}: guard in {rounding}")
        launch = self._site.guard(label, settings)
        if launch.problem or launch.record is None:
            problem = f"not guarded: its look did not run: {launch.problem}"
            found = Verdict(rounding, problem=problem, ran=False)
        else:
            trainer = self._site.job.config.training_type
            found = compare(self._expected, launch.record.exact, trainer, rounding)
        self._site.say(f"{label}: guard {found.state}: {found.words}")
        return found

    def _unsteady(self, why: str) -> RunFailed:
        rate = self._site.job.config.learning_rate
        hint = f"use a learning_rate below {rate:g}" if rate else None
        message = f"the baseline level does not train steadily: {why}; no guard can judge it"
        return RunFailed(message, "failed", hint)


def in_float32(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices that stay in float32."""
    return [one for one in choices if one.switch.rounding == "float32"]
