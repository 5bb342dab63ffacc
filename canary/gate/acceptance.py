"""Acceptance by label: who set it, with which permission, and for which commit.

A label accepts the commit whose answer its setter could see. GitHub does not store the head at that
time, and authors choose their commits' dates. Two facts are reliable: our comment's commit when the
label was set, and the head commit in the event of a run that the label started. In both cases our
answer on that commit must be older than the label, by GitHub's clock. The clock counts seconds: an
answer of the same second is too new to have been read. A label counts only after each canary of
this job was judged; sections of other jobs do not matter. Comment and status of the commit store
the acceptance, and it is valid for no other commit.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from github.IssueEvent import IssueEvent
from github.PullRequest import PullRequest

from canary.gate.base_config import repository_path
from canary.gate.gathering import Target
from canary.github.client import Hub, Refused
from canary.github.comment import parse
from canary.github.status import key_of
from canary.github.statuses import Posted, context_of, statuses
from canary.github.sticky import comment_author, find_all

NOTHING_TO_READ = (
    "with `comment: never` and `status: false` you cannot see the result; turn one on, "
    "or accept by hand after the merge: gh workflow run canary.yml -f accept=REASON"
)
WRITERS = ("admin", "maintain", "write")


@dataclass(frozen=True)
class Acceptance:
    """A person's acceptance of one commit."""

    by: str
    label: str
    head_sha: str
    pull_request: int
    words: str = ""
    """Reason given to a dispatched run; empty for a label."""

    @property
    def reason(self) -> str:
        """The reason shown with the verdict."""
        if self.words:
            return f"{self.words}, by {self.by}"
        return f"label {self.label} by {self.by} on #{self.pull_request} at {self.head_sha[:9]}"


Asked = tuple[Acceptance | None, str]
"""An acceptance, and a note on why a label does not count; empty without a label."""
NOT_ASKED: Asked = (None, "")


def acceptance(target: Target) -> Asked:
    """Return who accepted the change: in a dispatched run, or by a label on the pull request or
    on the merged one.

    Raises:
        Refused, MachineError: as `Hub.read`.
    """
    settings, intent, hub = target.settings, target.intent, target.world.hub
    if intent.accept_reason:
        return Acceptance(settings.actor, "", intent.head_sha, 0, intent.accept_reason), ""
    pull, head = target.pull, intent.head_sha
    if pull is None and intent.writes_baseline:
        pull = _merged_pull(hub, intent.head_sha)
        head = pull.head.sha if pull is not None else ""
    if (number := intent.queued) is not None:
        pull = hub.read(f"#{number}", lambda: hub.repository.get_pull(number))
        head = pull.head.sha
    if pull is None:
        return NOT_ASKED
    accepted, note = _by_label(target, pull, head)
    if note and settings.comment == "never" and not settings.status:
        note = f"label {settings.label} ignored: {NOTHING_TO_READ}"
    return accepted, note


def _by_label(target: Target, pull: PullRequest, head: str) -> Asked:
    """Return whether someone with write permission accepted this head commit."""
    settings, intent, hub = target.settings, target.intent, target.world.hub
    label, what = settings.label, f"the labels of #{pull.number}"
    if label not in hub.read(what, lambda: [one.name for one in pull.get_labels()]):
        return NOT_ASKED
    event = hub.read(what, lambda: _last_labelling(pull, label))
    author = comment_author(hub)
    comment = next(iter(hub.read(what, lambda: find_all(pull, author))), None)
    body, updated = hub.read(
        what, lambda: (comment.body, comment.updated_at) if comment else ("", None)
    )
    judged = {one.key: one for one in parse(body) if one.sha == head and one.verdict != "error"}
    paths = (repository_path(settings.folder, config) for config in settings.configs)
    keys = {key_of(path, settings.job) for path in paths}
    given = False
    if judged.keys() >= keys:
        older = event is not None and updated is not None and updated < event.created_at
        given = older or any(judged[key].accepted for key in keys)
    if not given:
        # There may be no comment, or another job has rewritten it since the label was set.
        context = context_of(settings.name, pull.base.ref, intent.default_branch)
        known = _answers(hub, head, context)
        began = intent.accepting and pull.head.sha == head
        given = any(one.word == "accepted" for one in known) or (
            began and event is not None and any(one.at < event.created_at for one in known)
        )
    if not given:
        return None, (
            f"label {label} ignored: it must be set after the answer on {head[:9]}; "
            "remove the label and set it again"
        )
    by = event.actor.login if event is not None and event.actor else ""
    if _permission(hub, by) not in WRITERS:
        return None, (
            f"label {label} ignored: {by or 'its setter'} has no write permission; "
            "someone with write permission must set it"
        )
    return Acceptance(by, label, head, pull.number), ""


def _merged_pull(hub: Hub, sha: str) -> PullRequest | None:
    """Return the pull request whose merge, squash or rebase made a commit; None for a direct push.

    Raises:
        Refused, MachineError: as `Hub.read`.
    """
    found = hub.read(
        f"the pull request of {sha[:9]}",
        lambda: [
            pull
            for pull in hub.repository.get_commit(sha).get_pulls()
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


def _answers(hub: Hub, sha: str, context: str) -> list[Posted]:
    """Return our verdicts in a commit's statuses, if the token may read them.

    Raises:
        MachineError: GitHub cannot be reached.
    """
    with suppress(Refused):
        found = hub.read(
            f"the answers on {sha[:9]}", lambda: list(statuses(hub.repository, sha, context))
        )
        return [one for one in found if one.state in ("success", "failure")]
    return []


def _permission(hub: Hub, login: str) -> str:
    if not login:
        return ""
    try:
        ask = hub.repository.get_collaborator_permission
        return hub.read(f"the permission of {login}", lambda: ask(login))
    except Refused:
        return ""
