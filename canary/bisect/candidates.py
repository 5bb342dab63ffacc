"""What can be the culprit and what can be run to find it: the base class, and the commits.

Suspects are the commits that the bad end has and the good end lacks, merges included. A checkout
holds the suspects among its ancestors and itself. History does not have to be linear.
"""

from __future__ import annotations

import abc
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from canary.bisect.search import CannotRun, State
from canary.bisect.states import digest, is_command, own_caches, require_plain_python
from canary.campaign.environments import config_in, folder_in, own_python
from canary.campaign.side import Side, undisturbed
from canary.campaign.worktrees import add_worktree, commit_of, git
from canary.config.load import load_config
from canary.errors import MachineError, UsageError
from canary.machine.scratch import new_scratch, remove_scratch

SHORT = 9
"""Digits of a shown hash."""
MOST = 5_000
"""Suspects; each holds a bit for every suspect."""
MOST_KEPT = 4
"""Built states besides both ends; one that is needed again later is built again."""


@dataclass(frozen=True)
class Step:
    """The two states that decide in the end: without the culprit and with it."""

    without: State
    with_it: State
    note: str = ""
    """More for the answer: that the culprit is a merge, for example."""


@dataclass(frozen=True)
class Described:
    """What people and programs read about a suspect."""

    title: str
    """`1a2b3c4d5 Pad to the longest row (2026-03-04)`, `trl 1.15.0`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For `bisect.json`: strict JSON."""
    lines: tuple[str, ...] = ()
    """More, one sentence each."""


class Candidates(abc.ABC):
    """The suspects, and the states that can be run. State 0 is the good end."""

    noun = ""
    """What a suspect is called."""
    _scratch: Path | None = None
    _worktrees_of: Path | None = None
    """The repository whose worktrees were built."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """The number of suspects."""

    @abc.abstractmethod
    def states(self, likely: State) -> Sequence[State]:
        """Return states that can be run to divide the likely suspects."""

    @abc.abstractmethod
    def label(self, state: State) -> str:
        """Return a state's name, without building it: `1a2b3c4d5`, `trl==1.15.0`."""

    @abc.abstractmethod
    def step(self, suspect: int, good: set[State]) -> Step:
        """Return the last step of a suspect. `good`: the states that were good."""

    @abc.abstractmethod
    def describe(self, suspect: int) -> Described:
        """Describe a suspect."""

    @abc.abstractmethod
    def build(self, state: State, place: Path) -> Side:
        """Make a state's code and Python in a new folder; raises CannotRun."""

    @property
    def bad(self) -> State:
        """The bad end: it holds all suspects."""
        return (1 << self.count) - 1

    @cached_property
    def _sides(self) -> dict[State, Side]:
        """The last used one is at the end."""
        return {}

    def side(self, state: State) -> Side:
        """Return a state's code and Python, built on first use. Few of them are kept.

        Raises:
            CannotRun: it does not build.
        """
        if state not in self._sides:
            others = [one for one in self._sides if one not in (0, self.bad)]
            if len(others) >= MOST_KEPT:
                self._remove(others[0])
            try:
                self._sides[state] = self.build(state, self._place(state))
            except BaseException:  # Ctrl-C must not leave half a state.
                with undisturbed():
                    self._remove(state)
                raise
        self._sides[state] = self._sides.pop(state)
        return self._sides[state]

    def close(self) -> None:
        """Remove all that was built, and git's notes of worktrees in it."""
        if self._scratch is not None:
            with undisturbed():
                remove_scratch(self._scratch, self._worktrees_of)
            self._scratch = None
            self._sides.clear()

    def _place(self, state: State) -> Path:
        if self._scratch is None:
            self._scratch = new_scratch("bisect", self._worktrees_of)
        place = self._scratch / digest(hex(state))
        place.mkdir(exist_ok=True)
        return place

    def _remove(self, state: State) -> None:
        self._sides.pop(state, None)
        shutil.rmtree(self._place(state), ignore_errors=True)
        if self._worktrees_of is not None:
            git(self._worktrees_of, "worktree", "prune")


@dataclass(frozen=True)
class Commit:
    """One suspect."""

    sha: str
    parents: tuple[str, ...]
    date: str
    """Day of the commit, ISO 8601."""
    subject: str


@dataclass
class Commits(Candidates):
    """The suspects between two commits, oldest first: each comes after its parents."""

    repository: Path
    good: str
    commits: tuple[Commit, ...]
    code: Side
    """The config and the folder as the user named them."""
    setup: str | None
    everywhere: bool
    """Every commit runs that config: an end has none of its own."""
    noun = "commit"

    def __post_init__(self) -> None:
        self._worktrees_of = self.repository

    @cached_property
    def _of(self) -> dict[str, State]:
        """The state of each commit's checkout; the good end has none of the suspects."""
        found = {self.good: 0}
        for place, commit in enumerate(self.commits):
            found[commit.sha] = 1 << place
            for parent in commit.parents:
                found[commit.sha] |= found.get(parent, 0)
        return found

    @cached_property
    def runnable(self) -> dict[State, str]:
        """The commit of each state that can be compared with the good end: its descendants.

        A branch that began before the good end lacks commits that the good end has. So it can
        differ from it without holding the culprit.
        """
        after = {self.good}
        for commit in self.commits:
            after |= set() if after.isdisjoint(commit.parents) else {commit.sha}
        return {state: sha for sha, state in self._of.items() if sha in after}

    @property
    def count(self) -> int:
        return len(self.commits)

    def states(self, likely: State) -> Sequence[State]:
        return [state for state in self.runnable if state not in (0, self.bad)]

    def label(self, state: State) -> str:
        return self.runnable[state][:SHORT]

    def build(self, state: State, place: Path) -> Side:
        repository, label, code = self.repository, self.label(state), self.code
        tree = add_worktree(repository, place / "tree", self.runnable[state])
        # From here on, what fails is the commit's own fault.
        try:
            config = code.config if self.everywhere else config_in(tree, repository, code.config)
            if not (self.everywhere or config.exists()):
                raise UsageError(f"{config.relative_to(tree)} is not in this commit")
            loaded = load_config(config, code.settings).config
            if self.setup:
                require_plain_python(loaded)
            environ = own_caches(place / "cache", code.environment, command=is_command(loaded))
            folder = folder_in(tree, repository, code.folder)
            log = code.output_dir / f"setup-{label}.log"
            python, environ = own_python(
                "commit", tree, repository, folder, self.setup, environ, log
            )
        except UsageError as error:
            raise CannotRun(str(error)) from error
        except MachineError as error:
            raise CannotRun(error.message.removeprefix("commit: ")) from error
        output = code.output_dir / label
        return Side("commit", label, config, folder, python, environ, output, code.settings)

    def step(self, suspect: int, good: set[State]) -> Step:
        commit = self.commits[suspect]
        known = [self._of[parent] for parent in commit.parents if parent in self._of]
        parents = [state for state in known if state in self.runnable]
        without = next((state for state in parents if state in good), [*parents, 0][0])
        note = ""
        if len(commit.parents) > 1:
            names = ", ".join(parent[:SHORT] for parent in commit.parents)
            note = f"it is a merge of {names}, compared with {self.label(without)}"
        return Step(without, self._of[commit.sha], note)

    def describe(self, suspect: int) -> Described:
        commit = self.commits[suspect]
        title = f"{commit.sha[:SHORT]} {commit.subject} ({commit.date})"
        return Described(title, {**vars(commit), "parents": list(commit.parents)})


def commits_between(repository: Path, good: str, bad: str) -> tuple[str, str, tuple[Commit, ...]]:
    """Return both ends that the user names, and the commits between them, oldest first.

    Raises:
        UsageError: a commit is missing, or the good one is not an ancestor of the bad one.
    """
    first, last = commit_of(repository, good), commit_of(repository, bad)
    if first == last:
        raise UsageError(f"--good {good} and --bad {bad} are the same commit")
    try:
        shared = git(repository, "merge-base", first, last)
    except MachineError:
        shared = ""  # Git exits with 1 and prints nothing if there is none.
    if shared == last:
        raise UsageError(
            f"--good {good} is newer than --bad {bad}",
            "if it got better there, swap both: the answer is then the commit that made it better",
        )
    if shared != first:
        hint = f"try their merge base: --good {shared[:SHORT]}" if shared else "they share nothing"
        if git(repository, "rev-parse", "--is-shallow-repository") == "true":
            hint = "get the rest of this shallow clone with: git fetch --unshallow"
        raise UsageError(f"--good {good} is not an ancestor of --bad {bad}", hint)
    how = ("--topo-order", "--reverse", "--no-show-signature", "--no-color")
    form = "--format=%H%x00%P%x00%cs%x00%s"
    lines = git(repository, "log", *how, form, last, f"^{first}", "--").split("\n")
    if len(lines) > MOST:
        raise UsageError(f"more than {MOST:,} commits are between", "name a newer --good")
    parts = (line.split("\0", 3) for line in lines)
    found = (Commit(sha, tuple(old.split()), date, subject) for sha, old, date, subject in parts)
    return first, last, tuple(found)
