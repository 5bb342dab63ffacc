"""Find the phases of a step that grew by more than a slower machine explains.

A slower machine scales all phases alike. So a phase is expected to take its baseline times a common
factor, the median of all phases' factors; any time beyond that is its growth. No phase has more
weight in that median than a twentieth of the step, or the longest would explain itself. CPU
seconds, which other work on the machine changes least, are compared in the same way. Growth in
either counts.

Limit: a change that slows most phases by one factor, such as a kernel used everywhere, looks like a
slower machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from canary.compare.report import Records
from canary.compare.timing.lane import tokens_per_step
from canary.record.phases import PHASES, all_or_none, phases_of_launches, typical_phases

Seconds = Mapping[str, float]

LARGEST_WEIGHT = 0.05
"""Largest weight of one phase in the median of the factors, as a share of the step."""
MIN_DF = 3
"""Degrees of freedom from which on the launches' scatter is the noise; below, a prior is."""
NOISE_FLOOR = 0.03
"""Smallest credible spread: a few launches may agree by luck."""
OF_STEP = 0.01
"""Noise that every phase has, as a share of the step: a random interruption delays a short phase as
much as a long one."""
TIMES_NOISE = 3.0
"""A phase stands out if it grew by so many standard deviations."""
SHARE_OF_STEP = 0.03
"""And by at least this share of the step: smaller growth explains no regression."""
WALL_NOISE, CPU_NOISE = 0.12, 0.06
"""Assumed standard deviations of the logarithm of a launch's phase about the common factor."""


@dataclass(frozen=True)
class PhaseGrowth:
    """One phase on both sides, in seconds per step."""

    phase: str
    baseline_s: float
    current_s: float
    expected_s: float
    """The baseline's seconds on a machine as fast as the current one."""
    share: float
    """Share of all phases' time beyond what was expected: 0 to 1."""
    stands_out: bool
    """Whether growth in wall time or CPU time is above the noise and large enough to matter."""
    stands_out_in_cpu: bool
    """Whether CPU time alone shows it."""
    baseline_cpu_s: float | None = None
    """CPU seconds of the process; None if a side did not measure them."""
    current_cpu_s: float | None = None

    @property
    def growth_s(self) -> float:
        """Return the seconds beyond what was expected."""
        return self.current_s - self.expected_s


@dataclass(frozen=True)
class StepGrowth:
    """The phases of a step; the one that grew most comes first."""

    phases: tuple[PhaseGrowth, ...]
    baseline_s: float
    current_s: float

    @property
    def grown(self) -> tuple[PhaseGrowth, ...]:
        """Return the phases that stand out."""
        return tuple(phase for phase in self.phases if phase.stands_out)


@dataclass(frozen=True)
class _ComparedPhases:
    """Seconds by phase on both sides, with what was expected and the noise."""

    now: Seconds
    before: Seconds
    expected: Seconds
    noise: Seconds

    def beyond(self, name: str) -> float:
        return max(0.0, self.now[name] - self.expected[name])

    def stands_out(self, name: str) -> bool:
        """Return whether a phase grew; it must also have become slower in plain seconds."""
        least = SHARE_OF_STEP * sum(self.expected.values())
        grew = self.now[name] > self.before[name]
        return grew and self.beyond(name) > max(TIMES_NOISE * self.noise[name], least)


def phase_growth(current: Records, baseline: Records) -> StepGrowth | None:
    """Return how the phases of a step grew; None if a side recorded no phases."""
    longer = _generated(current, baseline)
    here, there = phases_of_launches(current), phases_of_launches(baseline)
    wall = _compare(here, there, WALL_NOISE, longer)
    if wall is None:
        return None
    cpu = _compare(_cpu(current), _cpu(baseline), CPU_NOISE, longer)
    # With a GPU, the host's CPU seconds are mostly spent waiting for it.
    devices = [record.env.get("device") or {} for record in (*current, *baseline)]
    judged = None if any(device.get("type") == "cuda" for device in devices) else cpu
    total = sum(map(wall.beyond, PHASES))
    found = []
    for name in PHASES:
        in_cpu = judged is not None and judged.stands_out(name)
        if wall.now[name] or wall.before[name]:
            found.append(
                PhaseGrowth(
                    name,
                    wall.before[name],
                    wall.now[name],
                    wall.expected[name],
                    wall.beyond(name) / total if total else 0.0,
                    wall.stands_out(name) or in_cpu,
                    in_cpu,
                    cpu.before[name] if cpu else None,
                    cpu.now[name] if cpu else None,
                )
            )
    return StepGrowth(
        tuple(sorted(found, key=lambda phase: -phase.growth_s)),
        sum(wall.before.values()),
        sum(wall.now.values()),
    )


def _compare(
    here: Sequence[Seconds], there: Sequence[Seconds], usual: float, longer: float
) -> _ComparedPhases | None:
    """Compare one clock of both sides; `usual`: its noise, `longer`: how much more is generated."""
    if not here or not there:
        return None
    now, before = typical_phases(here), typical_phases(there)
    machine = _common_factor(now, before)
    expected = {name: machine * seconds for name, seconds in before.items()}
    expected["generation"] *= longer
    spreads, step_s = _spreads(here, there, usual), sum(expected.values())
    launches = math.sqrt(1 / len(here) + 1 / len(there))
    noise = {
        name: launches * math.hypot(spreads[name] * expected[name], OF_STEP * step_s)
        for name in PHASES
    }
    return _ComparedPhases(now, before, expected, noise)


def _cpu(records: Records) -> list[dict[str, float]]:
    """Return CPU seconds by phase of each launch; an empty list if one did not measure them."""
    launches = (launch for record in records for launch in record.launches)
    return all_or_none(launch.phases_cpu for launch in launches if launch.status == "completed")


def _common_factor(now: Seconds, before: Seconds) -> float:
    """Return the factor that most phases agree on: a weighted median, the lower of two that tie."""
    step = sum(before.values())
    factors = sorted(
        (now.get(name, 0.0) / before[name], min(LARGEST_WEIGHT, before[name] / step))
        for name in PHASES
        if now.get(name, 0.0) > 0 and before[name] > 0
    )
    half, passed = sum(weight for _, weight in factors) / 2, 0.0
    for factor, weight in factors:
        passed += weight
        if passed >= half:
            return factor
    return 1.0


def _generated(now: Records, before: Records) -> float:
    """Return the ratio of generated tokens, by which generation may take longer."""
    tokens = [
        [tokens_per_step(record, "completion_tokens") for record in side] for side in (now, before)
    ]
    if not all(side and all(side) for side in tokens):
        return 1.0
    here, there = (statistics.fmean(count for count in side if count) for side in tokens)
    return here / there


def _spreads(here: Sequence[Seconds], there: Sequence[Seconds], usual: float) -> Seconds:
    """Return the standard deviation of the logarithm of one launch's phase.

    It is about the side's median, after each launch's common factor is removed.
    """
    df = len(here) + len(there) - 2
    if df < MIN_DF:
        return dict.fromkeys(PHASES, usual)
    squares = dict.fromkeys(PHASES, 0.0)
    for side in (here, there):
        typical = typical_phases(side)
        for launch in side:
            machine = _common_factor(launch, typical)
            for name in PHASES:
                if launch.get(name, 0.0) > 0 and typical[name] > 0:
                    squares[name] += math.log(launch[name] / typical[name] / machine) ** 2
    return {name: max(NOISE_FLOOR, math.sqrt(square / df)) for name, square in squares.items()}
