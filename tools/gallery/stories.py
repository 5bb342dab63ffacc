"""What is written by hand about each incident: `stories.yaml`, in the order of the index."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from tools.gallery.facts import Incident, Loss

FILE = Path(__file__).with_name("stories.yaml")

LossEnd = Literal["lower", "higher", "same"]
ROUNDING = 1e-4
"""Final losses that differ by a smaller share count as the same."""


class Strict(BaseModel):
    """An unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Expected(Strict):
    """What the run must say; otherwise no page is written."""

    verdict: Literal["regression", "changed", "pass"]
    cause: str
    """Category of the first suspect."""
    loss: LossEnd
    """How the loss ends beside the baseline's."""


class Story(Strict):
    """One incident."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    title: str
    symptom: str
    row: str
    """Id of the corpus row; see `tools.gallery.rows`."""
    expected: Expected
    charts: Annotated[tuple[str, ...], Field(min_length=1, max_length=3)]
    """Names of the report's charts that the page shows."""
    happened: str
    note: str = ""
    """What a reader must know about the canary's words."""
    fix: str


def read_stories() -> tuple[Story, ...]:
    """Return all stories."""
    listed = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return tuple(map(Story.model_validate, listed))


def end_of(loss: Loss) -> LossEnd | None:
    """Return how the loss ends beside the baseline's; None if a side has no finite end."""
    if loss.first is None:
        return "same"
    if loss.baseline is None or loss.current is None or not math.isfinite(loss.current):
        return None
    if math.isclose(loss.current, loss.baseline, rel_tol=ROUNDING):
        return "same"
    return "lower" if loss.current < loss.baseline else "higher"


def contradictions(story: Story, facts: Incident) -> list[str]:
    """Return what the run said otherwise than the story."""
    expected = story.expected
    cause = facts.cause.category if facts.cause else None
    pairs = (
        ("verdict", expected.verdict, facts.verdict),
        ("first suspect", expected.cause, cause),
        ("end of the loss", expected.loss, end_of(facts.loss)),
    )
    found = [f"{what}: {said}, not {told}" for what, told, said in pairs if said != told]
    timed = [check.name for check in facts.failed if check.lane == "timing"]
    if timed and not {"launches", "phases", "memory"} & set(story.charts):
        found.append(f"time or memory failed ({', '.join(timed)}): is the machine busy?")
    return found
