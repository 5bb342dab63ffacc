"""The stages of the exact lane, in order: a stage's number is its place in this table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import Literal

from canary.record.exact import Exact


@dataclass(frozen=True)
class Stage:
    """One stage of the lane."""

    name: str
    kind: Literal["setting", "input", "outcome", "work"]
    """A setting links causes and effects. Inputs are what is learned from, outcomes show what is
    learned, and work is judged by its size."""
    words: str
    """What it compares, as the check of the stage says it."""
    recorded: Callable[[Exact], object] = bool
    """Whether a probe has it: what nobody recorded is not equal."""
    named: Callable[[Exact], object] | None = None
    """Whether a probe has what the words name, where more is compared."""
    steps: Callable[[Exact], Sized] | None = None
    """What it has of each step, where it has many."""
    outcome: str = ""
    """What it shows of step 1, in a word."""
    verb: str = "differ"

    @property
    def learned(self) -> bool:
        """Whether it is one of what is learned, from and to."""
        return self.kind in ("input", "outcome")


def _told(series: Iterable[object]) -> bool:
    """Whether a step told a value: a list of nothing is not recorded."""
    return any(value is not None for value in series)


STAGES: tuple[Stage, ...] = (
    Stage("environment", "setting", "packages, driver, device and threads"),
    Stage("config", "setting", "the resolved config"),
    Stage("data", "input", "dataset and tokenizer", lambda exact: exact.get("data")),
    Stage(
        "batches",
        "input",
        "the batches that enter each step",
        lambda exact: exact.get("batches"),
        steps=lambda exact: exact.get("batches", []),
    ),
    Stage("model", "input", "the initial model", lambda exact: exact.get("model"), verb="differs"),
    Stage(
        "rollout",
        "outcome",
        "what is made of the completions of step 1",
        lambda exact: exact.get("rollout", {}).get("tokens"),
        steps=lambda exact: exact.get("rollout", {}).get("tokens", []),
    ),
    Stage(
        "first_loss",
        "outcome",
        "the loss of step 1",
        lambda exact: exact.get("first_loss", {}).get("loss") is not None,
        outcome="loss",
        verb="differs",
    ),
    Stage(
        "first_gradient",
        "outcome",
        "the gradient of step 1",
        lambda exact: (
            exact.get("first_gradient", {}).get("total") is not None
            and exact["first_gradient"].get("groups")
        ),
        outcome="gradient",
        verb="differs",
    ),
    Stage(
        "first_update",
        "outcome",
        "the first update and the learning rates",
        lambda exact: (
            exact.get("first_update", {}).get("delta_norm") is not None
            and exact.get("trajectory", {}).get("learning_rates")
        ),
        steps=lambda exact: exact.get("trajectory", {}).get("learning_rates", []),
        outcome="update",
    ),
    Stage(
        "trajectory",
        "outcome",
        "the losses that follow",
        lambda exact: any(
            _told(series)
            for series in (
                exact.get("trajectory", {}).get("losses", []),
                exact.get("trajectory", {}).get("grad_norms", []),
                exact.get("trajectory", {}).get("rl", {}).values(),
            )
        ),
        named=lambda exact: _told(exact.get("trajectory", {}).get("losses", [])),
        steps=lambda exact: exact.get("trajectory", {}).get("losses", []),
    ),
    Stage("work", "work", "the work of one step"),
    Stage("memory", "work", "what is alive between two steps"),
    Stage("calls", "work", "calls, files and bytes"),
)
STAGE_OF = {stage.name: stage for stage in STAGES}
ORDER = {stage.name: place for place, stage in enumerate(STAGES)}
LEARNED_STAGES = {stage.name: stage.words for stage in STAGES if stage.learned}
"""Words of the stages of what is learned, in order."""
OUTCOME_STAGES = tuple(stage.name for stage in STAGES if stage.kind == "outcome")
