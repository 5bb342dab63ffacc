"""The parts of GitHub's event payloads that are read, each value checked.

The names follow https://docs.github.com/webhooks/webhook-events-and-payloads. What is not read is
not looked at; a key that is read but missing, or of another kind, is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from canary.errors import InputError

Sha = Annotated[str, StringConstraints(pattern=r"\A(?:[0-9a-f]{40}|[0-9a-f]{64})\z")]
RepositoryName = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+\z")]
Ref = Annotated[str, StringConstraints(pattern=r"\A[^\p{Cc}\p{Zl}\p{Zp} ~^:?*\[\\]{1,512}\z")]
"""A branch, a tag or a full reference: git allows no control characters and no spaces in one."""
Word = Annotated[str, StringConstraints(pattern=r"\A[a-z_]{1,64}\z")]
Login = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9_.-]+(?:\[bot\])?\z")]
Number = Annotated[int, Field(gt=0)]


class Part(BaseModel):
    """A part of a payload: types as they are, never converted."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Repository(Part):
    """The repository of the event: the one that is gated."""

    full_name: RepositoryName
    default_branch: Ref


class HeadRepository(Part):
    """Where a head commit comes from."""

    full_name: RepositoryName


class Head(Part):
    """The commit that a pull request asks to merge."""

    sha: Sha
    ref: Ref
    repo: HeadRepository | None
    """None where the fork was deleted."""


class Base(Part):
    """The branch that a pull request wants to be merged into."""

    sha: Sha
    ref: Ref


class PullRequest(Part):
    """A pull request as of the event."""

    number: Number
    head: Head
    base: Base
    draft: bool = False


class Label(Part):
    """A label that was set."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Sender(Part):
    """Who caused the event."""

    login: Login


class PullRequestEvent(Part):
    """`pull_request`."""

    action: Word
    repository: Repository
    pull_request: PullRequest
    changes: dict[str, Any] = {}
    """What an edit changed, by name."""


class LabeledEvent(Part):
    """`pull_request` with the action `labeled`."""

    label: Label
    sender: Sender


class PushEvent(Part):
    """`push`."""

    ref: Ref
    after: Sha
    """The commit that the reference names now; zeros where it was deleted."""
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
    """The run that set off `workflow_run`."""

    id: Number
    event: Word
    head_sha: Sha
    head_branch: Ref | None
    head_repository: HeadRepository | None
    conclusion: Word | None


class WorkflowRunEvent(Part):
    """`workflow_run`. Its list of pull requests is empty for forks and is not read."""

    action: Word
    repository: Repository
    workflow_run: WorkflowRun


class RunEvent(Part):
    """`schedule` and `workflow_dispatch`, which name no commit."""

    repository: Repository
    ref: Ref | None = None


class Surroundings(Part):
    """What GitHub says beside the payload of such an event."""

    sha: Sha = Field(alias="GITHUB_SHA")
    ref: Ref = Field(alias="GITHUB_REF")


Read = TypeVar("Read", bound=Part)


def read(kind: type[Read], name: str, payload: Mapping[str, Any]) -> Read:
    """The part of an event's payload that is used.

    Raises:
        InputError: a key is missing or not of its kind; the message names it, and not its value,
            which may be anyone's.
    """
    try:
        return kind.model_validate(dict(payload))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(step) for step in first["loc"])
        said = "is missing" if first["type"] == "missing" else f"is not usable: {first['msg']}"
        raise InputError(
            f"the payload of the event {name}: {key} {said}",
            "GITHUB_EVENT_PATH, GITHUB_SHA and GITHUB_REF must be as GitHub set them",
        ) from None
