"""The loop of a bisect: compare the ends, search, compare the culprit with the state before it.

It knows nothing of commits or packages: a `Ground` says what is searched and how a state runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from canary.bisect.ends import Comparer, Ends, compare_ends, last_pairs
from canary.bisect.launches import Launches
from canary.bisect.model import Answer, CannotRun, Search, Seen, Space, State, Workbench
from canary.bisect.question import NoisyQuestion, Question, Reading
from canary.campaign.pairs import duration
from canary.compare.report import Comparison
from canary.errors import MachineError
from canary.record.types import RunRecord


@dataclass(frozen=True)
class Described:
    """What people and programs read about a suspect."""

    title: str
    """One line: `1a2b3c4d5 Pad to the longest row (2026-03-04)`, `trl 1.15.0`."""
    lines: tuple[str, ...] = ()
    """More, one sentence each."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For `bisect.json`: strict JSON."""


@dataclass(frozen=True)
class Step:
    """The two states whose pairs decide in the end: without the culprit and with it."""

    without: State
    with_it: State
    note: str = ""
    """A sentence for the answer: that the culprit is a merge, for example."""


@dataclass(frozen=True)
class Ground:
    """What is searched: commits, packages, or both."""

    bench: Workbench
    bad: State
    """All suspects; the good end holds none of them and is state 0."""
    space: Callable[[Comparison], Space]
    """Makes the space from the comparison of the ends, whose diagnosis gives the prior."""
    step: Callable[[int, Sequence[Seen]], Step]
    """Returns the last step of a suspect, from what the states showed."""
    describe: Callable[[int, Found | None], Described]
    """Describes a suspect; the result is given if the suspect is its culprit."""
    base_of: Callable[[State], State | None] = lambda state: None
    """Returns a state that has to be good before this one can be judged, if there is one: a branch
    that began before the good end lacks some of its commits. Such a state has bits above those of
    the suspects, which no search sees."""
    noun: str = "commit"
    """What a suspect is called."""


@dataclass(frozen=True)
class Engines:
    """Makes the search for each kind of signal."""

    exact: Callable[[Space], Search]
    noisy: Callable[[Space, str, float], Search]
    """Takes also the check's name, and the least change of interest in the unit of its values."""


@dataclass(frozen=True)
class Wish:
    """What the user asked for."""

    check: str | None = None
    """Name of a check; None: the first red one."""
    budget_s: float | None = None
    """Seconds for all runs, those before an interruption included."""


@dataclass(frozen=True)
class Shown:
    """What one run of the search showed."""

    seen: Seen
    label: str
    words: str


@dataclass(frozen=True)
class Found:
    """The result of a bisect."""

    answer: Answer
    ends: Comparison
    """The bad end, judged against the good one."""
    check: str = ""
    """The check that was followed, or `crash`; empty if nothing could be followed."""
    signal: str = ""
    ends_words: str = ""
    """The check's values at both ends."""
    shown: tuple[Shown, ...] = ()
    posterior: tuple[float, ...] = ()
    step: Step | None = None
    last: Comparison | None = None
    """The culprit, judged against the state before it; None if that did not run or crashed."""
    last_words: str = ""
    confirmed: bool = False
    """Whether the last step shows the same as the ends."""
    launches: int = 0
    seconds: float = 0.0

    @property
    def decided(self) -> bool:
        """Whether one suspect is the culprit."""
        return self.confirmed and len(self.answer.suspects) == 1


def find(
    ground: Ground,
    wish: Wish,
    engines: Engines,
    launches: Launches,
    compare: Comparer,
    say: Callable[[str], None],
) -> Found:
    """Compare the ends, search, and compare the culprit with the state before it.

    Raises:
        UsageError: nothing is worse between the ends, or the check is unknown or not worse.
        MachineError: an end cannot run, or cannot be judged.
    """
    try:
        ends = compare_ends(launches, ground.bad, wish.check, wish.budget_s, compare, say)
    except MachineError:
        # The user may repair what is missing on this machine and try again.
        launches.journal.forget()
        raise
    if ends.question is None:
        answer = Answer((), 0.0, False, ends.why)
        return _counted(Found(answer, ends.found, check=wish.check or ""), launches)
    space = ground.space(ends.found)
    search = _search_for(ends, ends.question, space, engines)
    looking = _Looking(ground, ends, ends.question, search, launches, say)
    looking.tell_ends()
    in_time = looking.search(wish.budget_s)
    answer = search.answer()
    if not in_time:
        answer = replace(answer, decided=False, reason=f"{TIME_IS_UP}; {GO_ON}")
    found = Found(
        answer,
        ends.found,
        ends.question.check,
        ends.question.signal,
        ends.words,
        tuple(looking.shown),
        tuple(search.posterior()),
    )
    return _counted(_with_last_step(found, ground, ends, launches, compare, wish, say), launches)


TIME_IS_UP = "the time budget is used up"
GO_ON = "the same command with a larger --budget continues"
PART_OF_CHANGE = 0.5
"""A suspect of a noisy change explains at least this part of it."""


def _search_for(ends: Ends, question: Question, space: Space, engines: Engines) -> Search:
    if not isinstance(question, NoisyQuestion):
        return engines.exact(space)
    check = ends.found.check(question.check)
    was, now = question.value(check.baseline), question.value(check.current)
    assert was is not None
    assert now is not None
    return engines.noisy(space, question.check, PART_OF_CHANGE * abs(now - was))


@dataclass
class _Looking:
    """The search of one bisect."""

    ground: Ground
    ends: Ends
    question: Question
    engine: Search
    launches: Launches
    say: Callable[[str], None]
    shown: list[Shown] = field(default_factory=list)
    _bases: dict[State, Reading] = field(default_factory=dict)
    _cheapest: int = 0
    """Place of the run among `kinds` that answers."""

    def tell_ends(self) -> None:
        """Tell the search what the runs of both ends showed, in their order."""
        if self.question.signal == "exact":
            self.engine.tell(Seen(0, "good"))
            self.engine.tell(Seen(self.ground.bad, "bad"))
            return
        for role, record in self.ends.runs:
            state = 0 if role == "base" else self.ground.bad
            reading = self._read(state, record)
            if reading is not None and reading.value is not None:
                self.engine.tell(Seen(state, None, reading.value))

    def search(self, budget_s: float | None) -> bool:
        """Run what the search asks for, until it knows; return False if the time was up before."""
        self.say(f"{self.question.check} is worse: {self.ends.words}")
        self.say(f"{self._left()} left{self._to_come()}")
        while (state := self.engine.ask()) is not None:
            paid = bool(self.launches.journal.to_replay)
            over = budget_s is not None and self._spent() + self._each() > budget_s
            if over and not paid:
                self.say(f"stopped: {TIME_IS_UP}")
                return False
            reading = self._look(state)
            seen = Seen(state, reading.outcome, reading.value)
            self.engine.tell(seen)
            label = self.launches.bench.label(state)
            self.shown.append(Shown(seen, label, reading.words))
            outcome = f"{reading.outcome}: " if reading.outcome else ""
            self.say(
                f"run {len(self.shown)}  {label}  {outcome}{reading.words}\n"
                f"        {self._left()} left{self._to_come()}"
            )
        return True

    def _look(self, state: State) -> Reading:
        """Run one state, and before it the state that has to be good."""
        base = self.ground.base_of(state)
        if base is None:
            return self._run(state)
        name = self.launches.bench.label(base)
        if self.question.signal == "noisy":
            return Reading(f"it branches off at {name}, before the good end", "skip")
        if base not in self._bases:
            self._bases[base] = self._run(base)
        found = self._bases[base]
        if found.outcome == "good":
            return self._run(state)
        why = f"it branches off at {name}, before the good end, and {name} is not good"
        return Reading(f"{why} ({found.words})", "skip")

    def _run(self, state: State) -> Reading:
        kinds = self.question.kinds()
        for place in range(self._cheapest, len(kinds)):
            try:
                record = self.launches.run("search", state, kinds[place], self._name(state))
            except CannotRun as why:
                return Reading(str(why), "skip")
            reading = self._read(state, record)
            if reading is not None:
                self._cheapest = place
                return reading
        return Reading(f"{self.question.check} was not judged in it", "skip")

    def _read(self, state: State, record: RunRecord) -> Reading | None:
        if state == 0 and isinstance(self.question, NoisyQuestion):
            return self.question.read_good(record, self.ends.head[-1])
        return self.question.read(record)

    def _name(self, state: State) -> str:
        return f"run {len(self.shown) + 1}, {self.launches.bench.label(state)}{self._to_come()}"

    def _left(self) -> str:
        posterior = sorted(self.engine.posterior(), reverse=True)
        # Of noisy outcomes, those that are the culprit in 19 of 20 cases.
        whole = 1.0 if self.question.signal == "exact" else 0.95
        count, covered = 0, 0.0
        while count < len(posterior) and posterior[count] > 0.0 and covered < whole - 1e-9:
            covered += posterior[count]
            count += 1
        return f"{count} {self.ground.noun}{'' if count == 1 else 's'}"

    def _to_come(self) -> str:
        runs = self.engine.runs_left()
        if runs <= 0:
            return ""
        many = max(1, round(runs))
        return (
            f", about {many} more run{'' if many == 1 else 's'} ({duration(many * self._each())})"
        )

    def _each(self) -> float:
        """Mean seconds of a run of the search; of the ends before it."""
        rows = self.launches.journal.rows
        rows = [row for row in rows if row.stage == "search"] or rows
        return sum(row.seconds for row in rows) / max(1, len(rows))

    def _spent(self) -> float:
        return self.launches.journal.seconds


def _with_last_step(
    found: Found,
    ground: Ground,
    ends: Ends,
    launches: Launches,
    compare: Comparer,
    wish: Wish,
    say: Callable[[str], None],
) -> Found:
    """Run the culprit and the state before it, unless the search found no single culprit."""
    answer = found.answer
    if not answer.decided or len(answer.suspects) != 1 or ends.question is None:
        return found
    spent = launches.journal.seconds
    left = None if wish.budget_s is None else wish.budget_s - spent
    left = launches.allowed("last", left)
    if left is not None and left <= 0:
        reason = f"{TIME_IS_UP} before the culprit ran against the state before it"
        return replace(found, answer=replace(answer, decided=False, reason=reason))
    suspect = answer.suspects[0]
    step = ground.step(suspect, [one.seen for one in found.shown])
    say(f"last step: {launches.bench.name(suspect)} against the state before it")
    try:
        last = last_pairs(launches, step.without, step.with_it, ends.question, left, compare, say)
    except CannotRun as why:
        reason = f"the last step cannot run: {why}"
        return replace(found, step=step, answer=replace(answer, decided=False, reason=reason))
    if not last.confirmed:
        reason = f"the last step does not show it again: {last.words}"
        answer = replace(answer, decided=False, reason=reason)
    return replace(
        found,
        answer=answer,
        step=step,
        last=last.found,
        last_words=last.words,
        confirmed=last.confirmed,
    )


def _counted(found: Found, launches: Launches) -> Found:
    rows = launches.journal.rows
    ran = sum(row.run is not None for row in rows)
    return replace(found, launches=ran, seconds=launches.journal.seconds)
