"""Which part of a step grew: seconds by phase, held against what the machine alone explains.

A machine that is slower as a whole scales all phases alike. So each phase of the current side is
held against its baseline times a common factor, the median of the phases' own factors, and what it
took beyond that is its growth. No phase counts for more than a twentieth in that median, or the
longest one would always explain itself. CPU seconds, which other work on the machine moves least,
are held against the baseline's in the same way: a phase stands out by either.

What this cannot see: a change that slows most phases by one factor, as a kernel used everywhere
may, looks like a slower machine here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from canary.compare.timing.lane import completion_tokens_per_step
from canary.record.phases import PHASES
from canary.record.types import Launch, RunRecord

Seconds = Mapping[str, float]

LARGEST_WEIGHT = 0.05
"""Of one phase in the median of the factors, as a share of the step."""
MIN_DF = 3
"""Degrees of freedom from which on the launches' own scatter is the noise; below, a prior."""
NOISE_FLOOR = 0.03
"""Spreads below this are not believed: few launches agree by luck."""
OF_STEP = 0.01
"""Part of the noise that is a share of the step, whatever the phase: what a machine does now and
then hits a short phase as hard as a long one."""
TIMES_NOISE = 3.0
"""A phase stands out when it grew by so many standard deviations."""
SHARE_OF_STEP = 0.03
"""And by at least so much of the step: what is smaller explains no regression."""


@dataclass(frozen=True)
class PhaseGrowth:
    """One phase on both sides, in seconds a step."""

    phase: str
    baseline_s: float
    current_s: float
    expected_s: float
    """The baseline's, on a machine as fast as the current one."""
    share: float
    """Of all that the phases took beyond what was expected: 0 to 1."""
    noise_s: float
    """Standard deviation of the growth of a phase that did not change."""
    stands: bool
    """Whether the growth is above the noise and large enough to matter, by the clock or in CPU
    seconds."""
    baseline_cpu_s: float | None = None
    """CPU seconds of the process; None where a side did not measure them."""
    current_cpu_s: float | None = None
    stands_in_cpu: bool = False
    """Whether the CPU seconds alone say so."""

    @property
    def growth_s(self) -> float:
        """Seconds beyond what was expected."""
        return self.current_s - self.expected_s


@dataclass(frozen=True)
class StepGrowth:
    """The phases of a step, the one that grew most first."""

    phases: tuple[PhaseGrowth, ...]
    machine: float
    """How many times longer the current side takes for what did not change."""
    baseline_s: float
    current_s: float
    baseline_cpu_s: float | None = None
    """CPU seconds of the process a step, all threads; None where a side did not measure them."""
    current_cpu_s: float | None = None

    @property
    def grown(self) -> tuple[PhaseGrowth, ...]:
        """The phases that stand out."""
        return tuple(phase for phase in self.phases if phase.stands)

    def of(self, phase: str) -> PhaseGrowth | None:
        """The phase of that name, where either side has it."""
        return next((found for found in self.phases if found.phase == phase), None)


@dataclass(frozen=True)
class _Kind:
    """A way to take the time."""

    noise: float
    """Standard deviation of the logarithm of one launch's phase about the common factor, where
    the launches did not measure it."""


WALL, CPU = _Kind(noise=0.12), _Kind(noise=0.06)


@dataclass(frozen=True)
class _Held:
    """Seconds by phase, one side against the other."""

    now: Seconds
    before: Seconds
    expected: Seconds
    noise: Seconds
    machine: float

    def beyond(self, name: str) -> float:
        return max(0.0, self.now[name] - self.expected[name])

    def stands(self, name: str) -> bool:
        """Also by the clock as it is: a phase that got faster, and others more so, did not grow."""
        least = SHARE_OF_STEP * sum(self.expected.values())
        grew = self.now[name] > self.before[name]
        return grew and self.beyond(name) > max(TIMES_NOISE * self.noise[name], least)

    def share(self, name: str) -> float:
        total = sum(self.beyond(each) for each in PHASES)
        return self.beyond(name) / total if total else 0.0


def phase_growth(
    current: RunRecord | Sequence[RunRecord], baseline: RunRecord | Sequence[RunRecord]
) -> StepGrowth | None:
    """What grew in a step; None where a side tells no phases."""
    now, before = (_records(side) for side in (current, baseline))
    longer = _generated(now, before)
    wall = _held(*_alike(_wall(now), _wall(before)), WALL, longer)
    if wall is None:
        return None
    cpu = _held(*_alike(_cpu(now), _cpu(before)), CPU, longer)
    # Where a GPU works, the host's CPU seconds are mostly its waiting for it.
    judged = cpu if not any(_on_gpu(record) for record in (*now, *before)) else None
    found = [
        PhaseGrowth(
            phase=name,
            baseline_s=wall.before[name],
            current_s=wall.now[name],
            expected_s=wall.expected[name],
            share=wall.share(name),
            noise_s=wall.noise[name],
            stands=wall.stands(name) or (judged is not None and judged.stands(name)),
            baseline_cpu_s=cpu.before[name] if cpu else None,
            current_cpu_s=cpu.now[name] if cpu else None,
            stands_in_cpu=judged is not None and judged.stands(name),
        )
        for name in PHASES
        if wall.now[name] or wall.before[name]
    ]
    return StepGrowth(
        phases=tuple(sorted(found, key=lambda phase: -phase.growth_s)),
        machine=wall.machine,
        baseline_s=sum(wall.before.values()),
        current_s=sum(wall.now.values()),
        baseline_cpu_s=sum(cpu.before.values()) if cpu else None,
        current_cpu_s=sum(cpu.now.values()) if cpu else None,
    )


def _held(
    here: Sequence[Seconds], there: Sequence[Seconds], kind: _Kind, longer: float
) -> _Held | None:
    if not here or not there:
        return None
    now, before = _typical(here), _typical(there)
    machine = _common_factor(now, before)
    expected = {name: machine * seconds for name, seconds in before.items()}
    expected["generation"] *= longer
    spreads, step_s = _spreads(here, there, kind), sum(expected.values())
    launches = math.sqrt(1 / len(here) + 1 / len(there))
    noise = {
        name: launches * math.hypot(spreads[name] * expected[name], OF_STEP * step_s)
        for name in PHASES
    }
    return _Held(now, before, expected, noise, machine)


def _records(side: RunRecord | Sequence[RunRecord]) -> list[RunRecord]:
    return [side] if isinstance(side, RunRecord) else list(side)


def _on_gpu(record: RunRecord) -> bool:
    device = record.env.get("device") or {}
    return bool(device.get("type") == "cuda")


def _measured(records: Iterable[RunRecord]) -> list[Launch]:
    return [
        launch
        for record in records
        for launch in record.launches
        if launch.kind == "measured" and launch.status == "completed"
    ]


def _wall(records: Sequence[RunRecord]) -> list[dict[str, float]]:
    """Seconds by phase of each launch; the means of whole records where launches hold none, as in
    records of earlier versions."""
    launches = _all_phases(launch.phases_steady for launch in _measured(records))
    return launches or _all_phases(record.phases for record in records if record.phases)


def _cpu(records: Sequence[RunRecord]) -> list[dict[str, float]]:
    """CPU seconds by phase of each launch; empty where one did not measure them."""
    return _all_phases(launch.phases_cpu for launch in _measured(records))


def _all_phases(found: Iterable[Seconds]) -> list[dict[str, float]]:
    launches = list(found)
    return [dict(phases) for phases in launches] if all(launches) else []


def _alike(
    here: Sequence[Seconds], there: Sequence[Seconds]
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Both sides with all phases. Where one is of a version that timed no evaluation, most of
    which then was `forward`, it is so on both."""
    untold = any("evaluation" not in launch for launch in (*here, *there))
    sides = []
    for side in (here, there):
        launches = [{name: launch.get(name, 0.0) for name in PHASES} for launch in side]
        for launch in launches if untold else ():
            launch["forward"] += launch["evaluation"]
            launch["evaluation"] = 0.0
        sides.append(launches)
    return sides[0], sides[1]


def _typical(launches: Sequence[Seconds]) -> dict[str, float]:
    return {name: statistics.median(launch[name] for launch in launches) for name in PHASES}


def _common_factor(now: Seconds, before: Seconds) -> float:
    """The weighted median of the phases' factors, the lower one of two that tie: what most phases
    agree on is the machine."""
    step = sum(before.values())
    factors = sorted(
        (now[name] / before[name], min(LARGEST_WEIGHT, before[name] / step))
        for name in PHASES
        if now[name] > 0 and before[name] > 0
    )
    half, passed = sum(weight for _, weight in factors) / 2, 0.0
    for factor, weight in factors:
        passed += weight
        if passed >= half:
            return factor
    return 1.0


def _generated(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> float:
    """How many times more tokens the current side generates: that much longer it may take."""
    tokens = [[completion_tokens_per_step(record) for record in side] for side in (now, before)]
    if not all(count for side in tokens for count in side):
        return 1.0
    here, there = (statistics.fmean(count for count in side if count) for side in tokens)
    return here / there


def _spreads(here: Sequence[Seconds], there: Sequence[Seconds], kind: _Kind) -> dict[str, float]:
    """Standard deviation of the logarithm of one launch's phase: from the launches of each side
    about what is typical of it, each launch's own factor taken out."""
    df = len(here) + len(there) - 2
    if df < MIN_DF:
        return dict.fromkeys(PHASES, kind.noise)
    squares = dict.fromkeys(PHASES, 0.0)
    for side in (here, there):
        typical = _typical(side)
        for launch in side:
            machine = _common_factor(launch, typical)
            for name in PHASES:
                if launch[name] > 0 and typical[name] > 0:
                    squares[name] += math.log(launch[name] / typical[name] / machine) ** 2
    return {name: max(NOISE_FLOOR, math.sqrt(square / df)) for name, square in squares.items()}
