"""Both axes at once: did the code do it, or the packages, or only both together?

The four corners are the good and the bad commit, each with the good and the bad packages. A search
over the two suspects "the code" and "the packages" runs those that it needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from canary.bisect.answer import Answered
from canary.bisect.bench import CommitBench
from canary.bisect.bisect import GIT_LOG, BisectRequest, engines_of, ground_of, recipe_of
from canary.bisect.caches import own_caches
from canary.bisect.commits import SHORT, History, history_between
from canary.bisect.finding import Described, Engines, Found, Ground, Step
from canary.bisect.gitlog import git_bisect_log
from canary.bisect.model import Search, Seen, Space, State, Workbench
from canary.bisect.packages.bench import PackageBench
from canary.bisect.packages.grounds import Sets
from canary.bisect.packages.minimal import SetSearch
from canary.bisect.packages.request import PackagesRequest
from canary.bisect.packages.search import PackageSearch
from canary.campaign.side import Side, undisturbed
from canary.campaign.worktrees import repository_of
from canary.machine.scratch import new_scratch
from canary.report.render import write_text

CODE, PACKAGES = 0, 1
"""The suspects of the corners."""
TITLE = "axis"


@dataclass(frozen=True)
class Axes:
    """What the corners and the search for a commit showed."""

    commit: Answered | None = None
    """The search for a commit, if the code did it."""
    packages: bool = True
    """Whether the packages did it."""
    together: bool = False
    """Whether it takes both."""


@dataclass(frozen=True)
class _Corners:
    prior: Sequence[float] = (0.5, 0.5)

    def states(self, posterior: Sequence[float]) -> Sequence[State]:
        """Return the corners between the ends."""
        return [1 << CODE, 1 << PACKAGES]


@dataclass
class Combined:
    """Runs the code of one workbench with the packages of another; see `Workbench`."""

    code: Workbench
    packages: Workbench
    split: tuple[State, State]
    """State of the code and of the packages where neither varies."""
    names: Sequence[str]
    output: Path
    varies: int | None = None
    """`CODE`: the state is that of the code, with fixed packages. None: its bits are the two axes,
    and `split` has the bad ends."""
    _scratch: Path | None = field(default=None, init=False)

    def _states(self, state: State) -> tuple[State, State]:
        if self.varies == CODE:
            return state, self.split[PACKAGES]
        return (
            self.split[CODE] if state >> CODE & 1 else 0,
            self.split[PACKAGES] if state >> PACKAGES & 1 else 0,
        )

    def side(self, state: State) -> Side:
        """Return a commit's code with a set's Python."""
        code_state, package_state = self._states(state)
        code, packages = self.code.side(code_state), self.packages.side(package_state)
        if self._scratch is None:
            self._scratch = new_scratch("bisect")
        name = f"{code_state:x}-{package_state:x}"
        environment = own_caches(self._scratch / name, code.environment, command=True)
        for key in ("PATH", "VIRTUAL_ENV"):
            environment[key] = packages.environment[key]
        return replace(
            code,
            role="",
            label=self.label(state),
            python=packages.python,
            environment=environment,
            output_dir=self.output / "runs" / name,
        )

    def label(self, state: State) -> str:
        """Return the names of the code and of the packages."""
        code_state, package_state = self._states(state)
        if self.varies == CODE:
            return self.code.label(code_state)
        return f"{self.code.label(code_state)} with {self.packages.label(package_state)}"

    def name(self, suspect: int) -> str:
        """Return a suspect's name."""
        return self.names[suspect] if self.varies is None else self.code.name(suspect)

    def close(self) -> None:
        """Remove the caches; the workbenches have their own owners."""
        if self._scratch is not None:
            with undisturbed():
                shutil.rmtree(self._scratch, ignore_errors=True)


def both_axes(request: PackagesRequest, search: PackageSearch, config: Path) -> Axes:
    """Search the axis that did it, or each with the other at its bad end if only both do."""
    stages = search.stages
    repository = repository_of(stages.here)
    assert request.good_commit is not None
    assert request.bad_commit is not None
    history = history_between(repository, request.good_commit, request.bad_commit)
    asked = BisectRequest(
        config,
        request.good_commit,
        request.bad_commit,
        settings=request.settings,
        output_dir=stages.folder,
    )
    journal = stages.journal(TITLE, [history.good, history.bad, *map(str, search.changes.changed)])
    commits = CommitBench(history, recipe_of(asked, history, stages.here))
    stages.around.callback(commits.close)
    sets = Sets(search.changes)
    packages = PackageBench(
        sets.contents,
        [str(change) for change in sets.suspects],
        replace(search.code, output_dir=stages.place(TITLE)),
        search.installer,
        search.command,
    )
    stages.around.callback(packages.close)
    corners = _corners(history, commits, packages, stages.place(TITLE))
    stages.around.callback(corners.close)
    found: list[SetSearch] = []
    answered = stages.find(TITLE, _ground(corners), journal, _engines(search, found))
    if not found or not (answered.found.decided or answered.found.answer.together):
        return Axes(packages=False)
    suspects = set(answered.found.answer.suspects)
    together = len(suspects) > 1
    if not together and found[0].others:
        stages.note("the code shows it without the packages, and the packages without the code")
        suspects = {CODE, PACKAGES}
    commit = None
    if CODE in suspects:
        commit = _commit(search, history, commits, packages, packages.bad if together else 0)
    if PACKAGES in suspects:
        code = commits.side(history.bad_state if together else 0)
        search.code = replace(code, role="", output_dir=stages.folder)
        search.run()
    return Axes(commit, PACKAGES in suspects, together)


def _corners(
    history: History, commits: CommitBench, packages: PackageBench, output: Path
) -> Combined:
    names = [
        f"the code between {history.good[:SHORT]} and {history.bad[:SHORT]}",
        f"the packages, of which {len(packages.names)} differ",
    ]
    return Combined(commits, packages, (history.bad_state, packages.bad), names, output)


def _ground(corners: Combined) -> Ground:
    def describe(suspect: int, found: Found | None) -> Described:
        return Described(corners.names[suspect], (), {"axis": ("code", "packages")[suspect]})

    def step(suspect: int, seen: Sequence[Seen]) -> Step:
        return Step(0, 1 << suspect)

    return Ground(corners, 3, lambda ends: _Corners(), step, describe, noun="suspect")


def _engines(search: PackageSearch, found: list[SetSearch]) -> Engines:
    engines = engines_of(search.stages.judge)

    def kept(one: SetSearch) -> Search:
        found.append(one)
        return one

    def exact(space: Space) -> Search:
        return kept(SetSearch(engines.exact, space))

    def noisy(space: Space, check: str, effect: float) -> Search:
        return kept(SetSearch(lambda one: engines.noisy(one, check, effect), space))

    return Engines(exact, noisy)


def _commit(
    search: PackageSearch,
    history: History,
    commits: CommitBench,
    packages: PackageBench,
    held: State,
) -> Answered:
    """Search the commits with fixed packages."""
    stages = search.stages
    journal = stages.journal("commit", [history.good, history.bad, held])
    place = stages.place("commit")
    bench = Combined(commits, packages, (0, held), (), place, CODE)
    stages.around.callback(bench.close)
    answered = stages.find("commit", ground_of(history, bench), journal)
    write_text(place / GIT_LOG, git_bisect_log(history, answered.found))
    return answered
