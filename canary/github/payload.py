"""The parts of GitHub's event payloads that we use, with every value validated.

The names follow https://docs.github.com/webhooks/webhook-events-and-payloads. Other keys are
ignored. A missing or invalid key is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from canary.errors import InputError

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


class Repository(Part):
    """The repository of the event, which is gated."""

    full_name: RepositoryName
    default_branch: Ref


class HeadRepository(Part):
    """The repository of a head commit."""

    full_name: RepositoryName


class Head(Part):
    """The commit that a pull request asks to merge."""

    sha: Sha
    ref: Ref
    repo: HeadRepository | None
    """None if the fork was deleted."""


class Base(Part):
    """The branch that a pull request targets."""

    sha: Sha
    ref: Ref


class Sender(Part):
    """A user: who caused the event, or who wrote the pull request."""

    login: Login


class PullRequest(Part):
    """A pull request at the time of the event."""

    number: Number
    user: Sender | None = None
    """None if the account was deleted."""
    head: Head
    base: Base
    draft: bool = False


class Label(Part):
    """A label that was set."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class PullRequestEvent(Part):
    """`pull_request`."""

    action: Word
    repository: Repository
    pull_request: PullRequest
    changes: dict[str, Any] = {}
    """Fields changed by an edit."""


class LabeledEvent(Part):
    """`pull_request` with the action `labeled`."""

    label: Label
    sender: Sender


class PushEvent(Part):
    """`push`."""

    ref: Ref
    after: Sha
    """The reference's new commit; zeros if it was deleted."""
    repository: Repository


class MergeGroup(Part):
    """A group of a merge queue."""

    head_sha: Sha
    head_ref: Ref
    base_sha: Sha
    base_ref: Ref


class MergeGroupEvent(Part):
    """`merge_group`."""

    action: Word
    repository: Repository
    merge_group: MergeGroup


class WorkflowRun(Part):
    """The run that triggered `workflow_run`."""

    id: Number
    event: Word
    head_sha: Sha
    head_branch: Ref | None
    head_repository: HeadRepository | None
    conclusion: Word | None


class WorkflowRunEvent(Part):
    """`workflow_run`. Its list of pull requests is empty for forks, so we do not use it."""

    action: Word
    repository: Repository
    workflow_run: WorkflowRun


Task = Literal["", "train", "nightly", "bootstrap", "prefetch"]


class Inputs(Part):
    """What a person asks for who dispatches the workflow."""

    task: Task = ""
    """Empty where the workflow offers none."""
    accept: Annotated[str, StringConstraints(max_length=300)] = ""
    """Reason for a new period of the baseline; empty without one."""


class RunEvent(Part):
    """`schedule` and `workflow_dispatch`, which name no commit."""

    repository: Repository
    ref: Ref | None = None
    inputs: Inputs | None = None


class Surroundings(Part):
    """GitHub's environment variables for events that name no commit."""

    sha: Sha = Field(alias="GITHUB_SHA")
    ref: Ref = Field(alias="GITHUB_REF")


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
