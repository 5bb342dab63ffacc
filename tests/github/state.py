"""What the GitHub of the tests knows: repositories, commits, pull requests, what is said of them.

Tests arrange it through the methods of `Repository`, and look at it afterwards.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

BOT = "github-actions[bot]"


class Clock:
    """GitHub's clock: it stands still until a test moves it; each write takes a second."""

    def __init__(self) -> None:
        self._now = float(int(time.time()))

    def time(self) -> float:
        """Seconds since 1970."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Moves it; fits where a function that sleeps is wanted."""
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """What a client does between tries, and GitHub with a request that it holds."""
        self.advance(seconds)

    def stamp(self) -> str:
        """As GitHub writes times."""
        return datetime.fromtimestamp(self._now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Commit:
    """A commit with the files that matter."""

    sha: str
    files: dict[str, bytes]
    message: str
    created: str
    author: str | None = None
    """Login, where GitHub knows the author's address."""


@dataclass
class Comment:
    """A comment on an issue or a pull request."""

    id: int
    number: int
    author: str
    body: str
    created: str
    updated: str


@dataclass
class LabelEvent:
    """A label set or taken off."""

    id: int
    event: str
    label: str
    actor: str
    created: str


@dataclass
class Pull:
    """A pull request, which is an issue too."""

    number: int
    author: str
    head_sha: str
    head_branch: str
    head_repository: str | None
    base_sha: str
    base_branch: str
    created: str
    state: str = "open"
    draft: bool = False
    labels: list[str] = field(default_factory=list)
    events: list[LabelEvent] = field(default_factory=list)
    merge_commit_sha: str | None = None
    merged: str | None = None
    patches: dict[str, str] = field(default_factory=dict)
    """What it changes: path and patch."""
    commits: int = 1


@dataclass
class Status:
    """A commit status."""

    id: int
    sha: str
    state: str
    context: str
    description: str | None
    target_url: str | None
    creator: str
    created: str


@dataclass
class Artifact:
    """An artifact of a workflow run."""

    id: int
    name: str
    content: bytes
    expired: bool
    created: str


@dataclass
class Run:
    """A workflow run."""

    id: int
    event: str
    head_sha: str
    head_branch: str
    head_repository: str | None
    conclusion: str | None
    created: str
    artifacts: list[Artifact] = field(default_factory=list)


class Repository:
    """One repository, and how a test arranges what is in it."""

    def __init__(
        self, full_name: str, clock: Clock, ids: Iterator[int], default_branch: str, private: bool
    ) -> None:
        self.full_name = full_name
        self.default_branch = default_branch
        self.private = private
        self.clock = clock
        self.ids = ids
        self.permissions: dict[str, str] = {}
        """Login -> admin, maintain, write, triage, read or none."""
        self.branches: dict[str, str] = {}
        self.commits: dict[str, Commit] = {}
        self.pulls: dict[int, Pull] = {}
        self.comments: dict[int, Comment] = {}
        self.statuses: list[Status] = []
        self.runs: dict[int, Run] = {}

    def add_commit(
        self,
        files: Mapping[str, bytes | str] | None = None,
        *,
        sha: str = "",
        branch: str = "",
        message: str = "A change",
    ) -> str:
        """Adds a commit with these files, on a branch where one is named. Returns its SHA."""
        stored = {
            path: one.encode() if isinstance(one, str) else one
            for path, one in (files or {}).items()
        }
        sha = sha or hashlib.sha1(f"{self.full_name} {next(self.ids)}".encode()).hexdigest()
        self.commits[sha] = Commit(sha, stored, message, self.clock.stamp())
        if branch:
            self.branches[branch] = sha
        return sha

    def add_pull(
        self,
        head_sha: str = "",
        *,
        number: int = 0,
        head_branch: str = "faster",
        head_repository: str | None = "",
        base_sha: str = "",
        author: str = "mona",
        draft: bool = False,
        files: Mapping[str, bytes | str] | None = None,
    ) -> Pull:
        """Opens a pull request to the default branch; from the repository itself unless another is
        named, None for a fork that was deleted."""
        base = base_sha or self.branches.get(self.default_branch) or ""
        base = base if base in self.commits else self.add_commit(sha=base)
        if head_sha not in self.commits:
            head_sha = self.add_commit(files, sha=head_sha)
        pull = Pull(
            number=number or self.next_number(),
            author=author,
            head_sha=head_sha,
            head_branch=head_branch,
            head_repository=self.full_name if head_repository == "" else head_repository,
            base_sha=base,
            base_branch=self.default_branch,
            created=self.clock.stamp(),
            draft=draft,
        )
        self.pulls[pull.number] = pull
        self.clock.advance(1)
        return pull

    def next_number(self) -> int:
        """The number of the next pull request."""
        return max(self.pulls, default=0) + 1

    def push(
        self, pull: Pull, sha: str = "", files: Mapping[str, bytes | str] | None = None
    ) -> str:
        """Moves the head of a pull request to a new commit, and returns it."""
        pull.head_sha = self.add_commit(files, sha=sha)
        self.clock.advance(1)
        return pull.head_sha

    def add_comment(self, number: int, body: str, author: str = "mona") -> Comment:
        """Somebody comments."""
        now = self.clock.stamp()
        comment = Comment(next(self.ids), number, author, body, now, now)
        self.comments[comment.id] = comment
        self.clock.advance(1)
        return comment

    def comments_on(self, number: int) -> list[Comment]:
        """The comments on an issue or a pull request, oldest first."""
        return [one for one in self.comments.values() if one.number == number]

    def label(self, pull: Pull, name: str, by: str) -> None:
        """Somebody sets a label."""
        if name not in pull.labels:
            pull.labels.append(name)
        self._label_event(pull, "labeled", name, by)

    def unlabel(self, pull: Pull, name: str, by: str) -> None:
        """Somebody takes a label off."""
        pull.labels.remove(name)
        self._label_event(pull, "unlabeled", name, by)

    def _label_event(self, pull: Pull, event: str, name: str, by: str) -> None:
        pull.events.append(LabelEvent(next(self.ids), event, name, by, self.clock.stamp()))
        self.clock.advance(1)

    def add_status(self, sha: str, state: str, context: str, **values: Any) -> Status:
        """A status is set, by the workflow's bot unless `creator` says otherwise."""
        status = Status(
            id=next(self.ids),
            sha=sha,
            state=state,
            context=context,
            description=values.get("description"),
            target_url=values.get("target_url"),
            creator=values.get("creator", BOT),
            created=self.clock.stamp(),
        )
        self.statuses.append(status)
        self.clock.advance(1)
        return status

    def statuses_of(self, sha: str) -> list[Status]:
        """The statuses of a commit, newest first."""
        return [one for one in reversed(self.statuses) if one.sha == sha]

    def add_run(
        self,
        head_sha: str,
        *,
        id: int = 0,
        event: str = "pull_request",
        head_branch: str = "faster",
        head_repository: str | None = "",
        conclusion: str | None = "success",
    ) -> Run:
        """A workflow run, ended unless its conclusion is None."""
        run = Run(
            id=id or next(self.ids),
            event=event,
            head_sha=head_sha,
            head_branch=head_branch,
            head_repository=self.full_name if head_repository == "" else head_repository,
            conclusion=conclusion,
            created=self.clock.stamp(),
        )
        self.runs[run.id] = run
        return run

    def add_artifact(self, run: Run, name: str, content: bytes, expired: bool = False) -> Artifact:
        """An artifact of a run; `content` is the zip file."""
        artifact = Artifact(next(self.ids), name, content, expired, self.clock.stamp())
        run.artifacts.append(artifact)
        return artifact

    def resolve(self, ref: str) -> str | None:
        """The commit that a SHA or a branch names; None where it names none."""
        if ref in self.commits:
            return ref
        branch = ref.removeprefix("refs/").removeprefix("heads/")
        return self.branches.get(branch)


class State:
    """All repositories, and the clock and the numbers that they share."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.repositories: dict[str, Repository] = {}
        self._ids = itertools.count(1001)

    def add_repository(
        self, full_name: str, *, default_branch: str = "main", private: bool = False
    ) -> Repository:
        """A repository with one commit on its default branch."""
        found = Repository(full_name, self.clock, self._ids, default_branch, private)
        found.add_commit(branch=default_branch, message="The first")
        self.repositories[full_name] = found
        return found
