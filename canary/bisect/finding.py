"""One bisect: compare the ends, search, compare the culprit with the state before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from canary.baseline.comparability import ending
from canary.bisect.candidates import Step
from canary.bisect.journal import Part, Runs
from canary.bisect.noisy import Noisy
from canary.bisect.question import (
    CRASH,
    Kind,
    Question,
    choose,
    ends_words,
    error_words,
    is_judged,
    look_answers,
    only,
    question_of,
)
from canary.bisect.search import Answer, CannotRun, Halving, Make, Search, Seen, SetSearch, State
from canary.campaign.judging import Judge
from canary.campaign.pairs import PairProgress, Plan, Role, duration, run_pairs
from canary.compare.report import Check, Comparison
from canary.errors import MachineError, UsageError, counted
from canary.record.types import RunRecord

NAMES: Mapping[Part, Mapping[Role, str]] = {
    "ends": {"base": "good end", "head": "bad end"},
    "last": {"base": "without it", "head": "with it"},
}


@dataclass
class StatePair:
    """Two states that run by turns, and their records in that order."""

    runs: Runs
    judge: Judge
    say: Callable[[str], None]
    stage: Part
    states: Mapping[Role, State]
    records: list[tuple[Role, RunRecord]] = field(default_factory=list)
    running: Role = "base"
    """The side that ran last."""

    def run(self, role: Role, kind: Kind = "whole") -> RunRecord:
        """Run one side."""
        self.running = role
        record = self.runs.run(self.stage, self.states[role], kind)
        self.records.append((role, record))
        return record

    def looks(self, kind: Kind = "look") -> Comparison:
        """Compare one run of each side, and a second one of the base: it shows what differs between
        equal runs."""
        base, head, again = (self.run(role, kind) for role in ("base", "head", "base"))
        return self.judge([head], [base, again])

    def pairs(self, wanted: str | None) -> Comparison:
        """Run pairs until the wanted check, or the whole comparison, is decided."""
        last: list[Comparison] = []
        plan = Plan()
        progress = PairProgress(self.say, plan, names=NAMES[self.stage])

        def judge(head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
            last.append(self.judge.pairs(head, base, budget))
            return only(last[-1], wanted) if wanted else last[-1]

        self.records.clear()
        found, _ = run_pairs(plan, self.run, judge, progress, lambda: self.runs.journal.spent_s)
        return last[-1] if last else found

    def of(self, role: Role) -> list[RunRecord]:
        """Return the completed records of a side, or its failed ones if none completed."""
        mine = [record for one, record in self.records if one == role]
        return [record for record in mine if record.status == "completed"] or mine


@dataclass(frozen=True)
class Last:
    """What the last step showed."""

    words: str
    confirmed: bool
    found: Comparison | None = None
    check: Check | None = None


PART_OF_CHANGE = 0.5
"""A suspect of a noisy change explains at least this part of it."""
LIKELY = 0.95
"""Suspects that are the culprit in so many cases are counted as left."""


@dataclass(frozen=True)
class Found:
    """The result of a bisect."""

    answer: Answer
    ends: Comparison
    question: Question | None = None
    """What was followed; None if it is not decided whether something is worse."""
    words: str = ""
    """The check's values at both ends, or why there is no question."""
    shown: tuple[Seen, ...] = ()
    """What the runs of the search showed."""
    posterior: tuple[float, ...] = ()
    step: Step | None = None
    last: Last | None = None

    @property
    def decided(self) -> bool:
        """Whether one suspect is the culprit."""
        return self.last is not None and self.last.confirmed

    @property
    def shows(self) -> Comparison:
        """The comparison of the last step; without one, that of the ends."""
        return self.last.found if self.last and self.last.found else self.ends


@dataclass
class Finder:
    """Finds the culprit among candidates."""

    runs: Runs
    judge: Judge
    check: str | None
    """None: the first red one."""
    say: Callable[[str], None]
    sets: bool = False
    """It may take several suspects together, or another one may show it too."""
    shown: list[Seen] = field(default_factory=list)
    _cheapest: int = 0
    """The first of the question's kinds of runs that answers."""

    def find(self) -> Found:
        """Run the whole bisect.

        Raises:
            UsageError: nothing is worse between the ends, or the check is unknown or not worse.
            MachineError: an end cannot run, or cannot be judged.
        """
        ends = self._pair("ends", 0, self.runs.candidates.bad)
        try:
            found = self._compared(ends)
        except MachineError:
            self.runs.journal.forget()
            raise
        question = found.question
        if question is None:
            return found
        self.say(f"{question.check} is worse: {found.words}")
        search = self._search(question, ends, found.ends)
        self._ask(search, question)
        posterior = tuple(search.posterior())
        found = replace(found, answer=search.answer(), shown=tuple(self.shown), posterior=posterior)
        return self._with_last_step(found, question)

    def _pair(self, stage: Part, without: State, with_it: State) -> StatePair:
        states: Mapping[Role, State] = {"base": without, "head": with_it}
        return StatePair(self.runs, self.judge, self.say, stage, states)

    def _compared(self, ends: StatePair) -> Found:
        """Run both ends and choose what to follow. Only looks run if they show it."""
        try:
            found = self._by_looks(ends) or ends.pairs(self.check)
        except CannotRun as why:
            label = self.runs.candidates.label(ends.states[ends.running])
            name = NAMES["ends"][ends.running]
            raise MachineError(f"the {name} ({label}) does not run: {why}") from why
        return self._with_question(found, ends.of("head"), ends.of("base"))

    def _by_looks(self, ends: StatePair) -> Comparison | None:
        """Compare the ends' looks; None if they do not answer."""
        if self.check is not None and not look_answers(self.check):
            return None
        found = ends.looks()
        try:
            name = self.check or choose(found, None)
        except UsageError:
            return None
        return found if look_answers(name) and is_judged(found.find_check(name)) else None

    def _with_question(
        self, found: Comparison, head: list[RunRecord], base: list[RunRecord]
    ) -> Found:
        """Choose what to follow."""
        nothing = Answer()
        if found.verdict == "regression" and not found.checks:
            if self.check not in (None, CRASH):
                raise UsageError(
                    f"--check {self.check} is not judged: the bad end does not complete",
                    "follow that with --check crash",
                )
            question = question_of(CRASH, found, head, base, self.judge)
            return Found(nothing, found, question, f"good completes; bad {ending(head[-1])}")
        if found.verdict == "error":
            raise MachineError(f"the ends cannot be compared: {error_words(found)}")
        undecided = [check for check in found.checks if check.status == "inconclusive"]
        if self.check is not None:
            undecided = [check for check in undecided if check.name == self.check]
        elif found.verdict != "inconclusive":
            undecided = []
        if undecided:
            why = f"{undecided[0].name} between the ends is not decided: {ends_words(undecided[0])}"
            return Found(Answer(reason=why), found, words=why)
        name = choose(found, self.check)
        question = question_of(name, found, head, base, self.judge)
        return Found(nothing, found, question, ends_words(found.check(name)))

    def _search(self, question: Question, ends: StatePair, found: Comparison) -> Search:
        """Return the search, which knows what the ends showed."""
        candidates = self.runs.candidates
        make: Make = Halving
        if question.noisy:
            check = found.check(question.check)
            was, now = question.value(check.baseline), question.value(check.current)
            assert was is not None
            assert now is not None
            make = partial(Noisy, least=PART_OF_CHANGE * abs(now - was))
        count, states = candidates.count, candidates.states
        search = SetSearch(make, count) if self.sets else make(count, states)
        for role, record in ends.records if question.noisy else ():
            seen = question.read(record)
            if seen is not None and seen.value is not None:
                search.tell(replace(seen, state=ends.states[role]))
        return search

    def _ask(self, search: Search, question: Question) -> None:
        """Run what the search asks for, until it knows."""
        self.say(self._left(search, question))
        while (state := search.ask()) is not None:
            number, label = len(self.shown) + 1, self.runs.candidates.label(state)
            shown = self._run(question, state)
            seen = replace(shown, state=state, label=label)
            search.tell(seen)
            self.shown.append(seen)
            outcome = f"{seen.outcome}: " if seen.outcome else ""
            self.say(f"run {number}  {label}  {outcome}{seen.words}")
            self.say(f"        {self._left(search, question)}")

    def _run(self, question: Question, state: State) -> Seen:
        for place, kind in enumerate(question.kinds):
            if place >= self._cheapest:
                try:
                    seen = question.read(self.runs.run("search", state, kind))
                except CannotRun as why:
                    return Seen(outcome="skip", words=str(why))
                if seen is not None:
                    self._cheapest = place
                    return seen
        return Seen(outcome="skip", words=f"{question.check} was not judged in it")

    def _left(self, search: Search, question: Question) -> str:
        covered, count = 0.0, 0
        for share in sorted(search.posterior(), reverse=True):
            if covered < (LIKELY if question.noisy else 1.0) - 1e-9:
                covered, count = covered + share, count + 1
        left = f"{counted(count, self.runs.candidates.noun)} left"
        if count < 2 or question.noisy:
            return left
        many = math.ceil(math.log2(count))
        rows = [row for row in self.runs.journal.rows if row.run is not None]
        rows = [row for row in rows if row.stage == "search"] or rows
        each = sum(row.seconds for row in rows) / max(1, len(rows))
        return f"{left}, about {many} more runs ({duration(many * each)})"

    def _with_last_step(self, found: Found, question: Question) -> Found:
        """Run the culprit and the state before it, unless the search found no single culprit."""
        answer = found.answer
        if not answer.decided or len(answer.suspects) != 1:
            return found
        suspect = answer.suspects[0]
        good = {0} | {one.state for one in self.shown if one.outcome == "good"}
        step, last = self.runs.candidates.step(suspect, good), None
        title = self.runs.candidates.describe(suspect).title
        self.say(f"last step: {title} against the state before it")
        try:
            last = self._last(step, question)
            why = f"the last step does not show it again: {last.words}"
        except CannotRun as error:
            why = f"the last step cannot run: {error}"
        if last is None or not last.confirmed:
            answer = replace(answer, decided=False, reason=why)
        return replace(found, answer=answer, step=step, last=last)

    def _last(self, step: Step, question: Question) -> Last:
        """Run a suspect and the state before it by turns, until the check is decided.

        Raises:
            CannotRun: one of them does not build.
        """
        sides = self._pair("last", step.without, step.with_it)
        if question.check == CRASH:
            base, head = (question.crashed(sides.run(role)) for role in ("base", "head"))
            words = f"without it: {base.words}; with it: {head.words}"
            return Last(words, (base.outcome, head.outcome) == ("good", "bad"))
        if question.noisy:
            found = sides.pairs(question.check)
        else:
            for kind in question.kinds:
                found = sides.looks(kind)
                if is_judged(found.find_check(question.check)):
                    break
        check = found.find_check(question.check)
        if check is None:
            return Last(error_words(found), False, found)
        worse = check.failed or check.status == "warn"
        return Last(check.message.rstrip("."), worse, found, check)
