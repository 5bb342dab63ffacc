"""Always an answer: whatever ends the half that answers, the commit gets `error` with a reason.

A status that stays `pending`, or an older `success`, would pass for an answer to this commit.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.errors import DISK_FULL, CanaryError, MachineError, not_written
from canary.gate.context import World
from canary.gate.inputs import ReportSettings
from canary.gate.judging import Judged, error
from canary.github.event import Intent, Kind
from canary.github.publish import STATUS_KINDS, Channels, publish
from canary.github.source import Source
from canary.github.statuses import context_of

HINT = "run the job again; open an issue if it fails twice"


@dataclass
class Target:
    """Where an answer belongs, as far as it is known."""

    settings: ReportSettings
    world: World
    intent: Intent
    pull: PullRequest | None = None
    """Filled in once it is found."""
    comments: bool = True
    """Whether a comment belongs to this answer."""

    @property
    def repository(self) -> Repository:
        """The repository on GitHub, without asking for it: a failed read may not cost an answer."""
        name = self.settings.repository
        known = {"url": f"/repos/{name}", "full_name": name}
        return Repository(self.world.hub.github.requester, {}, known, completed=True)

    @property
    def source(self) -> Source:
        """The commit, and the run that speaks of it."""
        settings, intent = self.settings, self.intent
        # A repository that was deleted has no name: its run must not pass for another's.
        origin = intent.head_repository or ("deleted" if intent.fork else "")
        return Source(intent.head_sha, settings.run_url, settings.run_id, settings.attempt, origin)

    @property
    def context(self) -> str:
        """The name of the status; the event often names the base branch where the token may not
        look."""
        base = self.pull.base.ref if self.pull is not None else self.intent.base_branch
        return context_of(self.settings.context, base, self.intent.default_branch)

    @property
    def number(self) -> int | None:
        """The number of the pull request."""
        return self.pull.number if self.pull is not None else self.intent.pull_request


def answered(target: Target, work: Callable[[], int]) -> int:
    """The exit code of `work`. Whatever else ends it, the commit is told so first.

    Raises:
        CanaryError: what ended it, in words of ours.
        KeyboardInterrupt: the job was cancelled.
    """
    failed: list[BaseException] = []
    with _kept(failed):
        return work()
    problem = failed[0]
    if target.intent.kind is not Kind.IGNORE:
        _last_word(target, problem, failed)
    if isinstance(problem, CanaryError | KeyboardInterrupt):
        raise problem
    raise MachineError(reason_of(problem)) from problem


@contextlib.contextmanager
def _kept(failed: list[BaseException]) -> Iterator[None]:
    """Keeps whatever ends the block."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - the commit needs an answer
        failed.append(problem)


def reason_of(problem: BaseException) -> str:
    """Why there is no answer: no text of a library, and none of a record."""
    if isinstance(problem, CanaryError):
        return str(problem).rstrip(".")
    if isinstance(problem, KeyboardInterrupt):
        return "the job was cancelled before it had an answer"
    if isinstance(problem, OSError) and problem.errno in DISK_FULL:
        return str(not_written("the report", problem))
    return f"the reporting job failed with an unexpected {type(problem).__name__} ({HINT})"


def errors_of(settings: ReportSettings, reason: str) -> list[Judged]:
    """An error for every config, all for one reason."""
    found = []
    for config in settings.configs or ("canary",):
        judged = error(Path(config).stem, reason)
        path = posixpath.normpath(posixpath.join(settings.folder, config))
        found.append(replace(judged, answer=replace(judged.answer, config=path)))
    return found


def _last_word(target: Target, problem: BaseException, failed: list[BaseException]) -> None:
    """`error` in every channel, each on its own: one that fails costs no other."""
    settings, world = target.settings, target.world
    answers = tuple(one.answer for one in errors_of(settings, reason_of(problem)))
    kind = settings.status if settings.status in STATUS_KINDS else "commit-status"
    cancelled = isinstance(problem, KeyboardInterrupt)
    wanted = Channels(
        comment=False, status="none", context=settings.context, author=settings.author
    )
    with _kept(failed):
        wanted = replace(wanted, context=target.context)
    every = [
        replace(wanted, status=one)
        for one in ("commit-status", "check-run")
        if kind in (one, "both")
    ]
    if settings.comment and target.comments and not cancelled:
        every.append(replace(wanted, comment=True))
    job = world.job
    for channels in every or [wanted]:  # With none, the summary is left.
        with _kept(failed):
            publish(
                world.hub, target.repository, target.number, target.source, answers, channels, job
            )
        job = replace(job, summary=None)  # Said once.
    with _kept(failed):
        world.job.set_outputs({"verdict": "error", "report-path": str(settings.report)})
