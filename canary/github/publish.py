"""Publish to comment, status and summary; a missing permission becomes a notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from github.Repository import Repository

from canary.errors import ConfigError, MachineError
from canary.github.client import Hub, Refused
from canary.github.comment import Section, comment_of, sections_of
from canary.github.status import PENDING, Answer, Source, status_of
from canary.github.statuses import CONTEXT, set_status
from canary.github.sticky import comment_author, write_comment
from canary.github.workflow import Job
from canary.report.escape import markdown_cell

IN_SUMMARY = "; see the step summary for the full answer"

Permission = Literal["pull-requests: write", "statuses: write"]
PULL_REQUESTS: Permission = "pull-requests: write"
STATUSES: Permission = "statuses: write"


@dataclass(frozen=True)
class Channels:
    """Where an answer goes."""

    comment: bool = True
    status: bool = True
    strict: bool = False
    name: str = CONTEXT
    """Of the job; each has its own comment."""
    context: str = CONTEXT
    """Name of the status: the job's, and the base branch's unless that is the default branch."""
    templates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """The result of publishing."""

    comment_url: str = ""
    notices: tuple[str, ...] = ()
    """Reasons why a channel was not written, one sentence each."""
    unanswered: str = ""
    """Why the commit has no status of this answer, if GitHub failed."""


def announce(
    hub: Hub, repository: Repository, source: Source, channels: Channels, job: Job
) -> None:
    """Set the pending status before the training. Never fails, because the answer comes later."""
    if channels.status:
        _tried(
            job, STATUSES, lambda: set_status(hub, repository, source, PENDING, channels.context)
        )


def publish(
    hub: Hub,
    repository: Repository,
    pull_request: int | None,
    source: Source,
    answers: Sequence[Answer],
    channels: Channels,
    job: Job,
) -> Published:
    """Publish the answer to all channels; the summary first, because it needs no permission."""
    notices: list[str] = []
    sections, problem = sections_by(answers, source, channels.templates)
    if problem:
        notices.append(problem)
        job.say("warning", problem)
    text = status_of(answers, channels.strict)
    job.add_summary(comment_of(sections) if sections else markdown_cell(text.description))
    comment_url = unanswered = ""
    instead = IN_SUMMARY if job.summary is not None else ""
    if channels.status:
        tried = _tried(
            job,
            STATUSES,
            lambda: set_status(hub, repository, source, text, channels.context),
            instead,
        )
        notices.append(tried.note)
        unanswered = tried.note if tried.outage else ""
    if channels.comment and pull_request is not None and sections:

        def comment() -> str:
            nonlocal comment_url
            login = comment_author(hub)
            sticky = write_comment(hub, repository, pull_request, sections, login, channels.name)
            comment_url = sticky.url
            return sticky.note

        notices.append(_tried(job, PULL_REQUESTS, comment, instead).note)
    return Published(comment_url, tuple(filter(None, notices)), unanswered)


def sections_by(
    answers: Sequence[Answer], source: Source, templates: Mapping[str, str]
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
