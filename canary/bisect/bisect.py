"""`canary bisect`: which commit, or which version of which package, made it worse."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import Version

from canary import __version__
from canary.bisect.answer import Answered, Stage, answer_text, document_of
from canary.bisect.candidates import Candidates, Commits, commits_between
from canary.bisect.finding import Finder
from canary.bisect.journal import LOG, Journal, Runs
from canary.bisect.packages import (
    Change,
    PackageSets,
    PackageVersions,
    changes_between,
    read_pins,
    releases_between,
)
from canary.bisect.question import require_known
from canary.bisect.search import CannotRun
from canary.bisect.states import (
    digest,
    installers,
    is_command,
    releases_of,
    require_plain_python,
)
from canary.campaign.judging import Judge, Measured
from canary.campaign.side import Side
from canary.campaign.worktrees import repository_of, uncommitted
from canary.config.load import load_config
from canary.config.output import OUTPUT_DIR
from canary.config.source import no_config
from canary.errors import MachineError, UsageError, counted
from canary.machine.git import run_git
from canary.machine.packages import package_versions
from canary.record import jsonio
from canary.report.pages import compared_in, leave_report
from canary.report.render import FORMATS, write_text, written
from canary.runner.warm import warm_starts

DIGITS = 8
"""Of the digest in the name of the default folder."""


@dataclass(frozen=True)
class Request:
    """The arguments of `canary bisect`."""

    config: Path
    good: str | None = None
    bad: str = "HEAD"
    packages: tuple[Path, Path] | None = None
    check: str | None = None
    setup: str | None = None
    settings: tuple[str, ...] = ()
    output_dir: Path | None = None
    typed: str = "canary bisect"
    """The command as the user typed it, to continue with."""

    def validate(self) -> None:
        """Raise UsageError if the arguments contradict each other or what a bisect does."""
        if (self.good is None) == (self.packages is None):
            raise UsageError(
                "bisect needs either --good REF or --packages GOOD BAD",
                "if both changed, search the packages with the bad code first",
            )
        if self.packages is not None and self.setup is not None:
            raise UsageError("--setup does not go with --packages", "the lists replace it")
        if self.check is not None:
            require_known(self.check)
        for setting in self.settings:
            if setting.partition("=")[0].strip() in ("repeats", "exact"):
                raise UsageError(
                    f"--set {setting} does not work with bisect",
                    "without it, bisect looks at the first steps, and repeats launches only if the "
                    "check is noisy",
                )


@warm_starts()
def run_bisect(request: Request, say: Callable[[str], None]) -> Answered:
    """Find what made it worse. The answer is also left in the output folder.

    Raises:
        UsageError: the request, the commits, a list or the config is invalid, or nothing is worse.
        MachineError: an end cannot run.
    """
    request.validate()
    with contextlib.ExitStack() as around:
        bisect = _Bisect(request, Path.cwd().resolve(), say, around)
        try:
            return bisect.packages() if request.packages is not None else bisect.commits()
        except KeyboardInterrupt:
            say(f"to continue: {request.typed}")
            raise


@dataclass
class _Bisect:
    """The searches of one bisect, one after the other: each has its own folder and log."""

    request: Request
    here: Path
    say: Callable[[str], None]
    around: contextlib.ExitStack
    """Closes what the searches open."""
    stages: list[Stage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.judge = Judge(self.here, Measured(self.say, self.here))

    def commits(self) -> Answered:
        """Find the commit."""
        request, repository = self.request, repository_of(self.here)
        assert request.good is not None
        good, bad, suspects = commits_between(repository, request.good, request.bad)
        config = (self.here / request.config).resolve()
        everywhere = _everywhere(repository, (good, bad), config)
        content = config.read_text("utf-8", "replace") if everywhere else ""
        asked = {"--good": good, "--bad": bad, "config": str(config)}
        folder, asked = self._folder(asked, {"content of the config": digest(content)})
        changed = uncommitted(repository)
        if changed:
            self._note(f"{changed} uncommitted files are left out of the search")
        code = self._code(config, folder, os.environ)
        commits = Commits(repository, good, suspects, code, request.setup, everywhere)
        stage = self._find("commit", commits, folder, asked)
        return self._left(folder, [stage], {"good": request.good, "bad": request.bad})

    def packages(self) -> Answered:
        """Find the package, then the version of it."""
        request = self.request
        assert request.packages is not None
        good, bad = map(read_pins, request.packages)
        changed, fixed = changes_between(good, bad)
        config = (self.here / request.config).resolve()
        if not config.is_file():
            config = request.config
        loaded = load_config(config, request.settings).config
        require_plain_python(loaded)
        asked = {"config": str(config), "packages": digest([*map(str, changed), str(fixed)])}
        content = config.read_text("utf-8", "replace") if config.is_file() else ""
        folder, asked = self._folder(asked, {"content of the config": digest(content)})
        for note in filter(None, (good.left_out, bad.left_out)):
            self._note(note)
        environ, chosen = installers(os.environ), [0]

        def code(title: str) -> Side:
            return self._code(config, folder / title.replace(" ", "-"), environ)

        if len(changed) > 1:
            self.say(f"packages that differ: {', '.join(map(str, changed))}")
            sets = PackageSets(changed, fixed, code("package"), is_command(loaded))
            stage = self._find("package", sets, sets.code.output_dir, asked, sets=True)
            chosen = list(stage.found.answer.suspects) if stage.status == "found" else []
        parts = []
        for place in chosen:
            title, change = f"version of {changed[place].name}", changed[place]
            versions = PackageVersions(
                changed,
                fixed,
                code(title),
                is_command(loaded),
                versions=self._versions(change),
                change=change,
                held=sum(1 << one for one in chosen if one != place),
            )
            try:
                parts.append(self._find(title, versions, versions.code.output_dir, asked))
            except (MachineError, UsageError) as error:
                if not self.stages:
                    raise
                self._note(f"{title} was not found: {error}")
        names = {"good": str(request.packages[0]), "bad": str(request.packages[1])}
        return self._left(folder, parts or [*self.stages], names)

    def _code(self, config: Path, output: Path, environ: Mapping[str, str]) -> Side:
        """Return what runs, with this Python."""
        python, settings = Path(sys.executable), self.request.settings
        return Side("", "", config, self.here, python, environ, output, settings)

    def _versions(self, change: Change) -> list[Version | None]:
        good, bad = change.good, change.bad
        if good is None or bad is None:
            return [good, bad]
        try:
            pre = good.is_prerelease or bad.is_prerelease
            return [*releases_between(good, bad, releases_of(change.name, os.environ, pre=pre))]
        except CannotRun as why:
            self._note(f"{why}; only both ends of it are compared")
            return [good, bad]

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.say(f"note: {text}")

    def _find(
        self,
        title: str,
        candidates: Candidates,
        folder: Path,
        asked: Mapping[str, str],
        *,
        sets: bool = False,
    ) -> Stage:
        """Search candidates, and keep the result with the comparison behind it."""
        self.around.callback(candidates.close)
        journal = Journal.open(folder, {**asked, "search": title})
        self.around.callback(journal.close)
        ends = f"{candidates.label(0)} and {candidates.label(candidates.bad)}"
        self.say(f"{counted(candidates.count, candidates.noun)} between {ends}")
        if journal.waiting:
            self.say(f"continuing with {len(journal.waiting)} runs of {folder / LOG}")
        self.say(f"records: {folder}; if interrupted, the same command continues")
        check = self.request.check
        if self.stages and self.stages[0].found.question is not None:
            check = self.stages[0].found.question.check
        runs = Runs(candidates, journal)
        found = Finder(runs, self.judge, check, self.say, sets).find()
        self.stages.append(Stage(title, folder, candidates, found, tuple(journal.rows)))
        written(found.shows, folder)
        return self.stages[-1]

    def _left(self, folder: Path, parts: list[Stage], names: Mapping[str, str]) -> Answered:
        """Write the answer into the output folder."""
        inner = self.stages[-1].folder
        page = leave_report(compared_in(inner), inner)
        head: Mapping[str, Any] = {**names, "config": str(self.request.config), "notes": self.notes}
        answered = Answered(folder, document_of(self.stages, parts, head), page)
        for form, suffix in zip(FORMATS, ("txt", "md", "json"), strict=True):
            write_text(folder / f"bisect.{suffix}", answer_text(answered, form))
        return answered

    def _folder(
        self, asked: Mapping[str, str], more: Mapping[str, str]
    ) -> tuple[Path, dict[str, str]]:
        """Return the named output folder, or the one that the same arguments had before; and what
        has to be equal to continue, `more` included."""
        whole = {
            **asked,
            "--check": self.request.check or "",
            "--setup": self.request.setup or "",
            "--set": jsonio.dumps(self.request.settings),
        }
        root, same = (self.here / OUTPUT_DIR).absolute(), digest(whole)[:DIGITS]
        new = root / f"bisect-{datetime.now(UTC):%Y%m%d-%H%M%S}-{same}"
        folder = (sorted(root.glob(f"bisect-*-{same}")) or [new])[-1]
        if self.request.output_dir is not None:
            folder = (self.here / self.request.output_dir).absolute()
        versions = {"set of packages": digest(package_versions()), "rlhf-canary": __version__}
        return folder, {**whole, **more, **versions}


def _everywhere(repository: Path, ends: tuple[str, str], config: Path) -> bool:
    """Return whether every commit runs the user's file: an end has none of its own.

    Raises:
        UsageError: there is no such config.
    """
    if config.is_relative_to(repository):
        name = config.relative_to(repository).as_posix()
        looks = (("cat-file", "-e", f"{sha}:{name}") for sha in ends)
        if not any(run_git(repository, *look, environ=os.environ).code for look in looks):
            return False
    if not config.is_file():
        raise no_config(config)
    return True
