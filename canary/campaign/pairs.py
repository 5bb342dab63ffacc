"""Alternating runs of two sides, looked at three times, stopped as soon as the answer is there.

Pure of processes and clocks: what launches a run, what judges, what tells the time are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from canary.baseline.comparability import how_it_ended
from canary.compare.report import Check, Comparison
from canary.compare.timing.sequential import (
    LOOKS,
    decided_by_exact,
    exact_failures,
    is_settled,
    look_budget,
)
from canary.record.types import RunRecord

Role = Literal["base", "head"]
ROLES: tuple[Role, Role] = ("base", "head")
PROBED_PAIRS = 2
"""One pair with a probe to compare, one more to see what differs between equal runs."""
BY_EXACT = (
    "stopped early: the exact lane failed, and more pairs would not change that; "
    "--pairs N measures the speed too"
)
ATTEMPTS = 2
"""A run that fails is run once more; a side that fails twice has failed."""


@dataclass(frozen=True)
class Plan:
    """How many pairs, and within what time."""

    pairs: int | None = None
    """A fixed number; None: looks at 3, 5 and 8."""
    budget_s: float | None = None
    probed: int = PROBED_PAIRS
    """Pairs that run the probe."""

    @property
    def most(self) -> int:
        """Pairs at most."""
        return self.pairs or max(LOOKS)

    def is_look(self, pairs: int) -> bool:
        """Whether the runs are judged after so many pairs."""
        return pairs == self.pairs if self.pairs else pairs in LOOKS

    def error_budget(self, pairs: int) -> float:
        """False alarms allowed to the look at, or next after, so many pairs."""
        if self.pairs:
            return look_budget(0)
        return look_budget(next((look for look in LOOKS if look >= pairs), max(LOOKS)))


class RunSide(Protocol):
    """Runs one side once and returns its record, however it ended."""

    def __call__(self, role: Role, *, probe: bool) -> RunRecord: ...


class Judge(Protocol):
    """Compares two sides whose runs alternated."""

    def __call__(
        self, head: list[RunRecord], base: list[RunRecord], budget: float
    ) -> Comparison: ...


class PairListener(Protocol):
    """Hears how the runs go."""

    def ran(self, pair: int, role: Role, record: RunRecord, seconds: float) -> None: ...

    def narrowed(self, pairs: int, clock: Check | None) -> None: ...

    def differs(self, pairs: int, found: Comparison) -> None: ...

    def looked(self, pairs: int, found: Comparison, next_look: int | None) -> None: ...


@dataclass
class Runs:
    """What has run: completed records, the i-th of one side beside the i-th of the other."""

    base: list[RunRecord] = field(default_factory=list)
    head: list[RunRecord] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Runs that failed once and then completed, in words."""
    failed: list[RunRecord] = field(default_factory=list)
    """All that did not complete, repeated or not."""

    def of(self, role: Role) -> list[RunRecord]:
        """One side's."""
        return self.base if role == "base" else self.head


def run_pairs(
    plan: Plan,
    launch: RunSide,
    judge: Judge,
    watcher: PairListener,
    clock: Callable[[], float],
) -> tuple[Comparison, Runs]:
    """Runs pairs in the order base head, head base, ... until decided, done or out of time. Without
    a fixed number, a failure of the exact lane decides it: more pairs would not take it back.

    A side that fails twice in a row ends it: the head's failing is a regression where a run of the
    base completed, the base's is an error.
    """
    runs, started = Runs(), clock()
    found: Comparison | None = None
    pairs = 0
    while pairs < plan.most and _time_left(plan, pairs, clock() - started):
        failed = _run_pair(pairs, plan, runs, launch, watcher, clock)
        if failed:
            head, base = failed
            found = judge(head, base, plan.error_budget(pairs)) if head else _no_base(base[-1])
            return _with_notes(found, runs, ""), runs
        pairs += 1
        found = None
        shown = judge(runs.head, runs.base, plan.error_budget(pairs))
        watcher.narrowed(pairs, _clock(shown))
        if pairs == 1 and exact_failures(shown):
            watcher.differs(pairs, shown)
        decided = plan.pairs is None and decided_by_exact(shown, runs.head, runs.base)
        if plan.is_look(pairs) or decided:
            found = shown
            settled = decided or is_settled(found) or pairs == plan.most
            following = None if settled else next(look for look in LOOKS if look > pairs)
            watcher.looked(pairs, found, following)
            if settled:
                return _with_notes(found, runs, "" if plan.is_look(pairs) else BY_EXACT), runs
    stopped = f"stopped after {pairs} pair{'s' if pairs != 1 else ''}: the time budget is spent"
    if found is None:
        found = judge(runs.head, runs.base, plan.error_budget(pairs))
        watcher.looked(pairs, found, None)
    return _with_notes(found, runs, stopped), runs


def _time_left(plan: Plan, pairs: int, spent: float) -> bool:
    """Whether another pair fits; the first always runs."""
    if plan.budget_s is None or pairs == 0:
        return True
    return spent * (pairs + 1) / pairs <= plan.budget_s


def _run_pair(
    pair: int,
    plan: Plan,
    runs: Runs,
    launch: RunSide,
    watcher: PairListener,
    clock: Callable[[], float],
) -> tuple[list[RunRecord], list[RunRecord]] | None:
    """Adds a pair; or returns (head, base) to be judged, where one side failed for good."""
    for role in ROLES if pair % 2 == 0 else ROLES[::-1]:
        failures: list[RunRecord] = []
        while True:
            before = clock()
            record = launch(role, probe=pair < plan.probed)
            watcher.ran(pair, role, record, clock() - before)
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


def _no_base(failed: RunRecord) -> Comparison:
    """The base fails, and nothing ran beside it."""
    return Comparison("error", f"Error: the base does not run: {how_it_ended(failed)}.")


def _clock(found: Comparison) -> Check | None:
    """What tells most of the speed: of a step time that is too noisy, CPU time."""
    checks = {check.name: check for check in found.checks if check.status != "skip"}
    step, cpu = checks.get("step_time_median"), checks.get("cpu_time")
    return cpu if step is None or (cpu and step.status == "inconclusive") else step


def _with_notes(found: Comparison, runs: Runs, stopped: str) -> Comparison:
    extra = [*runs.repeated, *filter(None, [stopped])]
    return replace(found, notes=(*found.notes, *extra))
