"""Time the levels in rounds: one launch of each level per round, in alternating order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from canary.ladder.launching import LaunchResult
from canary.ladder.measure import Figures, SpeedUp, figures_of, speed_up
from canary.ladder.same_work import unequal, work_of
from canary.record.types import RunRecord


@dataclass
class Arm:
    """One thing to time once per round: a level, trl's defaults, or a switch."""

    label: str
    start: Callable[[], LaunchResult]
    ran: list[LaunchResult] = field(default_factory=list)

    @property
    def failed(self) -> str:
        """Why a launch did not complete; empty if all did."""
        return next((one.problem for one in self.ran if one.problem), "")

    @property
    def speeds(self) -> list[float]:
        """Samples per second of its launches."""
        return [one.speed for one in self.ran if one.speed]

    @property
    def records(self) -> list[RunRecord]:
        """The records of its completed launches."""
        return [one.record for one in self.ran if one.record is not None and not one.problem]

    @property
    def figures(self) -> Figures | None:
        """The figures of its completed launches; None without any."""
        return figures_of(self.records) if self.records else None


def time_rounds(arms: Sequence[Arm], rounds: int, say: Callable[[str], None]) -> None:
    """Run every arm once per round. An arm that failed has no ratio and is not run again."""
    for number in range(rounds):
        for arm in arms if number % 2 == 0 else list(reversed(arms)):
            if arm.failed:
                continue
            say(f"round {number + 1} of {rounds}: {arm.label}")
            launch = arm.start()
            arm.ran.append(launch)
            speed = launch.speed
            result = f"{speed:,.1f} samples/s" if speed else f"did not run: {launch.problem}"
            say(f"round {number + 1} of {rounds}: {arm.label}: {result}")


def problem_of(arm: Arm, reference: Arm) -> str:
    """Return why two arms have no ratio; empty if they have one."""
    if arm.failed:
        return arm.failed
    if reference.failed:
        return f"{reference.label} did not run: {reference.failed}"
    if len(arm.speeds) != len(reference.speeds) or not arm.speeds:
        return "a launch has no speed: it has too few steps after warm-up"
    for one, other in zip(arm.ran, reference.ran, strict=True):
        difference = unequal(work_of(other.rows), work_of(one.rows))
        if difference:
            return f"unequal work: {difference}"
    return ""


def ratio_of(arm: Arm, reference: Arm) -> SpeedUp | None:
    """Return how much faster an arm is; None if `problem_of` gives a reason."""
    return None if problem_of(arm, reference) else speed_up(arm.speeds, reference.speeds)
