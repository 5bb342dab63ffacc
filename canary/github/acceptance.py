"""Acceptance by label: who set it, whether that person may, and for which commit.

A label speaks of the commit whose answer its setter could see. GitHub does not keep which one was
the head then, and the dates of commits are their author's own. What is known: which commit our
comment spoke of when the label was set, by GitHub's clock; and of a run that the label itself
began, the head commit in its event. Either way our answer on that commit must be older than the
label, by GitHub's clock. It counts in seconds: an answer of the same second does not count, since
nobody has read it. Sections of other jobs in the comment say nothing of this job's canaries, and a
label holds once each of them was judged. An acceptance once given is written into comment and
status of its commit, and holds for no other.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from github.IssueEvent import IssueEvent
from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.github.checkrun import check_runs
from canary.github.claim import standing
from canary.github.client import Hub, Refused
from canary.github.comment import parse
from canary.github.statuses import CONTEXT, statuses
from canary.github.sticky import BOT, find_all

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


@dataclass(frozen=True)
class Said:
    """An answer of ours on a commit that judged it."""

    at: datetime
    """By GitHub's clock."""
    accepted: bool


def acceptance_of(
    hub: Hub,
    repository: Repository,
    pull: PullRequest,
    head: str,
    keys: Collection[str],
    *,
    label: str = LABEL,
    context: str = CONTEXT,
    author: str = BOT,
    labelled: tuple[str, str] | None = None,
) -> Asked:
    """Whether someone with write permission accepted a head commit of the pull request.

    `keys`: of the canaries that this job answers for; `author`: who our comments are by;
    `labelled`: label and sender of the event that began this run, where it is one of labels on
    this very head.

    Raises:
        Refused, MachineError: as `Hub.read`.
    """
    what = f"the labels of #{pull.number}"
    if label not in hub.read(what, lambda: [one.name for one in pull.get_labels()]):
        return Asked(None)
    event = hub.read(what, lambda: _last_labelling(pull, label))
    comment = next(iter(hub.read(what, lambda: find_all(pull, author))), None)
    body, updated = hub.read(
        what, lambda: (comment.body, comment.updated_at) if comment else ("", None)
    )
    judged = {one.key: one for one in parse(body) if one.sha == head and one.verdict != "error"}
    given = False
    if judged.keys() >= set(keys):
        older = event is not None and updated is not None and updated < event.created_at
        given = older or any(judged[key].accepted for key in keys)
    if not given:
        # Another leg of a matrix may have written the comment anew since the label was set.
        known = _answers(hub, repository, head, context)
        began = labelled is not None and labelled[0] == label and pull.head.sha == head
        given = any(one.accepted for one in known) or (
            began and event is not None and any(one.at < event.created_at for one in known)
        )
    if not given:
        return Asked(
            None,
            f"label {label} does not count: set it after the answer on {head[:9]} is posted; "
            "take it off and set it again",
        )
    by = event.actor.login if event is not None and event.actor else ""
    if _permission(hub, repository, by) not in WRITERS:
        return Asked(
            None,
            f"label {label} was set by {by or 'nobody'}, who has no write permission; "
            "someone with it must set the label",
        )
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


def _answers(hub: Hub, repository: Repository, sha: str, context: str) -> list[Said]:
    """What our statuses and check runs say of a commit; of those that the token may not read,
    nothing.

    Raises:
        MachineError: GitHub cannot be reached.
    """
    what = f"the answers on {sha[:9]}"

    def told() -> list[Said]:
        return [
            Said(one.created_at, standing(one.target_url).word == "accepted")
            for one in statuses(repository, sha, context)
            if one.state in ("success", "failure")
        ]

    def checked() -> list[Said]:
        return [
            Said(one.completed_at, standing(one.external_id).word == "accepted")
            for one in check_runs(repository, sha, context)
            if one.completed_at and standing(one.external_id).word != "error"
        ]

    found: list[Said] = []
    for look in (told, checked):
        with suppress(Refused):
            found = found or hub.read(what, look)
    return found


def _permission(hub: Hub, repository: Repository, login: str) -> str:
    if not login:
        return ""
    try:
        return hub.read(
            f"the permission of {login}", lambda: repository.get_collaborator_permission(login)
        )
    except Refused:
        return ""
