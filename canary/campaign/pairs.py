"""Alternate runs of two sides and stop as soon as the answer is clear.

No process and no clock here: the functions that run, judge and tell the time are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from canary.baseline.comparability import how_it_ended
from canary.compare.report import Check, Comparison
from canary.compare.timing.estimate import signed_percent
from canary.compare.timing.lane import (
    DECISIONS,
    decided_by_exact,
    decision_budget,
    exact_failures,
    is_settled,
)
from canary.errors import counted
from canary.record.types import RunRecord
from canary.report.view import TELLS_NOTHING, TOO_NOISY

if TYPE_CHECKING:
    from canary.campaign.side import Side

Role = Literal["base", "head"]
ROLES: tuple[Role, Role] = ("base", "head")
BY_EXACT = (
    "stopped early: an exact check failed, and more pairs would not change that; "
    "measure the speed too with --pairs N"
)
ATTEMPTS = 2
"""A failed run is repeated once; a side that fails twice in a row has failed."""


@dataclass(frozen=True)
class Plan:
    """How many pairs to run, and within what time."""

    pairs: int | None = None
    """A fixed number; None: decide after 3, 5 or 8 pairs."""
    budget_s: float | None = None

    @property
    def most(self) -> int:
        """The largest number of pairs."""
        return self.pairs or max(DECISIONS)

    def decides_after(self, pairs: int) -> bool:
        """Whether this number of pairs may decide."""
        return pairs == self.pairs if self.pairs else pairs in DECISIONS

    def error_budget(self, pairs: int) -> float:
        """Rate of false alarms allowed at the decision after so many pairs, or at the next one."""
        if self.pairs:
            return decision_budget(0)
        return decision_budget(next((one for one in DECISIONS if one >= pairs), max(DECISIONS)))


RunSide = Callable[[Role], RunRecord]
"""Runs one side once and returns its record, even if the run failed."""
Judge = Callable[[list[RunRecord], list[RunRecord], float], Comparison]
"""Compares head and base, whose runs alternated, within an error budget."""


@dataclass
class Runs:
    """The records of both sides; completed ones are paired by index."""

    base: list[RunRecord] = field(default_factory=list)
    head: list[RunRecord] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """A sentence for each run that failed once and then completed."""
    failed: list[RunRecord] = field(default_factory=list)
    """All runs that did not complete, repeated or not."""

    def of(self, role: Role) -> list[RunRecord]:
        """Return the completed records of one side."""
        return self.base if role == "base" else self.head


def run_pairs(
    plan: Plan,
    launch: RunSide,
    judge: Judge,
    watcher: PairProgress,
    clock: Callable[[], float],
) -> tuple[Comparison, Runs]:
    """Run pairs (base head, head base, ...) until decided, complete or out of time.

    Without a fixed number of pairs, a failed exact check decides at once: more pairs would not
    change it. A side that fails twice in a row ends the comparison: a failing head is a regression
    if a run of the base completed, a failing base is an error.
    """
    runs, started = Runs(), clock()
    found: Comparison | None = None
    pairs = 0
    while pairs < plan.most and _time_left(plan, pairs, clock() - started):
        failed = _run_pair(pairs, runs, launch, watcher, clock)
        if failed:
            head, base = failed
            if head:
                found = judge(head, base, plan.error_budget(pairs))
            else:
                why = how_it_ended(base[-1])
                found = Comparison("error", f"Error: the base does not run: {why}.")
            return _with_notes(found, runs, ""), runs
        pairs += 1
        found = None
        shown = judge(runs.head, runs.base, plan.error_budget(pairs))
        watcher.pair_ended(pairs, _clock(shown))
        if pairs == 1 < plan.most and exact_failures(shown):
            watcher.exact_failed(pairs, shown)
        decided = plan.pairs is None and decided_by_exact(shown, runs.base)
        if plan.decides_after(pairs) or decided:
            found = shown
            settled = decided or is_settled(found) or pairs == plan.most
            next_decision = None if settled else next(one for one in DECISIONS if one > pairs)
            watcher.judged(pairs, found, next_decision)
            if settled:
                return _with_notes(found, runs, "" if plan.decides_after(pairs) else BY_EXACT), runs
    stopped = f"stopped after {counted(pairs, 'pair')}: the time budget is used up"
    if found is None:
        found = judge(runs.head, runs.base, plan.error_budget(pairs))
        watcher.judged(pairs, found, None)
    return _with_notes(found, runs, stopped), runs


def _time_left(plan: Plan, pairs: int, spent: float) -> bool:
    """Whether the budget has time for another pair; the first pair always runs."""
    if plan.budget_s is None or pairs == 0:
        return True
    return spent * (pairs + 1) / pairs <= plan.budget_s


def _run_pair(
    pair: int, runs: Runs, launch: RunSide, watcher: PairProgress, clock: Callable[[], float]
) -> tuple[list[RunRecord], list[RunRecord]] | None:
    """Add a pair to `runs`; if a side failed for good, return (head, base) to judge instead."""
    for role in ROLES if pair % 2 == 0 else ROLES[::-1]:
        failures: list[RunRecord] = []
        while True:
            before = clock()
            record = launch(role)
            watcher.run_ended(pair, role, record, clock() - before)
            if record.status == "completed":
                break
            failures.append(record)
            runs.failed.append(record)
            if len(failures) == ATTEMPTS:
                if role == "head":
                    return failures, runs.base
                return runs.head, failures
        runs.of(role).append(record)
        runs.repeated += [
            f"{role}: a run ended as {failed.status} ({failed.reason}) and was repeated"
            for failed in failures
        ]
    return None


def _clock(found: Comparison) -> Check | None:
    """Return the check of step time, or that of CPU time if step time is too noisy or missing."""
    checks = {check.name: check for check in found.checks if check.status != "skip"}
    step, cpu = checks.get("step_time_median"), checks.get("cpu_time")
    return cpu if step is None or (cpu and step.status == "inconclusive") else step


def _with_notes(found: Comparison, runs: Runs, stopped: str) -> Comparison:
    extra = [*runs.repeated, *filter(None, [stopped])]
    return replace(found, notes=(*found.notes, *extra))


def speed_words(record: RunRecord) -> str:
    """Return a completed run's speed, aligned with that of others."""
    timed = record.perf.step_time
    if timed.count:
        return f"{1000 * timed.median:8.1f} ms per step (median)"
    return "no step times" if record.source is not None else "only the look"


NAMES: Mapping[Role, str] = {"base": "base", "head": "head"}


class PairProgress:
    """Prints the progress line by line."""

    def __init__(
        self,
        say: Callable[[str], None],
        plan: Plan,
        *,
        only_looks: bool = False,
        names: Mapping[Role, str] = NAMES,
        decided: Callable[[], None] = lambda: None,
    ) -> None:
        """`decided` is called before the verdict is printed."""
        self._say = say
        self._decided = decided
        self._plan = plan
        self._only_looks = only_looks
        self._names = names
        self._spent: list[float] = []
        self._next = plan.pairs or DECISIONS[0]

    def started(self, base: Side, head: Side, folder: Path) -> None:
        """Print what is compared, how often, and where the records go."""
        fixed = self._plan.pairs
        how = counted(fixed, "pair") if fixed else "decides after 3, 5 or 8 pairs"
        how = "one look per side" if self._only_looks else how
        self._say(f"base {base.label}, head {head.label}: {how}")
        self._say(f"records: {folder}")

    def run_ended(self, pair: int, role: Role, record: RunRecord, seconds: float) -> None:
        """Print the result of one run and the time to the next decision."""
        self._spent.append(seconds)
        if record.status != "completed":
            self._say(f"pair {pair + 1}  {self._names[role]}  {record.status}: {record.reason}")
            return
        # A repeated run comes on top of the planned ones.
        to_come = max(0, 2 * self._next - len(self._spent))
        left = to_come * sum(self._spent) / len(self._spent)
        more = f"   next decision in about {duration(left)}" if left else ""
        self._say(f"pair {pair + 1}  {self._names[role]}  {speed_words(record)}{more}")

    def pair_ended(self, pairs: int, clock: Check | None) -> None:
        """Print the interval of the step time, or of CPU time per step, so far."""
        if clock is None or clock.interval is None or clock.delta_pct is None:
            return
        low, high = clock.interval
        words = "CPU time per step" if clock.name == "cpu_time" else "median step time"
        known = f"between {signed_percent(low)} and {signed_percent(high)}"
        if high - low > TELLS_NOTHING:
            below = "the exact size is unclear, but it is below the limit"
            known = below if clock.status == "pass" else TOO_NOISY
        after = f"after {counted(pairs, 'pair')}"
        self._say(f"        {words} {signed_percent(clock.delta_pct)}, {known} {after}")

    def exact_failed(self, pairs: int, found: Comparison) -> None:
        """Print the failure of an exact check before the other pairs run."""
        self._say(f"after {counted(pairs, 'pair')}: {found.first_line}")

    def judged(self, pairs: int, found: Comparison, next_decision: int | None) -> None:
        """Print the verdict, or that more pairs follow."""
        if next_decision is None:
            self._decided()
            self._say(f"after {counted(pairs, 'pair')}: {found.verdict}")
            return
        self._next = next_decision
        more = counted(next_decision, "pair")
        self._say(f"after {counted(pairs, 'pair')}: not decided yet, continuing to {more}")


def duration(seconds: float) -> str:
    """Return seconds below a minute and a half, else minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
