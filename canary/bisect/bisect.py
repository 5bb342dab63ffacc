"""`canary bisect`: which commit made it worse."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from canary import __version__
from canary.baseline.commits import diff_between
from canary.bisect.answer import Answered, left_behind
from canary.bisect.bench import CommitBench, Recipe
from canary.bisect.commits import SHORT, CommitSpace, History, history_between
from canary.bisect.finding import Described, Engines, Found, Ground, Step, Wish, find
from canary.bisect.gitlog import git_bisect_log
from canary.bisect.journal import LOG, Journal, digest
from canary.bisect.judging import Judge
from canary.bisect.launches import Launches
from canary.bisect.model import Seen, Workbench
from canary.bisect.prior import prior_of
from canary.bisect.question import require_known
from canary.bisect.searching import exact_search, noisy_search
from canary.campaign.noise_model import Measured
from canary.campaign.worktrees import repository_of, uncommitted
from canary.compare.diagnosis.source_changes import Hunk, parse_diff
from canary.config.output import OUTPUT_DIR
from canary.errors import UsageError
from canary.machine.git import run_git
from canary.machine.packages import package_versions
from canary.protocol.failure import place_in
from canary.record import jsonio
from canary.report.render import write_text
from canary.runner.display.progress import CampaignPanel
from canary.runner.warm import warm_starts

GIT_LOG = "bisect.log"
DIGITS = 8
"""Of the digest in the name of the default folder."""
LINES_SHOWN = 3
"""Changed lines that the answer shows."""
PROSE = (".md", ".rst", ".txt")


@dataclass(frozen=True)
class BisectRequest:
    """The arguments of `canary bisect`."""

    config: Path
    good: str
    bad: str
    check: str | None = None
    budget_minutes: float | None = None
    setup: str | None = None
    settings: tuple[str, ...] = ()
    output_dir: Path | None = None
    typed: str = "canary bisect"
    """The command as the user typed it, to continue with."""

    def wish(self) -> Wish:
        """Return what to look for, and for how long.

        Raises:
            UsageError: the check is unknown, or the budget is no time.
        """
        if self.check is not None:
            require_known(self.check)
        if self.budget_minutes is not None and not self.budget_minutes > 0:
            raise UsageError(f"--budget must be more than 0 minutes, got {self.budget_minutes:g}")
        for key, _, value in (setting.partition("=") for setting in self.settings):
            if key.strip() in ("repeats", "exact"):
                raise UsageError(
                    f"--set {key.strip()}={value.strip()} does not work with bisect",
                    "it decides itself which launches run",
                )
        return Wish(self.check, None if self.budget_minutes is None else 60 * self.budget_minutes)


@warm_starts()
def run_bisect(
    request: BisectRequest, say: Callable[[str], None], panel: CampaignPanel | None = None
) -> Answered:
    """Find the commit that made it worse. The answer is also left in the output folder.

    Raises:
        UsageError: the request, the commits or the config is invalid, or nothing is worse.
        MachineError: an end cannot run.
    """
    wish = request.wish()
    here = Path.cwd().resolve()
    repository = repository_of(here)
    history = history_between(repository, request.good, request.bad)
    recipe = recipe_of(request, history, here)
    changed = uncommitted(repository)
    if changed:
        files = "file in the working tree is" if changed == 1 else "files in the working tree are"
        say(f"note: {changed} uncommitted {files} not part of the bisect")
    with contextlib.ExitStack() as around:
        journal = Journal.open(recipe.folder, _asked(request, recipe, history))
        around.callback(journal.close)
        bench = CommitBench(history, recipe)
        around.callback(bench.close)
        _say_start(history, recipe, journal, say)
        judge = Judge(here, Measured(say, None, here))
        ground = ground_of(history, bench)
        try:
            found = find(
                ground, wish, engines_of(judge), Launches(bench, journal, panel), judge, say
            )
        except KeyboardInterrupt:
            say(f"to continue: {request.typed}")
            raise
        names = {"good": request.good, "bad": request.bad}
        answered = Answered(found, ground, journal, names, str(request.config))
        write_text(recipe.folder / GIT_LOG, git_bisect_log(history, found))
        return replace(answered, page=left_behind(answered, repository))


def engines_of(judge: Judge) -> Engines:
    """Return the searches for each kind of signal."""
    return Engines(
        exact_search,
        lambda space, check, effect: noisy_search(space, spread=judge.spread(check), effect=effect),
    )


def ground_of(history: History, bench: Workbench) -> Ground:
    """Return what the loop needs to search commits."""

    def step(suspect: int, seen: Sequence[Seen]) -> Step:
        return history.step(suspect, seen)

    def describe(suspect: int, found: Found | None) -> Described:
        return described(history, suspect, found)

    return Ground(
        bench,
        history.bad_state,
        lambda ends: CommitSpace(history, prior_of(history, ends)),
        step,
        describe,
        history.base_of,
    )


def described(history: History, suspect: int, found: Found | None) -> Described:
    """Describe a commit; `found`: the result whose culprit it is, which may name a line."""
    commit = history.commits[suspect]
    facts: dict[str, Any] = {
        "sha": commit.sha,
        "subject": commit.subject,
        "date": commit.date,
        "parents": list(commit.parents),
    }
    title = f"{commit.short} {commit.subject} ({commit.date})"
    lines = _changed_lines(history, suspect, _place(found))
    if not lines:
        return Described(title, (), facts)
    path, number, text = lines[0]
    facts |= {"file": path, "line": number, "text": text}
    return Described(title, tuple(f"{path}:{line}: {text}" for path, line, text in lines), facts)


def _place(found: Found | None) -> tuple[str, int] | None:
    """Return file and line that the last step's diagnosis, or its crash, names."""
    if found is None:
        return None
    if found.last is None:
        return place_in(found.last_words)
    top = found.last.diagnosis.top_suspect
    evidence = () if top is None else top.evidence
    return next(((one.path, one.line or 1) for one in evidence if one.path), None)


def _changed_lines(
    history: History, suspect: int, place: tuple[str, int] | None
) -> tuple[tuple[str, int, str], ...]:
    """Return (file, line, text) of the changed lines from a place on, or of a small commit."""
    commit = history.commits[suspect]
    if not commit.parents:
        return ()
    changes = parse_diff(diff_between(history.repository, commit.parents[0], commit.sha))
    hunks = [h for file in changes.files for h in file.hunks if place and _holds(h, *place)]
    if hunks and place:
        lines = [
            (hunk.path, hunk.line + index, text.strip())
            for hunk in hunks
            for index, text in enumerate(hunk.added)
            if text.strip() and hunk.line + index >= place[1]
        ]
        removed = (hunks[0].path, hunks[0].line, "a line was removed")
        return tuple(lines[:LINES_SHOWN]) or (removed,)
    code = [
        (file.path, number, text.strip())
        for file in changes.files
        if not file.path.endswith(PROSE)
        for number, text in file.lines
        if text.strip() and not text.lstrip().startswith("#")
    ]
    return tuple(code) if len(code) <= LINES_SHOWN else ()


def _holds(hunk: Hunk, path: str, line: int) -> bool:
    """Whether the hunk is of the file, and at the line or after it."""
    same = hunk.path == path or hunk.path.endswith(f"/{path}") or path.endswith(f"/{hunk.path}")
    return same and hunk.line + max(len(hunk.added), 1) > line


def recipe_of(request: BisectRequest, history: History, here: Path) -> Recipe:
    """Return how commits run; the config may be in the commits or outside of them.

    Raises:
        UsageError: there is no such config, or only one end has it.
    """
    repository = history.repository
    given = (here / request.config).resolve()
    folder = _folder(request, history, given, here)
    recipe = Recipe(here, given, False, request.setup, request.settings, folder)
    inside = given.is_relative_to(repository)
    ends = {"good": history.good, "bad": history.bad}
    lacking = [end for end, sha in ends.items() if not inside or not _has(repository, sha, given)]
    if len(lacking) == 1:
        raise UsageError(
            f"{given.relative_to(repository)} is not in the {lacking[0]} commit "
            f"{ends[lacking[0]][:SHORT]}",
            "copy it to a place outside the repository and name that: every commit runs it then",
        )
    if lacking and not given.is_file():
        raise UsageError(f"no config at {request.config}", "write one with: canary init-config")
    return replace(recipe, everywhere=bool(lacking))


def _has(repository: Path, sha: str, file: Path) -> bool:
    name = file.relative_to(repository).as_posix()
    return run_git(repository, "cat-file", "-e", f"{sha}:{name}", environ=os.environ).code == 0


def _folder(request: BisectRequest, history: History, config: Path, here: Path) -> Path:
    """Return the named output folder, or the one that the same arguments had before."""
    if request.output_dir is not None:
        return (here / request.output_dir).absolute()
    same = digest([*_arguments(request, history).values(), str(config)])[:DIGITS]
    root = (here / OUTPUT_DIR).absolute()
    earlier = sorted(root.glob(f"bisect-*-{same}"))
    return earlier[-1] if earlier else root / f"bisect-{datetime.now(UTC):%Y%m%d-%H%M%S}-{same}"


def _arguments(request: BisectRequest, history: History) -> dict[str, str]:
    return {
        "--good": history.good,
        "--bad": history.bad,
        "--check": request.check or "",
        "--setup": request.setup or "",
        "--set": jsonio.dumps(request.settings),
    }


def _asked(request: BisectRequest, recipe: Recipe, history: History) -> Mapping[str, str]:
    """Return what has to be equal to continue."""
    repository = history.repository
    inside = recipe.config.is_relative_to(repository)
    name = recipe.config.relative_to(repository) if inside else recipe.config
    content = recipe.config.read_text("utf-8", "replace") if recipe.everywhere else ""
    return {
        **_arguments(request, history),
        "config": str(name),
        "content of the config": digest(content),
        "set of packages": digest(package_versions()),
        "version of rlhf-canary": __version__,
    }


def _say_start(
    history: History, recipe: Recipe, journal: Journal, say: Callable[[str], None]
) -> None:
    count = len(history.commits)
    commits = f"{count} commit{'' if count == 1 else 's'}"
    most = max(1, count - 1).bit_length()
    say(
        f"{commits} between good {history.good[:SHORT]} and bad {history.bad[:SHORT]}: "
        f"about {most} look{'' if most == 1 else 's'} for a signal without noise, "
        "more launches for a noisy one"
    )
    if journal.to_replay:
        say(f"continuing with {len(journal.to_replay)} runs that {recipe.folder / LOG} holds")
    say(f"records: {recipe.folder}; if interrupted, the same command continues")
