"""Times the levels: a launch of each in every round, forwards and backwards in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from canary.ladder.launching import Ran
from canary.ladder.measure import Figures, SpeedUp, figures_of, speed_up
from canary.ladder.same_work import unequal, work_of

Start = Callable[[], Ran]


@dataclass
class Arm:
    """What is timed once a round."""

    label: str
    start: Start
    ran: list[Ran] = field(default_factory=list)

    @property
    def failed(self) -> str:
        """Why a launch did not complete; empty where all did."""
        return next((one.problem for one in self.ran if one.problem), "")

    @property
    def speeds(self) -> list[float]:
        """Samples a second of its launches."""
        return [one.speed for one in self.ran if one.speed]

    @property
    def figures(self) -> Figures | None:
        """Of its completed launches; None where there is none."""
        records = [one.record for one in self.ran if one.record is not None and not one.problem]
        return figures_of(records) if records else None


def time_rounds(arms: Sequence[Arm], rounds: int, say: Callable[[str], None]) -> None:
    """Runs every arm once a round. An arm that failed is not run again: its ratios are lost, and
    the others' are not."""
    for number in range(rounds):
        for arm in arms if number % 2 == 0 else list(reversed(arms)):
            if arm.failed:
                continue
            say(f"round {number + 1} of {rounds}: {arm.label}")
            ran = arm.start()
            arm.ran.append(ran)
            speed = ran.speed
            said = f"{speed:,.1f} samples/s" if speed else f"did not run: {ran.problem}"
            say(f"round {number + 1} of {rounds}: {arm.label}: {said}")


def problem_of(arm: Arm, reference: Arm) -> str:
    """Why there is no ratio of two arms; empty where there is one."""
    if arm.failed:
        return arm.failed
    if reference.failed:
        return f"{reference.label} did not run: {reference.failed}"
    if len(arm.speeds) != len(reference.speeds) or not arm.speeds:
        return "a launch has no speed: too few steps after warm-up"
    for one, other in zip(arm.ran, reference.ran, strict=True):
        difference = unequal(work_of(other.rows), work_of(one.rows))
        if difference:
            return f"unequal work: {difference}"
    return ""


def ratio_of(arm: Arm, reference: Arm) -> SpeedUp | None:
    """How much faster an arm is; None where `problem_of` has a reason."""
    return None if problem_of(arm, reference) else speed_up(arm.speeds, reference.speeds)
