"""Publish to comment, status and summary; a missing permission becomes a notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from canary.errors import MachineError
from canary.github.client import Hub, Refused
from canary.github.comment import Section, comment_of, says_the_same, sections_of
from canary.github.status import PENDING, Answer, Source, StatusText, status_of
from canary.github.statuses import CONTEXT, StatusWriting
from canary.github.sticky import Written, comment_author, find_all, write_comment
from canary.github.workflow import Job

IN_SUMMARY = "; see the step summary for the full answer"

Comments = Literal["always", "changes", "never"]
"""Whether a pull request gets the comment; `changes`: only if a verdict or a check is another than
in the last comment."""
Permission = Literal["pull-requests: write", "statuses: write"]


@dataclass(frozen=True)
class Published:
    """The result of publishing."""

    comment_url: str = ""
    unanswered: str = ""
    """Why the commit has no status of this answer, if GitHub failed."""


@dataclass(frozen=True)
class Channels:
    """Where an answer goes."""

    hub: Hub
    job: Job
    comment: Comments = "always"
    status: bool = True
    strict: bool = False
    context: str = CONTEXT
    """Name of the status: the job's, and the base branch's unless that is the default branch."""
    jobs: int = 1
    """Legs of the job's matrix, which may write the comment at once."""

    def announce(self, source: Source) -> None:
        """Set the pending status before the training. Never fails: the answer comes later."""
        self._set_status(source, PENDING)

    def publish(
        self, pull_request: int | None, source: Source, answers: Sequence[Answer]
    ) -> Published:
        """Publish the answer to all channels; the summary first, because it needs no permission."""
        sections = sections_of(answers, source)
        text = status_of(answers, self.strict)
        self.job.add_summary(comment_of(sections))
        unanswered, comment = self._set_status(source, text), Written()
        # Last, because it takes a while if other jobs write it too.
        if self.comment != "never" and pull_request is not None:
            number = pull_request
            comment = self._tried("pull-requests: write", lambda: self._comment(number, sections))
        return Published(comment.url, unanswered)

    def _set_status(self, source: Source, text: StatusText) -> str:
        """Set the status, if it is asked for; return why there is none if GitHub failed."""
        if not self.status:
            return ""

        def write() -> Written:
            return Written(note=StatusWriting(self.hub, source, text, self.context).done())

        return self._tried("statuses: write", write).note

    def _comment(self, number: int, sections: Sequence[Section]) -> Written:
        """Write the comment, unless it says the same and only changes are asked for."""
        hub, login = self.hub, comment_author(self.hub)
        if self.comment == "changes":
            pull = hub.read(f"#{number}", lambda: hub.repository.get_pull(number))
            ours = hub.read(f"the comment on #{number}", lambda: find_all(pull, login))
            if ours and says_the_same(ours[0].body, sections):
                note = "the comment was not changed: it says the same of an earlier commit"
                return Written(ours[0].html_url, note)
        return write_comment(hub, number, sections, login, self.jobs)

    def _tried(self, permission: Permission, write: Callable[[], Written]) -> Written:
        """Run one write, which needs a permission and says why it did nothing; a refusal or an
        outage becomes a notice. Return a note if GitHub failed, so that there is no answer."""
        try:
            found = write()
        except Refused as refused:
            remedy = f"give the job `{permission}`; for forks, use `canary init --forks`"
            found = Written(note=f"not written: {refused.message} ({remedy})")
        except MachineError as error:
            outage = f"{error}{IN_SUMMARY if self.job.summary is not None else ''}"
            self.job.say("warning", outage)
            return Written(note=outage)
        if found.note:
            self.job.say("notice", found.note)
        return Written(found.url)
