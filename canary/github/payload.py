"""The parts of GitHub's event payloads that we use, with every value validated.

The names follow https://docs.github.com/webhooks/webhook-events-and-payloads. Other keys are
ignored. A missing or invalid key is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

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
