"""The table of the exact lane's stages; a stage's number is its position. Pure."""

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
    """`setting`: config and environment, the causes. `input`: data and model. `outcome`: the
    effects of learning. `work`: judged by its size."""
    words: str
    """What it compares, for the messages of its check."""
    recorded: Callable[[Exact], object] = bool
    """Whether a look recorded it: a stage that neither side recorded is not equal."""
    named: Callable[[Exact], object] | None = None
    """Whether a look recorded what `words` names, if the stage compares more than that."""
    steps: Callable[[Exact], Sized] | None = None
    """Its values per step, if it has several steps."""
    outcome: str = ""
    """What it shows about step 1, in one word."""
    verb: str = "differ"

    @property
    def learned(self) -> bool:
        """Whether it is a learning stage: an input or an outcome."""
        return self.kind in ("input", "outcome")


def _has_values(series: Iterable[object]) -> bool:
    """Whether a step has a value: a list of only None counts as not recorded."""
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
        "values computed from the completions of step 1",
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
        "the losses of the following steps",
        lambda exact: any(
            _has_values(series)
            for series in (
                exact.get("trajectory", {}).get("losses", []),
                exact.get("trajectory", {}).get("grad_norms", []),
                exact.get("trajectory", {}).get("rl", {}).values(),
            )
        ),
        named=lambda exact: _has_values(exact.get("trajectory", {}).get("losses", [])),
        steps=lambda exact: exact.get("trajectory", {}).get("losses", []),
    ),
    Stage("work", "work", "the work of one step"),
    Stage("memory", "work", "live memory between two steps"),
    Stage("calls", "work", "calls, files and bytes"),
)
STAGE_OF = {stage.name: stage for stage in STAGES}
ORDER = {stage.name: place for place, stage in enumerate(STAGES)}
LEARNED_STAGES = {stage.name: stage.words for stage in STAGES if stage.learned}
"""Words of the learning stages, in order."""
OUTCOME_STAGES = tuple(stage.name for stage in STAGES if stage.kind == "outcome")
