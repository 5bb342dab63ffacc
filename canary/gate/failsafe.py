"""If the reporting job fails, the commit still gets the status `error` with a reason.

Otherwise a `pending` or an older `success` would look like the answer for this commit.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from canary.errors import DISK_FULL, CanaryError, MachineError, not_written
from canary.gate.gathering import Target
from canary.gate.inputs import ReportSettings
from canary.gate.judging import error
from canary.github.event import Kind
from canary.github.publish import publish
from canary.github.status import Answer


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
    remedy = "run the job again; open an issue if it fails twice"
    return f"the reporting job failed with an unexpected {type(problem).__name__} ({remedy})"


def errors_of(settings: ReportSettings, reason: str) -> list[Answer]:
    """Return an error with this reason for every config."""
    found = []
    for config in settings.configs:
        path = posixpath.normpath(posixpath.join(settings.folder, config))
        found.append(replace(error(Path(config).stem, reason), config=path, job=settings.job))
    return found


def _last_word(target: Target, problem: BaseException, failed: list[BaseException]) -> None:
    """Publish `error` to every channel separately: a failing channel must not block the others."""
    settings, world = target.settings, target.world
    answers = errors_of(settings, reason_of(problem))
    channels = settings.channels
    wanted = replace(channels, comment="never", status=False)
    with _kept(failed):
        wanted = replace(wanted, context=target.context)
    cancelled = isinstance(problem, KeyboardInterrupt)
    every = [wanted]  # The summary alone.
    if channels.status:
        every.append(replace(wanted, status=True))
    if channels.comment != "never" and target.comments and not cancelled:
        every.append(replace(wanted, comment="always"))
    job = world.job
    for one in every:
        with _kept(failed):
            publish(world.hub, target.number, target.source, answers, one, job)
        job = replace(job, summary=None)  # Write the summary only once.
    with _kept(failed):
        world.job.set_outputs({"verdict": "error", "report-path": str(settings.report)})
