"""The loop of a bisect: compare the ends, search, compare the culprit with the state before it.

It knows nothing of commits or packages: a `Ground` says what is searched and how a state runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canary.bisect.model import Answer, Search, Seen, Space, State, Workbench
from canary.compare.report import Comparison


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
    describe: Callable[[int, Comparison | None], Described]
    """Describes a suspect; the comparison is that of the last step, if it ran."""
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
    noisy: Callable[[Space], Search]


@dataclass(frozen=True)
class Wish:
    """What the user asked for."""

    check: str | None = None
    """Name of a check; None: the first red one."""
    budget_s: float | None = None


@dataclass(frozen=True)
class Found:
    """The result of a bisect."""

    answer: Answer
    ends: Comparison
    """The bad end, judged against the good one."""
    check: str
    """The check that is followed; empty for a crash."""
    last_step: Comparison | None = None
    """The culprit, judged against the state before it."""
    seen: tuple[Seen, ...] = ()


def find(
    ground: Ground,
    wish: Wish,
    engines: Engines,
    say: Callable[[str], None],
    **rest: Any,
) -> Found:
    """Find the suspect. The parameters in `rest` (journal, panel, clock) are not settled yet.

    Raises:
        UsageError: nothing is worse between the ends, or the check is unknown.
        MachineError: an end cannot run.
    """
    raise NotImplementedError


__all__ = ["Described", "Engines", "Found", "Ground", "Step", "Wish", "find"]
