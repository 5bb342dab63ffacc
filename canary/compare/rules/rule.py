"""What a rule is, and what it answers about one run.

A rule says what holds in every sound training. It reads the record of one run and needs no
baseline. A function of this package checks one; `rule` says what must hold, what makes it exact,
what to do, and where the idea comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from canary.compare.diagnosis.suspects import Shown
from canary.record.exact import RuleStatus as RuleStatus
from canary.record.types import RunRecord

Judge = Callable[[RunRecord], "Answer"]


@dataclass(frozen=True)
class Answer:
    """What a rule says of one run."""

    status: RuleStatus
    words: str
    """A sentence without a full stop: what was found, or why nothing was asked."""
    place: str = ""
    """Where it shows first, such as `row 3, token 5` or the name of a parameter; may be empty."""
    items: frozenset[str] = frozenset()
    """Names of what is broken; without names, `size` says how much is."""
    size: float = 0.0
    value: Shown = None
    """The measured value, for a table."""
    doubt: str = ""
    """Of a note: why it may be a choice."""
    lost: str = ""
    """Of a rule that was not asked: what is broken if it held on the baseline; may be empty."""
    inapplicable: bool = False
    """Whether the rule is for other trainings: then nobody needs to know that it was not asked."""

    @property
    def is_against(self) -> bool:
        """Whether it found something."""
        return self.status in ("broken", "note")


@dataclass(frozen=True)
class Rule:
    """One rule."""

    id: str
    holds: str
    """What must hold, as a sentence without a full stop."""
    needs: str
    """What makes it exact, as a sentence without a full stop: without it, nothing is asked."""
    do: str
    """What to do if it is broken, as a sentence without a full stop."""
    source: str
    """The link to where the idea, or an incident of the kind, is described; may be empty."""
    judge: Judge
    fatal: bool = False
    """Whether nothing else counts if it is broken."""


def rule(
    id: str, holds: str, needs: str, do: str, source: str = "", *, fatal: bool = False
) -> Callable[[Judge], Rule]:
    """Make a rule of the function that checks it; see `Rule`."""
    return lambda judge: Rule(id, holds, needs, do, source, judge, fatal)


def answer(
    words: str,
    *,
    broken: bool,
    size: float | None = None,
    value: Shown = None,
    items: Collection[str] | None = None,
    place: str = "",
    doubt: str = "",
) -> Answer:
    """Return that a rule holds, or that it is broken; with a `doubt`, that is a note. `size`: how
    many `items`, if it is not given; 1 without items."""
    names = frozenset(items or ())
    if size is None:
        size = 1.0 if items is None else len(items)
    if not broken:
        return Answer("holds", words, place, names, size, value)
    return Answer("note" if doubt else "broken", words, place, names, size, value, doubt)


def holds(words: str, value: Shown = None) -> Answer:
    """Return that a rule holds."""
    return answer(words, broken=False, value=value)


def not_asked(why: str) -> Answer:
    """Return that a rule could not be asked."""
    return Answer("not asked", why)


def only_for(others: str) -> Answer:
    """Return that a rule is for other trainings, such as `online RL`."""
    return Answer("not asked", f"only for {others}", inapplicable=True)
