"""The commits between a good and a bad one: a graph of suspects, and the states of checkouts.

Suspects are the commits that the bad end has and the good end lacks, merges included. A checkout
holds the suspects among its ancestors and itself. History does not have to be linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from canary.bisect.finding import Step
from canary.bisect.model import Seen, State
from canary.campaign.worktrees import commit_of, git
from canary.errors import MachineError, UsageError

SHORT = 9
"""Digits of a shown hash."""
MOST = 5_000
"""Suspects; each holds a bit for every suspect."""
FORMAT = "--format=%H%x00%P%x00%cs%x00%s"


@dataclass(frozen=True)
class Commit:
    """One suspect."""

    sha: str
    parents: tuple[str, ...]
    date: str
    """Day of the commit, ISO 8601."""
    subject: str

    @property
    def short(self) -> str:
        """The shown part of its hash."""
        return self.sha[:SHORT]


@dataclass(frozen=True)
class History:
    """The suspects between two commits, oldest first: each comes after its parents.

    Bit i of a state is suspect i. A bit above those of the suspects is a commit of `bases`: such a
    state holds no suspect, but it is not the good end.
    """

    repository: Path
    good: str
    bad: str
    commits: tuple[Commit, ...]

    @cached_property
    def _place(self) -> dict[str, int]:
        return {commit.sha: place for place, commit in enumerate(self.commits)}

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """Commits outside the suspects from which some suspects branch off; not the good end."""
        outside = (
            parent
            for commit in self.commits
            for parent in commit.parents
            if parent not in self._place and parent != self.good
        )
        return tuple(dict.fromkeys(outside))

    @cached_property
    def masks(self) -> tuple[State, ...]:
        """The state of each suspect's checkout."""
        found: list[State] = []
        for place, commit in enumerate(self.commits):
            state = 1 << place
            for parent in commit.parents:
                state |= found[self._place[parent]] if parent in self._place else 0
            found.append(state)
        return tuple(found)

    @cached_property
    def _commit_of_state(self) -> dict[State, str]:
        named = {mask: self.commits[place].sha for place, mask in enumerate(self.masks)}
        count = len(self.commits)
        named |= {1 << (count + place): sha for place, sha in enumerate(self.bases)}
        return named | {0: self.good}

    @property
    def bad_state(self) -> State:
        """The state of the bad end: all suspects."""
        return (1 << len(self.commits)) - 1

    def sha(self, state: State) -> str:
        """Return the commit of a state."""
        return self._commit_of_state[state]

    def state(self, sha: str) -> State:
        """Return the state of the good end, a suspect or a base."""
        if sha == self.good:
            return 0
        if sha in self._place:
            return self.masks[self._place[sha]]
        return 1 << (len(self.commits) + self.bases.index(sha))

    @cached_property
    def _has_good(self) -> tuple[bool, ...]:
        """For each suspect, whether the good end is among its ancestors."""
        found: list[bool] = []
        for commit in self.commits:
            places = [self._place.get(parent) for parent in commit.parents]
            through = any(found[place] for place in places if place is not None)
            found.append(through or self.good in commit.parents)
        return tuple(found)

    def base_of(self, state: State) -> State | None:
        """Return the base of a checkout that lacks the good end, else None.

        Such a branch began before the good end. It lacks commits that the good end has, and can
        differ from it without holding the culprit. Its base shows whether it does.
        """
        place = self._place.get(self.sha(state))
        if place is None or self._has_good[place]:
            return None
        bases = [
            parent
            for other, commit in enumerate(self.commits)
            if state >> other & 1
            for parent in commit.parents
            if parent in self.bases
        ]
        if not bases:  # A history of its own, with its own first commit.
            return None
        newest = git(self.repository, "rev-list", "--no-walk", "--date-order", *sorted(set(bases)))
        return self.state(newest.splitlines()[0])

    def step(self, suspect: int, seen: Sequence[Seen]) -> Step:
        """Return the last step of a suspect: its parent that was seen good, else its first one."""
        commit = self.commits[suspect]
        if not commit.parents:
            return Step(0, self.masks[suspect], "it has no parent: it was compared with good")
        good = {one.state for one in seen if one.outcome == "good"} | {0}
        states = [self.state(parent) for parent in commit.parents]
        chosen = next((state for state in states if state in good), states[0])
        note = ""
        if len(states) > 1:
            names = ", ".join(parent[:SHORT] for parent in commit.parents)
            parents_good = all(state in good for state in states)
            note = (
                f"it is a merge, and its parents {names} are good: the merge itself made it worse"
                if parents_good
                else f"it is a merge of {names}: it was compared with {self.sha(chosen)[:SHORT]}"
            )
        return Step(chosen, self.masks[suspect], note)


def history_between(repository: Path, good: str, bad: str) -> History:
    """Read the suspects between two commits that the user names.

    Raises:
        UsageError: a commit is missing, the good one is no ancestor of the bad one, or a shallow
            clone lacks commits between them.
    """
    ends = {name: commit_of(repository, ref) for name, ref in (("good", good), ("bad", bad))}
    if ends["good"] == ends["bad"]:
        raise UsageError(f"--good {good} and --bad {bad} are the same commit")
    _require_ancestor(repository, good, bad, ends)
    lines = git(
        repository,
        *("log", "--topo-order", "--reverse", "--no-show-signature", "--no-color", FORMAT),
        *(ends["bad"], f"^{ends['good']}", "--"),
    ).split("\n")
    if len(lines) > MOST:
        raise UsageError(
            f"{len(lines):,} commits lie between good and bad, more than {MOST:,}",
            "name a newer --good",
        )
    commits = []
    for line in lines:
        sha, parents, date, subject = line.split("\0", 3)
        commits.append(Commit(sha, tuple(parents.split()), date, subject))
    _require_whole(repository, commits)
    return History(repository, ends["good"], ends["bad"], tuple(commits))


def _require_ancestor(repository: Path, good: str, bad: str, ends: dict[str, str]) -> None:
    shared = _merge_base(repository, ends["good"], ends["bad"])
    if shared == ends["good"]:
        return
    if shared == ends["bad"]:
        raise UsageError(
            f"--good {good} is newer than --bad {bad}",
            "if it got better there, swap both: the answer is then the commit that made it better",
        )
    if _shallow(repository):
        raise UsageError(
            f"--good {good} is no ancestor of --bad {bad} in this shallow clone",
            "get the rest with: git fetch --unshallow",
        )
    if shared is None:
        raise UsageError(f"--good {good} and --bad {bad} share no history")
    raise UsageError(
        f"--good {good} is no ancestor of --bad {bad}",
        f"try their merge base: --good {shared[:SHORT]}",
    )


def _merge_base(repository: Path, one: str, other: str) -> str | None:
    try:
        return git(repository, "merge-base", one, other) or None
    except MachineError:
        return None  # Git exits with 1 and prints nothing if there is none.


def _shallow(repository: Path) -> bool:
    return git(repository, "rev-parse", "--is-shallow-repository") == "true"


def _require_whole(repository: Path, commits: Sequence[Commit]) -> None:
    """Raise UsageError if a suspect's parents were cut off by a shallow clone."""
    if not _shallow(repository):
        return
    cut = set(
        Path(git(repository, "rev-parse", "--path-format=absolute", "--git-path", "shallow"))
        .read_text(encoding="ascii")
        .split()
    )
    lost = next((commit.short for commit in commits if commit.sha in cut), None)
    if lost is not None:
        raise UsageError(
            f"this shallow clone lacks commits between good and bad: it ends at {lost}",
            "get the rest with: git fetch --unshallow",
        )


@dataclass(frozen=True)
class CommitSpace:
    """The suspects with their prior; every one of them can be checked out."""

    history: History
    prior: Sequence[float]

    def states(self, posterior: Sequence[float]) -> Sequence[State]:
        """Return the checkouts of all suspects but the bad end; see `Space`."""
        return [mask for mask in self.history.masks if mask != self.history.bad_state]
