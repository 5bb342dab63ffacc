"""Map a GitHub event to what the gate must do. Pure: no network, no environment.

For the gate, this module alone decides where an answer goes and whether the baseline may be
written. It reads only what it needs of a payload, and validates each value. The names follow
https://docs.github.com/webhooks/webhook-events-and-payloads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from canary.errors import InputError, UsageError

BRANCHES = "refs/heads/"
ACCEPT_LABEL = "canary:accept"
DEPENDABOT = "dependabot[bot]"
"""Its pull requests have a read-only token, like those of forks."""
QUEUED = re.compile(r"/pr-(\d+)-[0-9a-f]+$")
"""The branch of a merge queue for a pull request."""
JUDGED_ACTIONS = ("opened", "synchronize", "reopened", "ready_for_review")
"""Of a pull request, beside the accept label and a new base branch."""

Sha = Annotated[str, StringConstraints(pattern=r"\A(?:[0-9a-f]{40}|[0-9a-f]{64})\z")]
RepositoryName = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+\z")]
Ref = Annotated[str, StringConstraints(pattern=r"\A[^\p{Cc}\p{Zl}\p{Zp} ~^:?*\[\\]{1,512}\z")]
"""A branch, a tag or a full reference; git allows no control characters or spaces in one."""
Word = Annotated[str, StringConstraints(pattern=r"\A[a-z_]{1,64}\z")]
Login = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9_.-]+(?:\[bot\])?\z")]
Number = Annotated[int, Field(gt=0)]


class Part(BaseModel):
    """A part of a payload; types are never converted."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class HeadRepository(Part):
    """The repository of a head commit."""

    full_name: RepositoryName


class Repository(HeadRepository):
    """The repository of the event, which is gated."""

    default_branch: Ref


class Event(Part):
    """What every event has."""

    repository: Repository


class PullRequestEvent(Event):
    """`pull_request`."""

    action: Word
    changes: dict[str, Any] = {}
    """Fields changed by an edit."""
    label: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = Field(
        None, validation_alias=AliasPath("label", "name")
    )
    """The label that was set or removed."""
    number: Number = Field(validation_alias=AliasPath("pull_request", "number"))
    author: Login | None = Field(None, validation_alias=AliasPath("pull_request", "user", "login"))
    """None if the account was deleted."""
    draft: bool = Field(False, validation_alias=AliasPath("pull_request", "draft"))
    head_sha: Sha = Field(validation_alias=AliasPath("pull_request", "head", "sha"))
    head_ref: Ref = Field(validation_alias=AliasPath("pull_request", "head", "ref"))
    head_repository: HeadRepository | None = Field(
        validation_alias=AliasPath("pull_request", "head", "repo")
    )
    """None if the fork was deleted."""
    base_sha: Sha = Field(validation_alias=AliasPath("pull_request", "base", "sha"))
    base_ref: Ref = Field(validation_alias=AliasPath("pull_request", "base", "ref"))


class PushEvent(Event):
    """`push`."""

    ref: Ref
    after: Sha
    """The reference's new commit; zeros if it was deleted."""


class MergeGroupEvent(Event):
    """`merge_group`, of a merge queue."""

    action: Word
    head_sha: Sha = Field(validation_alias=AliasPath("merge_group", "head_sha"))
    head_ref: Ref = Field(validation_alias=AliasPath("merge_group", "head_ref"))
    base_sha: Sha = Field(validation_alias=AliasPath("merge_group", "base_sha"))
    base_ref: Ref = Field(validation_alias=AliasPath("merge_group", "base_ref"))


class WorkflowRunEvent(Event):
    """`workflow_run`. Its list of pull requests is empty for forks, so we do not use it."""

    action: Word
    id: Number = Field(validation_alias=AliasPath("workflow_run", "id"))
    trigger: Word = Field(validation_alias=AliasPath("workflow_run", "event"))
    head_sha: Sha = Field(validation_alias=AliasPath("workflow_run", "head_sha"))
    head_branch: Ref | None = Field(validation_alias=AliasPath("workflow_run", "head_branch"))
    head_repository: HeadRepository | None = Field(
        validation_alias=AliasPath("workflow_run", "head_repository")
    )
    conclusion: Word | None = Field(validation_alias=AliasPath("workflow_run", "conclusion"))


class RunEvent(Event):
    """`schedule` and `workflow_dispatch`, which name no commit: GitHub's environment variables do.
    A person who dispatches a run chooses a task."""

    sha: Sha = Field(validation_alias="GITHUB_SHA")
    ref: Ref = Field(validation_alias="GITHUB_REF")
    task: Literal["", "train", "nightly", "bootstrap", "prefetch"] = Field(
        "", validation_alias=AliasPath("inputs", "task")
    )
    """Empty where the workflow offers none."""
    accept: Annotated[str, StringConstraints(max_length=300)] = Field(
        "", validation_alias=AliasPath("inputs", "accept")
    )
    """Reason for a new period of the baseline; empty without one."""


Read = TypeVar("Read", bound=Part)


def read(kind: type[Read], name: str, payload: Mapping[str, Any]) -> Read:
    """Return the part of an event's payload that we use.

    Raises:
        InputError: a key is missing or invalid. The message has no value: anyone could choose it.
    """
    try:
        return kind.model_validate(dict(payload))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(step) for step in first["loc"])
        said = "is missing" if first["type"] == "missing" else f"is invalid: {first['msg']}"
        raise InputError(
            f"the payload of the event {name}: {key} {said}",
            "do not change GITHUB_EVENT_PATH, GITHUB_SHA and GITHUB_REF",
        ) from None


class Kind(Enum):
    """What the gate must do."""

    JUDGE = "judge"
    """Compare, and answer on the head commit and its pull request."""
    RECORD = "record"
    """On the default branch: compare, and write the baseline."""
    ANNOUNCE = "announce"
    """Set the pending status."""
    PREFETCH = "prefetch"
    """Fill the model cache of the GPU machine."""
    IGNORE = "ignore"
    """Do nothing; the reason says why."""


@dataclass(frozen=True)
class Intent:
    """What an event asks for, and of which commit. Fields that the event lacks are empty."""

    kind: Kind
    reason: str
    """One sentence for the log; of the payload it holds only validated names."""
    default_branch: str = ""
    head_sha: str = ""
    """Commit that gets the status: the pull request's head, never GITHUB_SHA's merge commit."""
    head_repository: str = ""
    """owner/name; empty if it was deleted."""
    head_branch: str = ""
    base_sha: str = ""
    """Base commit of a pull request; empty if it must be looked up."""
    base_branch: str = ""
    pull_request: int | None = None
    """Set only if GitHub's event names it; otherwise `pulls` finds it by the head commit."""
    queued: int | None = None
    """The pull request in a merge queue."""
    fork: bool = False
    accepting: bool = False
    """Whether somebody has just set the accept label."""
    run_id: int | None = None
    """The training run whose artifact holds the records; None if it is this run."""
    conclusion: str = ""
    """How that run ended: success, failure, cancelled ...; empty before its end."""
    nightly: bool = False
    """Whether the longer canaries are trained too."""
    accept_reason: str = ""
    """Why a person who dispatched the run begins a new period of the baseline."""

    @property
    def writes_baseline(self) -> bool:
        """Whether its runs enter the baseline."""
        return self.kind is Kind.RECORD


def intent_of(
    name: str,
    payload: Mapping[str, Any],
    *,
    sha: str = "",
    ref: str = "",
    label: str = ACCEPT_LABEL,
) -> Intent:
    """Return what the event `name` asks for.

    `sha` and `ref` are GITHUB_SHA and GITHUB_REF, for events whose payload names no commit; `label`
    is the one that accepts.

    Raises:
        UsageError: the gate refuses this event; InputError: the payload lacks a key.
    """
    match name:
        case "pull_request_target":
            raise UsageError(
                "the event pull_request_target is refused: anyone can start it, and it has secrets"
                " and a token with write permission",
                "use `pull_request`; for forks, use the two workflows of `canary init --forks`",
            )
        case "schedule" | "workflow_dispatch":
            return _run(name, payload, sha, ref)
        case "pull_request":
            return _pull_request(read(PullRequestEvent, name, payload), label)
        case "push":
            return _push(read(PushEvent, name, payload))
        case "merge_group":
            return _merge_group(read(MergeGroupEvent, name, payload))
        case "workflow_run":
            return _workflow_run(read(WorkflowRunEvent, name, payload))
    return Intent(Kind.IGNORE, f"the event {name} asks for no comparison")


def _pull_request(event: PullRequestEvent, accepts: str) -> Intent:
    head_repository = event.head_repository.full_name if event.head_repository else ""
    fork = head_repository != event.repository.full_name
    accepting = event.action == "labeled" and event.label == accepts
    what = f"pull request #{event.number} was {event.action}"
    if event.action == "synchronize":
        what = f"pull request #{event.number} has new commits"
    rebased = event.action == "edited" and "base" in event.changes
    nothing = ""
    if not (event.action in JUDGED_ACTIONS or accepting or rebased):
        nothing = "no new comparison"
    elif fork or event.author == DEPENDABOT:
        nothing = (
            "nothing is trained here, because the token of forks and Dependabot cannot answer;"
            " `canary init --forks` writes workflows for them"
        )
    elif event.draft:
        nothing = "nothing is trained while it is a draft"
    return Intent(
        kind=Kind.IGNORE if nothing else Kind.JUDGE,
        reason=f"{what}: {nothing}" if nothing else what,
        default_branch=event.repository.default_branch,
        head_sha=event.head_sha,
        head_repository=head_repository,
        head_branch=event.head_ref,
        base_sha=event.base_sha,
        base_branch=event.base_ref,
        pull_request=event.number,
        fork=fork,
        accepting=accepting,
    )


def _push(event: PushEvent) -> Intent:
    default = event.repository.default_branch
    if event.ref != f"{BRANCHES}{default}":
        reason = f"{event.ref} is not the default branch {default}: only pull requests are judged"
        return Intent(Kind.IGNORE, reason)
    if set(event.after) == {"0"}:
        return Intent(Kind.IGNORE, f"{event.ref} was deleted")
    return _recorded(event.repository, event.after, f"{default} has new commits")


def _run(name: str, payload: Mapping[str, Any], sha: str, ref: str) -> Intent:
    default = f"{BRANCHES}{read(Event, name, payload).repository.default_branch}"
    # A schedule runs only on the default branch; a dispatch must name its branch.
    place = ref or payload.get("ref") or (default if name == "schedule" else "")
    event = read(RunEvent, name, {**payload, "GITHUB_SHA": sha, "GITHUB_REF": place})
    repository = event.repository
    task = "nightly" if name == "schedule" else event.task or "train"
    what = "the nightly run" if name == "schedule" else f"{task} was dispatched"
    if event.ref == default:
        recorded = _recorded(repository, event.sha, f"{what} on {repository.default_branch}")
        if task == "prefetch":
            return replace(recorded, kind=Kind.PREFETCH)
        reason = " ".join(event.accept.split())
        return replace(recorded, nightly=task == "nightly", accept_reason=reason)
    return Intent(Kind.IGNORE, f"{what} on {event.ref}, not on the default branch")


def _merge_group(event: MergeGroupEvent) -> Intent:
    repository = event.repository
    if event.action != "checks_requested":
        return Intent(Kind.IGNORE, f"the merge group was {event.action}")
    branch = event.head_ref.removeprefix(BRANCHES)
    queued = QUEUED.search(branch)
    return Intent(
        kind=Kind.JUDGE,
        reason=f"the merge queue asks for {event.head_sha[:9]}",
        default_branch=repository.default_branch,
        head_sha=event.head_sha,
        head_repository=repository.full_name,
        head_branch=branch,
        base_sha=event.base_sha,
        base_branch=event.base_ref.removeprefix(BRANCHES),
        queued=int(queued[1]) if queued else None,
    )


def _workflow_run(event: WorkflowRunEvent) -> Intent:
    repository = event.repository
    if event.trigger != "pull_request":
        return Intent(Kind.IGNORE, f"run {event.id} was started by {event.trigger}")
    head_repository = event.head_repository.full_name if event.head_repository else ""
    fork = head_repository != repository.full_name
    kind, reason = _stage(event)
    if not fork and (kind is Kind.ANNOUNCE or event.conclusion == "skipped"):
        # The workflow for forks skips this repository's branches, except those of Dependabot.
        kind, reason = Kind.IGNORE, f"run {event.id} is of a branch of this repository"
    return Intent(
        kind=kind,
        reason=reason,
        default_branch=repository.default_branch,
        head_sha=event.head_sha,
        head_repository=head_repository,
        head_branch=event.head_branch or "",
        fork=fork,
        run_id=event.id,
        conclusion=(event.conclusion or "") if event.action == "completed" else "",
    )


def _stage(event: WorkflowRunEvent) -> tuple[Kind, str]:
    """Return what a run asks for in its present state, and why."""
    what = f"run {event.id} of {event.head_sha[:9]}"
    if event.action in ("requested", "in_progress"):
        return Kind.ANNOUNCE, f"{what} has started"
    if event.action != "completed":
        return Kind.IGNORE, f"{what} is {event.action}"
    if event.conclusion == "action_required":
        # A first-time contributor's run ends like this and starts again after approval.
        return Kind.ANNOUNCE, f"{what} waits for the approval of someone with write permission"
    return Kind.JUDGE, f"{what} ended as {event.conclusion or 'unknown'}"


def _recorded(repository: Repository, sha: str, reason: str) -> Intent:
    return Intent(
        kind=Kind.RECORD,
        reason=reason,
        default_branch=repository.default_branch,
        head_sha=sha,
        head_repository=repository.full_name,
        head_branch=repository.default_branch,
        base_branch=repository.default_branch,
    )
