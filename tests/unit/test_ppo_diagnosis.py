"""Why PPO differs: the first signal of a rollout, and the first update that is another."""

from __future__ import annotations

from typing import Any

import pytest

from canary.collect.record import RunRecord
from canary.compare.causes.setting_classes import category_of
from canary.compare.suspects import Diagnosis, Suspect
from canary.config.ppo import PPOConfig
from canary.config.speed import SpeedConfig
from tests.unit.comparing import altered
from tests.unit.ppo_records import METRICS, altered_config, compared, later, moved, ppo

UPDATES = ("exact", "first_loss", "updates")


def diagnosed(current: RunRecord) -> Diagnosis:
    return compared(current).diagnosis


def top(current: RunRecord) -> Suspect:
    found = diagnosed(current).top_suspect
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
    assert "scores of others" in found.description


def with_updates(first: int, *, same: bool = True, clip: float | None = None) -> RunRecord:
    """Step 1 differs from an update on; parameters after its first update are the same or not."""
    losses = ppo().exact["first_loss"]["updates"]
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


@pytest.mark.parametrize(("key", "value"), [("gamma", 0.9), ("lam", 0.5), ("kl_estimator", "k3")])
def test_a_changed_setting_of_ppo_is_named_as_the_cause(key: str, value: object) -> None:
    found = top(moved(altered_config(ppo(1), key, value), "advantages", 1))
    assert found.category == "objective"
    assert any(item.kind == "config" and f"ppo.{key}" in item.message for item in found.evidence)


LEARNED = {"objective", "data", "rollout"}


@pytest.mark.parametrize("name", PPOConfig.model_fields)
def test_each_setting_of_ppo_has_a_mechanism(name: str) -> None:
    assert category_of(f"ppo.{name}") in LEARNED


@pytest.mark.parametrize("name", SpeedConfig.model_fields)
def test_a_switch_of_speed_changes_nothing_that_is_learned(name: str) -> None:
    assert category_of(f"speed.{name}") in {"kernel", "rollout", "dataloader"}


def test_a_switch_of_speed_is_no_cause_of_what_is_learned() -> None:
    switched = altered(ppo(1), "config", "speed", "shared_forward", to=False)
    found = diagnosed(moved(switched, "advantages", 1))
    assert found.top_suspect is not None
    assert found.top_suspect.category == "objective"
