"""Acceptance by label: who set it, whether that person may, and for which commit.

A label speaks of the commit that its setter could see. GitHub does not say which one that was, and
the dates of commits are their author's own; but the time at which we first answered on the head
commit is GitHub's, and so is the time of the label. A label set before the head was judged is of an
older commit, and accepts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from github.IssueEvent import IssueEvent
from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.publish.hub import Hub, Refused
from canary.publish.statuses import CONTEXT, statuses

LABEL = "canary:accept"
WRITERS = ("admin", "maintain", "write")


@dataclass(frozen=True)
class Acceptance:
    """A person's word for one commit."""

    by: str
    label: str
    head_sha: str
    pull_request: int
    words: str = ""
    """Reason given to the accept workflow; a label gives none."""

    @property
    def by_hand(self) -> bool:
        """Whether someone dispatched the accept workflow, rather than set a label."""
        return bool(self.words)

    @property
    def reason(self) -> str:
        """As shown with the verdict."""
        if self.words:
            return f"{self.words}, by {self.by}"
        return f"label {self.label} by {self.by} on #{self.pull_request} at {self.head_sha[:9]}"


@dataclass(frozen=True)
class Asked:
    """What was found: an acceptance, or why there is none."""

    acceptance: Acceptance | None
    note: str = ""
    """Why a label that is there does not count; empty where there is none."""


def acceptance_of(
    hub: Hub,
    repository: Repository,
    pull: PullRequest,
    head: str,
    *,
    label: str = LABEL,
    context: str = CONTEXT,
    labelled: tuple[str, str] | None = None,
) -> Asked:
    """Whether someone with write permission accepted a head commit of the pull request.

    `labelled`: label and sender of the event that began this run. Where no status is kept to tell
    what the sender could see, the event itself ties label and head commit together.

    Raises:
        Refused, MachineError: as `Hub.read`.
    """
    what = f"the labels of #{pull.number}"
    if label not in hub.read(what, lambda: [one.name for one in pull.get_labels()]):
        return Asked(None)
    event = hub.read(what, lambda: _last_labelling(pull, label))
    judged = hub.read(what, lambda: _first_judged(repository, head, context))
    if judged is not None and event is not None and event.created_at >= judged:
        by = event.actor.login if event.actor else ""
    elif judged is None and labelled is not None and labelled[0] == label:
        by = labelled[1]
    else:
        return Asked(
            None,
            f"{label} was set before {head[:9]} was judged and speaks of an older commit: "
            "take it off and set it again",
        )
    if _permission(hub, repository, by) not in WRITERS:
        return Asked(None, f"{label} was set by {by or 'nobody'}, who has no write permission")
    return Asked(Acceptance(by, label, head, pull.number))


def merged_pull(hub: Hub, repository: Repository, sha: str) -> PullRequest | None:
    """The pull request whose merging, squashing or rebasing made a commit; None where it was
    pushed directly.

    Raises:
        Refused, MachineError: as `Hub.read`.
    """
    found = hub.read(
        f"the pull request of {sha[:9]}",
        lambda: [
            pull
            for pull in repository.get_commit(sha).get_pulls()
            if pull.merged_at is not None and pull.merge_commit_sha == sha
        ],
    )
    return found[0] if found else None


def _last_labelling(pull: PullRequest, label: str) -> IssueEvent | None:
    events = [
        event
        for event in pull.get_issue_events()
        if event.event in ("labeled", "unlabeled") and event.label and event.label.name == label
    ]
    last = max(events, key=lambda event: (event.created_at, event.id), default=None)
    return last if last is not None and last.event == "labeled" else None


def _first_judged(repository: Repository, sha: str, context: str) -> datetime | None:
    """When we first answered on the commit, by GitHub's clock; None where we did not."""
    answers = (one for one in statuses(repository, sha, context) if one.state != "pending")
    return min((one.created_at for one in answers), default=None)


def _permission(hub: Hub, repository: Repository, login: str) -> str:
    if not login:
        return ""
    try:
        return hub.read(
            f"the permission of {login}", lambda: repository.get_collaborator_permission(login)
        )
    except Refused:
        return ""
