"""The parts of a bisect: suspects, states that hold some of them, and a search among them.

A *suspect* is one step that may be the culprit: a commit, a package, one version of it. A *state*
is something that can be run: a checkout, a set of packages. It holds some of the suspects, as the
bits of an integer: bit i is suspect i. The good end holds none, the bad end all. Exactly one
suspect is the culprit, and a state is bad if it holds it.

A search knows no process, clock or git. It asks for a run, is told what the run showed, and can
answer at any time. Told the same in the same order, it asks the same again: so a bisect goes on
after an interruption by telling its search what its log holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from canary.campaign.side import Side

State = int
"""Bits of the suspects that it holds."""
Outcome = Literal["good", "bad", "skip"]
"""`skip`: it does not build or does not run."""


class Space(Protocol):
    """What may be the culprit, and what can be run to find it."""

    @property
    def prior(self) -> Sequence[float]:
        """Probability of each suspect before anything ran; they add up to 1."""

    def states(self, posterior: Sequence[float]) -> Sequence[State]:
        """Return the states worth a run now, without both ends."""


@dataclass(frozen=True)
class Seen:
    """What one run of a state showed."""

    state: State
    outcome: Outcome | None = None
    """Of an exact signal, a crash, or a state that cannot run; None if only `value` tells."""
    value: float | None = None
    """Logarithm of the metric; more is worse."""


@dataclass(frozen=True)
class Answer:
    """What a search knows."""

    suspects: tuple[int, ...]
    """The most probable suspect; several if skipped states hide which of them it is.

    Empty if the ends or the outcomes contradict the question."""
    probability: float
    """That the culprit is among `suspects`."""
    decided: bool
    reason: str = ""
    """Why it is not decided, or what hides a single suspect."""
    together: bool = False
    """All of `suspects` are needed: no single one shows it."""


class Search(Protocol):
    """Asks for runs until it can answer."""

    def ask(self) -> State | None:
        """Return the state to run next, which may be an end; None: nothing more to run."""

    def tell(self, seen: Seen) -> None:
        """Take what a run showed."""

    def posterior(self) -> Sequence[float]:
        """Return the probability of each suspect; they add up to 1."""

    def answer(self) -> Answer:
        """Return what is known now."""

    def runs_left(self) -> float:
        """Return how many more runs it expects to ask for."""


class CannotRun(Exception):
    """A state does not build or cannot be set up; the text says why. The search skips it."""


class Workbench(Protocol):
    """Makes states runnable, and names suspects for people."""

    def side(self, state: State) -> Side:
        """Return the state's code and Python, built on first use and kept until `close`.

        Raises:
            CannotRun: it does not build.
        """

    def label(self, state: State) -> str:
        """Return a state's name for people, without building it: `1a2b3c4d5`, `trl==1.15.0`."""

    def name(self, suspect: int) -> str:
        """Return a suspect's name: `1a2b3c4d5 Pad to the longest row`, `trl 1.15.0`."""

    def close(self) -> None:
        """Remove worktrees and environments."""
