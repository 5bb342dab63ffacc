"""Small real repositories, and a workbench whose runs are made-up records."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.bisect.candidates import Commits, commits_between
from canary.bisect.finding import Finder, Found
from canary.bisect.journal import SETTINGS, Journal, Runs
from canary.bisect.search import CannotRun, State
from canary.campaign.judging import Judge, Measured
from canary.campaign.side import Side
from canary.record.types import RunRecord
from tests.unit.comparing import altered, crashed, record, write

FILES = Mapping[str, str]


class Repository:
    """A git repository made commit by commit; commits are known by their subject."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.email", "a@example.org")
        self.git("config", "user.name", "A")
        self._count = 0

    def git(self, *arguments: str) -> str:
        """Run git; return its output."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, subject: str, files: FILES | None = None) -> str:
        """Commit some files, or an empty change; return the commit."""
        for name, text in (files or {}).items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self._count += 1
        date = f"2026-01-01T00:{self._count // 60:02}:{self._count % 60:02}+0000"
        subprocess.run(
            ["git", "commit", "-q", "--allow-empty", "-m", subject, f"--date={date}"],
            cwd=self.root,
            check=True,
            env={"PATH": "/usr/bin:/bin", "GIT_COMMITTER_DATE": date, "HOME": str(self.root)},
        )
        return self.git("rev-parse", "HEAD")

    def line(self, count: int) -> list[str]:
        """Make `count` commits named c0, c1, ... that each change a file."""
        return [self.commit(f"c{i}", {f"f{i}.py": f"x = {i}\n"}) for i in range(count)]

    def merge(self, branch: str, subject: str = "") -> str:
        """Merge a branch into the checked-out one."""
        self._count += 1
        self.git("merge", "-q", "--no-ff", "-m", subject or f"merge {branch}", branch)
        return self.git("rev-parse", "HEAD")

    def between(self, good: str, bad: str) -> Commits:
        """Return the suspects between two commits."""
        first, _, found = commits_between(self.root, good, bad)
        code = Side("", "", self.root, self.root, Path(), os.environ, self.root)
        return Commits(self.root, first, found, code, None, True)


def diamond(root: Path) -> Repository:
    """good - a - b - merge - d; side branch s1 - s2 from good; early from before good."""
    made = Repository(root)
    made.commit("start")
    made.git("branch", "early")
    made.commit("good")
    made.git("tag", "good")
    made.git("branch", "side")
    for name in ("a", "b"):
        made.commit(name, {f"{name}.py": name})
    made.git("checkout", "-q", "side")
    for name in ("s1", "s2"):
        made.commit(name, {f"{name}.py": name})
    made.git("checkout", "-q", "early")
    made.commit("e1", {"e1.py": "e"})
    made.git("checkout", "-q", "main")
    made.merge("side")
    made.merge("early")
    made.commit("d", {"d.py": "d"})
    return made


Run = Callable[[str, int, str], RunRecord]
"""Makes the record of a run from the commit's subject, the number of the run, and its kind."""


def looked(number: int, loss: float = 2.0, median_s: float = 0.1) -> RunRecord:
    """A completed run; another `loss` makes the check `first_loss` red."""
    made = record(number, median_s)
    made = altered(made, "exact", "trajectory", "losses", 0, to=loss)
    made = altered(made, "stability", "loss_values", 0, to=loss)
    return altered(made, "exact", "first_loss", "loss", to=loss)


def failed(number: int, reason: str) -> RunRecord:
    """A run that ended early."""
    return crashed(record(number), "failed", reason)


@dataclass(frozen=True)
class MadeSide(Side):
    """A side whose runs are made up."""

    runs: Callable[[str], RunRecord] = field(kw_only=True)

    def run_with(self, settings: Sequence[str] = (), *shown: object) -> RunRecord:
        kind = next(kind for kind, words in SETTINGS.items() if words == tuple(settings))
        made = self.runs(kind)
        if kind == "look":
            config = {**made.config, "exact": True}
            made = made.model_copy(update={"config": config, "launches": []})
            made = altered(made, "perf", "step_time", "count", to=0)
        write(self.output_dir / made.run_id / "metrics.json", made)
        return made


@dataclass
class MadeCommits(Commits):
    """Commits whose runs are made up."""

    folder: Path
    made: Run
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(subject, kind) of each run."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Commits that do not build, and why."""
    stop_after: int | None = None
    """Raise KeyboardInterrupt instead of the run after so many."""

    def subject(self, state: State) -> str:
        known = {commit.sha: commit.subject for commit in self.commits}
        return known.get(self.runnable[state], "good")

    def build(self, state: State, place: Path) -> Side:
        subject = self.subject(state)
        if subject in self.broken:
            raise CannotRun(self.broken[subject])

        def run(kind: str) -> RunRecord:
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append((subject, kind))
            return self.made(subject, sum(1 for _ in self.folder.glob("*/*")), kind)

        label = self.label(state)
        return MadeSide("commit", label, Path(), Path(), Path(), {}, self.folder / label, runs=run)


def made_of(theirs: Commits, folder: Path, run: Run) -> MadeCommits:
    """The suspects of a repository with made-up runs."""
    git = (theirs.repository, theirs.good, theirs.commits)
    return MadeCommits(*git, theirs.code, None, True, folder, run)


def bisected(
    commits: MadeCommits,
    check: str | None = None,
    seconds: float = 10.0,
    said: list[str] | None = None,
) -> Found:
    """Bisect with a log in the folder of the runs; each run takes `seconds`."""
    ticks = iter(range(10**9))
    journal = Journal.open(commits.folder, {"made": "up"})
    say = (said if said is not None else []).append
    try:
        # The clock is read before and after each run.
        runs = Runs(commits, journal, clock=lambda: seconds * next(ticks))
        judge = Judge(commits.folder, Measured(say))
        return Finder(runs, judge, check, say).find()
    finally:
        journal.close()
        commits.close()


def names(found: Found, commits: Commits) -> list[str]:
    """Subjects of the suspects that the answer names."""
    return sorted(commits.commits[place].subject for place in found.answer.suspects)
