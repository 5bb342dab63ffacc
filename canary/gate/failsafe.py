"""If the reporting job fails, the commit still gets the status `error` with a reason.

Otherwise a `pending` or an older `success` would look like the answer for this commit.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from canary.errors import DISK_FULL, CanaryError, MachineError, not_written
from canary.gate.gathering import Target
from canary.gate.inputs import ReportSettings
from canary.gate.judging import error
from canary.github.event import Kind
from canary.github.status import Answer


def answered(target: Target, work: Callable[[], int]) -> int:
    """Return the exit code of `work`; if `work` raises, publish an `error` first.

    Raises:
        CanaryError: `work` failed; other exceptions become a MachineError.
        KeyboardInterrupt: the job was cancelled.
    """
    try:
        return work()
    except (Exception, KeyboardInterrupt) as problem:
        if target.intent.kind is not Kind.IGNORE:
            _last_word(target, problem)
        if isinstance(problem, CanaryError | KeyboardInterrupt):
            raise
        raise MachineError(reason_of(problem)) from problem


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


def _last_word(target: Target, problem: BaseException) -> None:
    """Publish `error` to every channel separately: a failing channel must not block the others."""
    answers = errors_of(target.settings, reason_of(problem))
    asked = target.channels
    summary = replace(asked, comment="never", status=False)
    other = replace(summary, job=replace(asked.job, summary=None))  # Write it only once.
    every = [summary, replace(other, status=asked.status)]
    cancelled = isinstance(problem, KeyboardInterrupt)
    if asked.comment != "never" and target.comments and not cancelled:
        every.append(replace(other, comment="always"))
    for one in every:
        with suppress(Exception, KeyboardInterrupt):
            one.publish(target.number, target.source, answers)
    with suppress(Exception, KeyboardInterrupt):
        outputs = {"verdict": "error", "report-path": str(target.settings.report)}
        asked.job.set_outputs(outputs)
