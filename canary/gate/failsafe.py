"""If the reporting job fails, the commit still gets the status `error` with a reason.

Otherwise a `pending` or an older `success` would look like the answer for this commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.errors import DISK_FULL, CanaryError, MachineError, not_written
from canary.gate.base_config import path_in
from canary.gate.context import World
from canary.gate.grounds import Judged, error
from canary.gate.inputs import ReportSettings
from canary.github.client import Hub
from canary.github.event import Intent, Kind
from canary.github.publish import Channels, publish
from canary.github.status import Source
from canary.github.statuses import context_of

HINT = "run the job again; open an issue if it fails twice"


@dataclass
class Target:
    """Where the answer goes, and what it was, as far as it is known."""

    settings: ReportSettings
    world: World
    intent: Intent
    pull: PullRequest | None = None
    """Set once it is found."""
    comments: bool = True
    """Whether this job may write the comment."""
    judged: Sequence[Judged] = ()
    """The published answers, once they are out."""
    kept: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Holds the files of the records until the page is drawn."""

    @property
    def repository(self) -> Repository:
        """The repository."""
        return known_repository(self.world.hub, self.settings.repository)

    @property
    def source(self) -> Source:
        """The commit, and the workflow run that judges it."""
        settings, intent = self.settings, self.intent
        # A deleted repository has no name; without one its run would look like any repository's.
        origin = intent.head_repository or ("deleted" if intent.fork else "")
        return Source(intent.head_sha, settings.run_url, settings.run_id, settings.attempt, origin)

    @property
    def context(self) -> str:
        """The name of the status. The event often names the base branch, even if the token may not
        read the pull request."""
        base = self.pull.base.ref if self.pull is not None else self.intent.base_branch
        return context_of(self.settings.name, base, self.intent.default_branch)

    @property
    def number(self) -> int | None:
        """The number of the pull request."""
        return self.pull.number if self.pull is not None else self.intent.pull_request


def known_repository(hub: Hub, name: str) -> Repository:
    """Return a repository without a request: a failed read must not prevent the answer."""
    known = {"url": f"/repos/{name}", "full_name": name}
    return Repository(hub.github.requester, {}, known, completed=True)


def answered(target: Target, work: Callable[[], int]) -> int:
    """Return the exit code of `work`; if `work` raises, publish an `error` first.

    Raises:
        CanaryError: `work` failed; other exceptions become a MachineError.
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
    """Append an exception of the block to `failed` instead of raising it."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - the commit needs an answer
        failed.append(problem)


def reason_of(problem: BaseException) -> str:
    """Return why there is no answer, without text from a library or a record."""
    if isinstance(problem, CanaryError):
        return str(problem).rstrip(".")
    if isinstance(problem, KeyboardInterrupt):
        return "the job was cancelled before it had a result"
    if isinstance(problem, OSError) and problem.errno in DISK_FULL:
        return str(not_written("the report", problem))
    return f"the reporting job failed with an unexpected {type(problem).__name__} ({HINT})"


def errors_of(settings: ReportSettings, reason: str) -> list[Judged]:
    """Return an error with this reason for every config."""
    found = []
    for config in settings.configs or ("canary",):
        judged = error(Path(config).stem, reason)
        path = path_in(settings.folder, config)
        found.append(replace(judged, answer=replace(judged.answer, config=path)))
    return found


def _last_word(target: Target, problem: BaseException, failed: list[BaseException]) -> None:
    """Publish `error` to every channel separately: a failing channel must not block the others."""
    settings, world = target.settings, target.world
    answers = [one.answer for one in errors_of(settings, reason_of(problem))]
    wanted = Channels(comment=False, status=False, context=settings.name, author=settings.author)
    with _kept(failed):
        wanted = replace(wanted, context=target.context)
    cancelled = isinstance(problem, KeyboardInterrupt)
    every = [wanted]  # The summary alone.
    if settings.status:
        every.append(replace(wanted, status=True))
    if settings.comment and target.comments and not cancelled:
        every.append(replace(wanted, comment=True))
    job = world.job
    for channels in every:
        with _kept(failed):
            publish(
                world.hub, target.repository, target.number, target.source, answers, channels, job
            )
        job = replace(job, summary=None)  # Write the summary only once.
    with _kept(failed):
        world.job.set_outputs({"verdict": "error", "report-path": str(settings.report)})
