"""Publish to comment, status and summary; a missing permission becomes a notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from canary.errors import MachineError
from canary.github.client import Hub, Refused
from canary.github.comment import comment_of, says_the_same, sections_of
from canary.github.status import PENDING, Answer, Source, status_of
from canary.github.statuses import CONTEXT, set_status
from canary.github.sticky import comment_author, find_all, write_comment
from canary.github.workflow import Job

IN_SUMMARY = "; see the step summary for the full answer"

Comments = Literal["always", "changes", "never"]
"""Whether a pull request gets the comment; `changes`: only if a verdict or a check is another than
in the last comment."""
Permission = Literal["pull-requests: write", "statuses: write"]


@dataclass(frozen=True)
class Channels:
    """Where an answer goes."""

    comment: Comments = "always"
    status: bool = True
    strict: bool = False
    context: str = CONTEXT
    """Name of the status: the job's, and the base branch's unless that is the default branch."""
    jobs: int = 1
    """Legs of the job's matrix, which may write the comment at once."""


@dataclass(frozen=True)
class Published:
    """The result of publishing."""

    comment_url: str = ""
    unanswered: str = ""
    """Why the commit has no status of this answer, if GitHub failed."""


def announce(hub: Hub, source: Source, channels: Channels, job: Job) -> None:
    """Set the pending status before the training. Never fails, because the answer comes later."""
    if channels.status:
        context = channels.context
        _tried(job, "statuses: write", lambda: set_status(hub, source, PENDING, context))


def publish(
    hub: Hub,
    pull_request: int | None,
    source: Source,
    answers: Sequence[Answer],
    channels: Channels,
    job: Job,
) -> Published:
    """Publish the answer to all channels; the summary first, because it needs no permission."""
    sections = sections_of(answers, source)
    text = status_of(answers, channels.strict)
    job.add_summary(comment_of(sections))
    comment_url = unanswered = ""
    if channels.status:
        unanswered = _tried(
            job,
            "statuses: write",
            lambda: set_status(hub, source, text, channels.context),
        )
    # Last, because it takes a while if other jobs write it too.
    if channels.comment != "never" and pull_request is not None:

        def comment() -> str:
            nonlocal comment_url
            login = comment_author(hub)
            if channels.comment == "changes":
                pull = hub.read(f"#{pull_request}", lambda: hub.repository.get_pull(pull_request))
                ours = hub.read(f"the comment on #{pull_request}", lambda: find_all(pull, login))
                if ours and says_the_same(ours[0].body, sections):
                    comment_url = ours[0].html_url
                    return "the comment was not changed: it says the same of an earlier commit"
            sticky = write_comment(hub, pull_request, sections, login, channels.jobs)
            comment_url = sticky.url
            return sticky.note

        _tried(job, "pull-requests: write", comment)
    return Published(comment_url, unanswered)


def _tried(job: Job, permission: Permission, write: Callable[[], str]) -> str:
    """Run one write, which needs a permission and says why it did nothing; a refusal or an outage
    becomes a notice. Return why there is no answer if GitHub failed."""
    try:
        note = write()
    except Refused as refused:
        remedy = f"give the job `{permission}`; for forks, use `canary init --forks`"
        note = f"not written: {refused} ({remedy})"
    except MachineError as error:
        outage = f"{error}{IN_SUMMARY if job.summary is not None else ''}"
        job.say("warning", outage)
        return outage
    if note:
        job.say("notice", note)
    return ""
