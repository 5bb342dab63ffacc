"""Why PPO differs: the first signal of a rollout, and the first update that is another."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.diagnosis.changed_settings import category_of
from canary.compare.diagnosis.suspects import Suspect
from canary.config.sections import PPOConfig, SpeedConfig
from canary.record.types import RunRecord
from tests.unit.comparing import altered, plain
from tests.unit.ppo_records import METRICS, compared, later, moved, ppo

UPDATES = ("exact", "first_loss", "updates")


def top(current: RunRecord) -> Suspect:
    found = compared(current).diagnosis.top_suspect
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("signal", "step", "category"),
    [
        ("scores", 1, "rollout"),
        ("logprobs", 1, "rollout"),
        ("reference_logprobs", 2, "adapter"),
        ("rewards", 1, "objective"),
        ("rewards", 2, "objective"),
        ("advantages", 1, "objective"),
        ("returns", 1, "objective"),
    ],
)
def test_the_first_signal_names_the_mechanism_and_is_its_evidence(
    signal: str, step: int, category: str
) -> None:
    found = top(later(moved(ppo(1), signal, step), step))
    assert found.category == category
    assert found.confidence >= 0.7
    assert any(signal in item.message for item in found.evidence)


def test_scores_at_other_completions_are_those_of_others() -> None:
    found = top(moved(ppo(1), "scores", 1, only="placed"))
    assert found.category == "rollout"
    assert "scores of other completions" in found.description


def with_updates(first: int, *, same: bool = True, clip: float | None = None) -> RunRecord:
    """Step 1 differs from an update on; parameters after its first update are the same or not."""
    losses = plain(ppo())["first_loss"]["updates"]
    other = [loss if place + 1 < first else 1.1 * loss for place, loss in enumerate(losses)]
    whole = altered(later(ppo(1), 1), *UPDATES, to=other)
    if not same:
        whole = altered(whole, "exact", "first_update", "after_sha256", to="f" * 64)
    if clip is not None:
        whole = altered(whole, *METRICS, "value_clip_ratio", 0, to=clip)
    return whole


@pytest.mark.parametrize(
    ("change", "category"),
    [
        ({"first": 2}, "objective"),
        ({"first": 3}, "optimizer"),
        ({"first": 3, "clip": 0.0}, "objective"),
        ({"first": 2, "same": False}, "optimizer"),
    ],
)
def test_a_later_update_of_step_1_tells_the_loss_from_the_optimizer(
    change: dict[str, Any], category: str
) -> None:
    assert top(with_updates(**change)).category == category


def test_a_ratio_off_1_tells_of_the_rollout_where_the_loss_differs_too() -> None:
    whole = altered(later(ppo(1), 1), "exact", "first_loss", "loss", to=1.0)
    found = top(altered(whole, *METRICS, "ratio_deviation", to=[0.5] * 6))
    assert found.category == "rollout"


LEARNED = {"objective", "data", "rollout"}


def test_each_setting_of_ppo_has_a_mechanism_and_a_switch_of_speed_learns_nothing() -> None:
    assert {category_of(f"ppo.{name}") for name in PPOConfig.model_fields} <= LEARNED
    speeds = {category_of(f"speed.{name}") for name in SpeedConfig.model_fields}
    assert speeds <= {"kernel", "rollout", "dataloader"}


def other_gradient(factor: float, **calls: int) -> RunRecord:
    """From step 2 on another norm of the same loss; operators by name, so many calls more."""
    norms = plain(ppo())["trajectory"]["grad_norms"]
    other = [norms[0], *(factor * norm for norm in norms[1:])]
    whole = altered(ppo(1), "exact", "trajectory", "grad_norms", to=other)
    operators = dict(ppo().exact["work"]["operators"])
    for name, more in calls.items():
        full = next(key for key in operators if key.startswith(f"aten.{name}."))
        operators[full] += more
    return altered(whole, "exact", "work", "operators", to=operators)


def test_a_gradient_of_which_less_is_computed_was_cut() -> None:
    found = top(other_gradient(1.001, mm=-8, detach=10))
    assert found.category == "objective"
    assert "part of the graph is cut" in found.description
    assert "detach" in found.suggested_actions[0]
