"""Publish to comment, status, check run and summary; a missing permission becomes a notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from github.Repository import Repository

from canary.errors import ConfigError, MachineError, UsageError
from canary.github.checkrun import annotated, write_check_run
from canary.github.client import Hub, Refused
from canary.github.comment import MARKER, Section, merged, sections_of
from canary.github.status import PENDING, Answer, Source, StatusText, status_of
from canary.github.statuses import CONTEXT, set_status
from canary.github.sticky import comment_author, write_comment
from canary.github.workflow import Job
from canary.report.escape import markdown_cell

StatusKind = Literal["commit-status", "check-run", "both", "none"]
STATUS_KINDS: tuple[StatusKind, ...] = get_args(StatusKind)
IN_SUMMARY = "; see the step summary for the full answer"

Permission = Literal["pull-requests: write", "checks: write", "statuses: write"]
PULL_REQUESTS, CHECKS, STATUSES = get_args(Permission)
"""The permissions for a comment, a check run and a status."""


@dataclass(frozen=True)
class Channels:
    """Where an answer goes."""

    comment: bool = True
    status: StatusKind = "commit-status"
    strict: bool = False
    context: str = CONTEXT
    author: str = ""
    """The token's login, if GitHub does not tell it."""
    jobs: int = 1
    """Number of matrix jobs that write the comment."""
    templates: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUS_KINDS:
            kinds = ", ".join(STATUS_KINDS)
            raise UsageError(f"input status is {self.status!r}", f"use one of {kinds}")

    @property
    def commit_status(self) -> bool:
        """Whether the commit gets a status."""
        return self.status in ("commit-status", "both")

    @property
    def check_run(self) -> bool:
        """Whether the commit gets a check run."""
        return self.status in ("check-run", "both")


@dataclass(frozen=True)
class Published:
    """The result of publishing."""

    comment_url: str = ""
    check_url: str = ""
    notices: tuple[str, ...] = ()
    """Reasons why a channel was not written, one sentence each."""
    written: int = 0
    """Number of written channels."""
    unanswered: str = ""
    """Why the commit has no status or check run of this answer, if GitHub failed."""
    sections: tuple[Section, ...] = ()
    """The comment as it was rendered, with the place of the link if the source has one."""


def announce(
    hub: Hub, repository: Repository, source: Source, channels: Channels, job: Job
) -> None:
    """Set the pending status before the training. Never fails, because the answer comes later."""
    if channels.commit_status:
        _tried(
            job, STATUSES, lambda: set_status(hub, repository, source, PENDING, channels.context)
        )
    if channels.check_run:
        _tried(
            job,
            CHECKS,
            lambda: write_check_run(
                hub, repository, source, PENDING, "There is no result yet.", (), channels.context
            )[1],
        )


def publish(
    hub: Hub | None,
    repository: Repository | None,
    pull_request: int | None,
    source: Source,
    answers: tuple[Answer, ...],
    channels: Channels,
    job: Job,
) -> Published:
    """Publish the answer to all channels; the summary first, because it needs no permission."""
    notices: list[str] = []
    rendered, problem = sections_by(answers, source, channels.templates)
    sections = [section.without(source.report) for section in rendered]
    if problem:
        notices.append(problem)
        job.say("warning", problem)
    body = merged("", sections) or "" if sections else ""
    text = status_of(answers, channels.strict)
    job.add_summary(body.replace(f"{MARKER}\n", "") or markdown_cell(text.description))
    if hub is None or repository is None:
        return Published(notices=tuple(notices), sections=tuple(rendered))
    known, target = hub, repository
    comment_url = check_url = ""
    instead = IN_SUMMARY if job.summary is not None else ""
    tried: list[_Tried] = []
    if channels.commit_status:
        context = channels.context

        def status() -> str:
            return set_status(known, target, source, text, context)

        tried.append(_tried(job, STATUSES, status, instead))
    if channels.check_run:

        def check() -> str:
            nonlocal check_url
            check_url, note = _check(known, target, source, text, body, answers, channels)
            return note

        tried.append(_tried(job, CHECKS, check, instead))
    unanswered = next((one.note for one in tried if one.outage), "")
    # Last, because it takes a while if other jobs write it too.
    if channels.comment and pull_request is not None and sections:

        def comment() -> str:
            nonlocal comment_url
            login = comment_author(known, channels.author)
            jobs = channels.jobs
            sticky = write_comment(known, target, pull_request, sections, login, jobs)
            comment_url = sticky.url
            return sticky.note

        tried.append(_tried(job, PULL_REQUESTS, comment, instead))
    notices += [one.note for one in tried if one.note]
    written = sum(not one.note for one in tried)
    return Published(comment_url, check_url, tuple(notices), written, unanswered, tuple(rendered))


def _check(
    hub: Hub,
    repository: Repository,
    source: Source,
    text: StatusText,
    body: str,
    answers: tuple[Answer, ...],
    channels: Channels,
) -> tuple[str, str]:
    notes = annotated(answers)
    summary = body.replace(f"{MARKER}\n", "") or markdown_cell(text.description)
    return write_check_run(hub, repository, source, text, summary, notes, channels.context)


def sections_by(
    answers: tuple[Answer, ...], source: Source, templates: Mapping[str, str]
) -> tuple[list[Section], str]:
    """Render with the user's templates; if that fails, with ours, and return the reason too."""
    problem = ""
    if templates:
        try:
            return sections_of(answers, source, templates), ""
        except ConfigError as error:
            problem = f"{error}; using the built-in template"
    return sections_of(answers, source), problem


@dataclass(frozen=True)
class _Tried:
    """The result of one write."""

    note: str = ""
    """Why it was not written; empty if it was."""
    outage: bool = False
    """Whether GitHub failed."""


def _tried(job: Job, permission: Permission, write: Callable[[], str], instead: str = "") -> _Tried:
    """Run one write; a refusal or an outage becomes a notice.

    `permission`: what the write needs; `instead`: where the answer is if GitHub fails.
    """
    try:
        note = write()
    except Refused as refused:
        remedy = (
            f"give the job `{permission}`; for forks, use the workflows of `canary init --forks`"
        )
        note = f"not written: {refused} ({remedy})"
    except MachineError as error:
        note = f"{error}{instead}"
        job.say("warning", note)
        return _Tried(note, outage=True)
    if note:
        job.say("notice", note)
    return _Tried(note)
