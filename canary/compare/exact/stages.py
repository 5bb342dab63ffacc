"""The table of the exact lane's stages, and which of them two looks recorded. Pure.

A stage's number is its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import Literal

from canary.record.exact import Exact
from canary.record.types import RunRecord


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

    def named_in(self, exact: Exact) -> bool:
        """Whether a look recorded what the words name: the trajectory needs losses, although its
        metrics and norms are compared without them."""
        return bool((self.named or self.recorded)(exact))


def _has_values(series: Iterable[object]) -> bool:
    """Whether a step has a value: a list of only None counts as not recorded."""
    return any(value is not None for value in series)


def _loss(exact: Exact) -> bool:
    return exact.get("first_loss", {}).get("loss") is not None


def _gradient(exact: Exact) -> object:
    first = exact.get("first_gradient", {})
    return first.get("total") is not None and first.get("groups")


def _update(exact: Exact) -> object:
    size = exact.get("first_update", {}).get("delta_norm")
    return size is not None and exact.get("trajectory", {}).get("learning_rates")


def _trajectory(exact: Exact) -> bool:
    found = exact.get("trajectory", {})
    series = (found.get("losses", []), found.get("grad_norms", []), *found.get("rl", {}).values())
    return any(map(_has_values, series))


# fmt: off
STAGES: tuple[Stage, ...] = (
    Stage("environment", "setting", "packages, driver, device and threads"),
    Stage("config", "setting", "the resolved config"),
    Stage("data", "input", "dataset and tokenizer", lambda exact: exact.get("data")),
    Stage("batches", "input", "the batches that enter each step",
        lambda exact: exact.get("batches"), steps=lambda exact: exact.get("batches", [])),
    Stage("model", "input", "the initial model", lambda exact: exact.get("model"), verb="differs"),
    Stage("rollout", "outcome", "values computed from the completions of step 1",
        lambda exact: exact.get("rollout", {}).get("tokens"),
        steps=lambda exact: exact.get("rollout", {}).get("tokens", [])),
    Stage("first_loss", "outcome", "the loss of step 1", _loss, outcome="loss", verb="differs"),
    Stage("first_gradient", "outcome", "the gradient of step 1", _gradient, outcome="gradient",
        verb="differs"),
    Stage("first_update", "outcome", "the first update and the learning rates", _update,
        steps=lambda exact: exact.get("trajectory", {}).get("learning_rates", []),
        outcome="update"),
    Stage("trajectory", "outcome", "the losses of the first steps", _trajectory,
        named=lambda exact: _has_values(exact.get("trajectory", {}).get("losses", [])),
        steps=lambda exact: exact.get("trajectory", {}).get("losses", [])),
    Stage("work", "work", "the work of one step"),
    Stage("memory", "work", "live memory between two steps"),
    Stage("calls", "work", "calls, files and bytes"),
)
# fmt: on
STAGE_OF = {stage.name: stage for stage in STAGES}
ORDER = {stage.name: place for place, stage in enumerate(STAGES)}
LEARNED_STAGES = {stage.name: stage.words for stage in STAGES if stage.learned}
"""Words of the learning stages, in order."""
OUTCOME_STAGES = tuple(stage.name for stage in STAGES if stage.kind == "outcome")


def recorded_on_both(stage: str, before: RunRecord, after: RunRecord) -> bool:
    """Whether both looks recorded the stage."""
    return all(STAGE_OF[stage].recorded(record.exact) for record in (before, after))


def equal_outcomes(before: RunRecord, after: RunRecord) -> str:
    """Return the end of a sentence about inputs that differ: the outcomes that are equal."""
    both = [s.outcome for s in STAGES if s.outcome and recorded_on_both(s.name, before, after)]
    if not both:
        return "; loss, gradient and update were not recorded on both sides"
    named = f"{', '.join(both[:-1])} and {both[-1]}" if both[1:] else both[0]
    return f"; {named} {'are' if both[1:] else 'is'} equal"


def compared_stages(before: RunRecord, after: RunRecord) -> dict[str, str]:
    """Return the compared stages with their words; rollouts only if a side recorded them."""
    rollouts = any(STAGE_OF["rollout"].recorded(record.exact) for record in (before, after))
    return {n: words for n, words in LEARNED_STAGES.items() if rollouts or n != "rollout"}
