"""Shapes of the parts of a record that are plain mappings: what a reader relies on.

Keys that are not named here are free; a key that is named has this type or is null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from canary.collect.alerts import MOST as MOST_ALERTS
from canary.collect.record import Number


class Shape(BaseModel):
    """Any other key may be there."""

    model_config = ConfigDict(extra="allow")


class Env(Shape):
    """The machine."""

    device: dict[str, Any] | None = None
    gpus: list[dict[str, Any]] | None = None
    packages: dict[str, Any] | None = None


class Git(Shape):
    """The commit."""

    sha: str | None = None
    dirty: bool | None = None


class Config(Shape):
    """The resolved config of the run."""

    thresholds: dict[str, Any] | None = None
    trainer_args: dict[str, Any] | None = None


class Calls(Shape):
    """Calls of the measured launch."""

    tokenizer_calls: Number | None = None
    dataset_maps_executed: Number | None = None


class AlertShape(Shape):
    """One alert."""

    severity: Literal["low", "medium", "high", "critical"]
    category: Annotated[str, Field(max_length=64)]
    type: Annotated[str, Field(max_length=64)]
    message: Annotated[str, Field(max_length=4000)]
    step: int
    value: Number | None = None
    threshold: Number | None = None


class Parts(Shape):
    """The parts of a record that its own type leaves open."""

    env: Env = Env()
    git: Git = Git()
    config: Config = Config()
    io: Calls = Calls()
    alerts: Annotated[list[AlertShape], Field(max_length=MOST_ALERTS)] = []
