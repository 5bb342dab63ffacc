"""Time the levels in rounds: one launch of each level per round, in alternating order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from canary.compare.exact.inputs_stages import rows_of
from canary.ladder.launching import LaunchResult
from canary.ladder.measure import Figures, SpeedUp, figures_of, speed_up
from canary.record.exact import Exact
from canary.record.step_row import Row
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


COUNTS = {
    "samples": "sequences",
    "input_tokens": "tokens without padding",
    "label_tokens": "label tokens",
    "completion_tokens": "completion tokens",
    "updates": "updates",
}
"""Counts of a step's row that measure the work of the job; padding does not count."""
WHERE_BOTH = frozenset({"input_tokens"})
"""Compared only if both launches count it: trl's PPO does not count its input."""


@dataclass(frozen=True)
class Work:
    """The work of each optimizer step of one launch, in order."""

    steps: int
    counts: Mapping[str, tuple[float, ...]]
    """One number per step by key of COUNTS, without keys that the rows lack."""


def work_of(rows: Iterable[Row]) -> Work:
    """Sum up the rows of one launch."""
    found = list(rows)
    counts = {}
    for key in COUNTS:
        values = [row.get(key, (row.get("rl") or {}).get(key)) for row in found]
        known = tuple(float(value) for value in values if isinstance(value, int | float))
        if known and len(known) == len(values):
            counts[key] = known
    return Work(len(found), counts)


def unequal(reference: Work, other: Work) -> str:
    """Describe the first difference from the reference's work; empty if it is equal."""
    if reference.steps != other.steps:
        return f"{other.steps} steps instead of {reference.steps}"
    for key, words in COUNTS.items():
        wanted, found = reference.counts.get(key), other.counts.get(key)
        if (wanted is None) != (found is None) and key in WHERE_BOTH:
            continue
        if (wanted is None) != (found is None):
            who = "the reference" if wanted is None else "this launch"
            return f"{who} does not count its {words}"
        for step, (before, after) in enumerate(zip(wanted or (), found or (), strict=True), 1):
            if before != after:
                return f"{after:,.0f} {words} in step {step} instead of {before:,.0f}"
    return ""


def other_rows(reference: Exact, other: Exact) -> str:
    """Describe the first step whose rows differ from those of the reference's look; empty if all
    are equal. Rows are compared by their ids without padding, in any order."""
    pairs = zip(reference.get("batches", []), other.get("batches", []), strict=False)
    for step, (before, after) in enumerate(pairs, start=1):
        wanted, found = rows_of(before), rows_of(after)
        for name in wanted.keys() & found.keys():
            missing, added = wanted[name] - found[name], found[name] - wanted[name]
            if missing or added:
                return (
                    f"different rows in step {step}: {missing.total()} of {wanted[name].total()} "
                    f"missing, {added.total()} added"
                )
    return ""
