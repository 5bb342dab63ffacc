"""Compare two states run by run: both ends before a search, and the culprit's step after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from canary.baseline.comparability import ending
from canary.bisect.journal import Kind, Stage
from canary.bisect.launches import Launches
from canary.bisect.model import CannotRun, State
from canary.bisect.question import (
    CRASH,
    Question,
    check_in,
    choose,
    ends_words,
    is_exact,
    only,
    question_of,
    require_known,
)
from canary.campaign.pairs import PairProgress, Plan, Role, run_pairs
from canary.compare.report import Check, Comparison
from canary.compare.timing.lane import FAMILY_BUDGET
from canary.errors import MachineError, UsageError
from canary.record.types import RunRecord


class Comparer(Protocol):
    """Judges records against others with the limits of the good end's config."""

    def __call__(
        self,
        current: Sequence[RunRecord],
        baseline: Sequence[RunRecord],
        *,
        paired: bool = False,
        budget: float = FAMILY_BUDGET,
    ) -> Comparison: ...


_NAMES: dict[Stage, dict[Role, str]] = {
    "ends": {"base": "good end", "head": "bad end"},
    "last": {"base": "without it", "head": "with it"},
}


@dataclass
class Ends:
    """Both ends and what to follow between them."""

    found: Comparison
    runs: list[tuple[Role, RunRecord]]
    """All runs in their order."""
    question: Question | None = None
    """None if it is not decided whether something is worse."""
    words: str = ""
    """The check's values at both ends."""
    why: str = ""
    """Why there is no question."""

    @property
    def head(self) -> list[RunRecord]:
        """The bad end's completed records, or its failed ones if none completed."""
        mine = [record for role, record in self.runs if role == "head"]
        return [record for record in mine if record.status == "completed"] or mine

    @property
    def base(self) -> list[RunRecord]:
        """The good end's completed records."""
        return [r for role, r in self.runs if role == "base" and r.status == "completed"]


@dataclass
class _Sides:
    """Runs two states by turns and keeps their records."""

    launches: Launches
    stage: Stage
    states: dict[Role, State]
    runs: list[tuple[Role, RunRecord]] = field(default_factory=list)
    progress: PairProgress | None = None

    def run(self, role: Role, kind: Kind) -> RunRecord:
        """Run one side."""
        mine = _NAMES[self.stage][role]
        name = self.progress.next_run(role) if self.progress else f"{kind}, {mine}"
        record = self.launches.run(self.stage, self.states[role], kind, name)
        self.runs.append((role, record))
        return record

    def launch(self, role: Role) -> RunRecord:
        """Run one side as `canary ab` does."""
        return self.run(role, "whole")


def compare_ends(
    launches: Launches,
    bad: State,
    wanted: str | None,
    budget_s: float | None,
    compare: Comparer,
    say: Callable[[str], None],
) -> Ends:
    """Run both ends and choose what to follow. Only the looks run if they show it.

    Raises:
        UsageError: nothing is worse, or the wanted check is unknown or not worse.
        MachineError: an end cannot run, or the ends cannot be compared.
    """
    if wanted is not None:
        require_known(wanted)
    sides = _Sides(launches, "ends", {"base": 0, "head": bad})
    try:
        ends = None
        if wanted is None or is_exact(wanted):
            ends = _by_looks(sides, wanted, compare)
        if ends is None:
            plan = Plan(None, launches.allowed("ends", budget_s))
            ends = _by_pairs(sides, plan, wanted, compare, say)
    except CannotRun as why:
        label = launches.bench.label(sides.states["head" if sides.runs else "base"])
        end = "bad" if sides.runs else "good"
        raise MachineError(f"the {end} end ({label}) does not run: {why}") from why
    return _with_question(ends, wanted, compare)


def _by_looks(sides: _Sides, wanted: str | None, compare: Comparer) -> Ends | None:
    """Compare the ends' looks; None if they do not answer. `wanted`: None for the first red check
    without noise."""
    base, head = sides.run("base", "look"), sides.run("head", "look")
    if {base.status, head.status} != {"completed"}:
        return None
    found = compare([head], [base])
    if wanted is not None:
        check = check_in(found, wanted)
        if check is None or check.status in ("skip", "inconclusive"):
            return None
        answers = check.failed
    else:
        answers = _shown_by_looks(found)
        if not answers:
            return None
    if answers:
        # A second look at the good end shows what differs between equal runs.
        again = sides.run("base", "look")
        if again.status == "completed":
            found = compare([head], [base, again])
    return Ends(found, sides.runs) if wanted or _shown_by_looks(found) else None


def _shown_by_looks(found: Comparison) -> bool:
    """Whether a check without noise is red, and leads all that is."""
    try:
        return is_exact(choose(found, None))
    except UsageError:
        return False


def _by_pairs(
    sides: _Sides,
    plan: Plan,
    wanted: str | None,
    compare: Comparer,
    say: Callable[[str], None],
) -> Ends:
    """Run pairs until the wanted check, or the whole comparison, is decided."""
    last: list[Comparison] = []

    def judge(head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
        found = compare(head, base, paired=len(head) == len(base), budget=budget)
        last.append(found)
        return only(found, wanted) if wanted else found

    sides.runs.clear()
    sides.progress = PairProgress(say, plan, names=_NAMES[sides.stage])
    found, _ = run_pairs(
        plan, sides.launch, judge, sides.progress, lambda: sides.launches.journal.seconds
    )
    return Ends(last[-1] if last else found, sides.runs)


def _with_question(ends: Ends, wanted: str | None, compare: Comparer) -> Ends:
    """Choose what to follow."""
    found = ends.found
    crashed = found.verdict == "regression" and not found.checks
    if crashed:
        if wanted not in (None, CRASH):
            raise UsageError(
                f"--check {wanted} is not judged: the bad end does not complete",
                "follow that with --check crash",
            )
        ends.question = question_of(CRASH, found, ends.head, ends.base, compare)
        ends.words = f"good completes; bad {ending(ends.head[-1])}"
        return ends
    if found.verdict == "error":
        raise MachineError(f"the ends cannot be compared: {_without_prefix(found.first_line)}")
    open_check = _undecided(found, wanted)
    if open_check is not None:
        ends.why = f"{open_check.name} between the ends is not decided: {ends_words(open_check)}"
        return ends
    name = choose(found, wanted)
    ends.question = question_of(name, found, ends.head, ends.base, compare)
    ends.words = ends_words(found.check(name))
    return ends


def _undecided(found: Comparison, wanted: str | None) -> Check | None:
    """Return the check that noise leaves open, if there is nothing else to follow."""
    if wanted is not None:
        check = check_in(found, wanted)
        return check if check is not None and check.status == "inconclusive" else None
    if found.verdict != "inconclusive":
        return None
    return next((check for check in found.checks if check.status == "inconclusive"), None)


def _without_prefix(line: str) -> str:
    return line.removeprefix("Error: ").removesuffix(".")


@dataclass(frozen=True)
class Last:
    """What the last step showed."""

    found: Comparison | None
    words: str
    confirmed: bool


def last_pairs(
    launches: Launches,
    without: State,
    with_it: State,
    question: Question,
    budget_s: float | None,
    compare: Comparer,
    say: Callable[[str], None],
) -> Last:
    """Run a suspect and the state before it by turns, until the check is decided.

    Raises:
        CannotRun: one of them does not build.
    """
    sides = _Sides(launches, "last", {"base": without, "head": with_it})
    if question.check == CRASH:
        return _crash_again(sides, question)
    if question.signal == "noisy":
        plan = Plan(None, budget_s)
        found = _by_pairs(sides, plan, question.check, compare, say).found
    else:
        kind = question.kinds()[0]
        found = _looked_step(sides, kind, question, compare)
        check = check_in(found, question.check)
        if (check is None or check.status in ("skip", "inconclusive")) and len(
            question.kinds()
        ) > 1:
            found = _looked_step(sides, question.kinds()[1], question, compare)
    check = check_in(found, question.check)
    if check is None:
        return Last(found, _without_prefix(found.first_line), False)
    return Last(found, _step_words(check), check.failed or check.status == "warn")


def _looked_step(sides: _Sides, kind: Kind, question: Question, compare: Comparer) -> Comparison:
    base, head, again = (sides.run(role, kind) for role in ("base", "head", "base"))
    return compare([head], [base, again])


def _crash_again(sides: _Sides, question: Question) -> Last:
    (kind,) = question.kinds()
    base, head = (question.read(sides.run(role, kind)) for role in ("base", "head"))
    assert base is not None
    assert head is not None
    words = f"without it: {base.words}; with it: {head.words}"
    return Last(None, words, (base.outcome, head.outcome) == ("good", "bad"))


def _step_words(check: Check) -> str:
    return check.message.rstrip(".")
