"""What trainers log stands in one table, and nobody who reads it has names of their own."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from canary.compare.report import Check
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.config.trainers import TRAINERS
from canary.ladder.guard import ROUNDED_AWAY
from canary.record.metric_names import QUANTITIES, Quantity
from canary.record.types import RunRecord
from canary.runner.display.figures import shown_metrics
from canary.training.anomaly.observation import from_metrics
from tests.unit.comparing import altered, record

TRL = importlib.util.find_spec("trl")
LOGGED = {
    "sft": {"entropy", "accuracy"},
    "dpo": {"entropy", "accuracy", "margin", "chosen_reward", "chosen_logprob"},
    "kto": {"kl", "entropy", "margin", "rejected_reward", "rejected_logprob"},
    "reward": {"margin", "accuracy", "mean_score"},
    "grpo": {"kl", "entropy", "clip_fraction", "length", "reward", "reward_std"},
    "rloo": {"kl", "entropy", "clip_fraction", "length", "reward", "groups_without_spread"},
    "orpo": {"margin", "accuracy", "chosen_reward", "chosen_logprob"},
    "cpo": {"margin", "accuracy", "chosen_reward", "chosen_logprob"},
}


def telling(kind: str, name: str, mean: float, number: int = 0) -> RunRecord:
    """A run of a trainer that logs one metric; it varies by a tenth."""
    told = record(kind="dpo").rl["rewards/margins"].model_copy(update={"mean": mean, "std": 0.1})
    whole = altered(record(number), "config", "training_type", to=kind)
    return altered(whole, "rl", to={name: told})


def checked(kind: str, name: str, before: float, after: float, limits: Thresholds) -> list[Check]:
    """The checks of a quantity, where one metric changed."""
    found = compare_to_baseline(telling(kind, name, after, 1), telling(kind, name, before), limits)
    quantities = {check.name for check in found.checks} & set(QUANTITIES)
    return [found.check(name) for name in quantities]


def test_the_limit_of_the_margin_holds_reward_models_too() -> None:
    (tight,) = checked("reward", "margin", 2.0, 0.1, DEFAULT_THRESHOLDS)
    assert (tight.name, tight.status, tight.threshold) == ("margin", "fail", 50.0)
    (wide,) = checked("reward", "margin", 2.0, 0.1, Thresholds(max_margin_drop_pct=96))
    assert wide.status == "pass"


def test_the_score_of_a_reward_model_has_no_level_to_be_held_to() -> None:
    assert checked("reward", "mean_reward", 2.0, -2.0, DEFAULT_THRESHOLDS) == []


def test_no_metric_is_two_quantities() -> None:
    names = Counter(name for quantity in QUANTITIES.values() for name in quantity.names)
    assert [name for name, count in names.items() if count > 1] == []
    labels = Counter(q.label for q in QUANTITIES.values() if q.label)
    assert max(labels.values()) == 1


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=QUANTITIES)
def test_each_consumer_knows_a_quantity_by_all_its_names(quantity: Quantity) -> None:
    for name in quantity.names:
        told = {name: 0.25}
        if quantity.label:
            assert shown_metrics(told) == {quantity.label: 0.25}
        if quantity.observed:
            assert from_metrics(told)[quantity.name] == 0.25
        if quantity.limit:
            (check,) = checked("exec", name, 0.25, 0.25, DEFAULT_THRESHOLDS)
            assert check.name == quantity.name
            assert check.threshold == getattr(DEFAULT_THRESHOLDS, quantity.limit)
        assert (name in ROUNDED_AWAY) == quantity.rounded_away


def test_the_guard_compares_only_metrics_of_the_table() -> None:
    known = {name for quantity in QUANTITIES.values() for name in quantity.names}
    for names in (row.metrics for row in TRAINERS.values()):
        assert set(names) <= known


@pytest.mark.skipif(TRL is None, reason="trl is not installed")
@pytest.mark.parametrize("trainer", LOGGED)
def test_the_table_knows_what_the_installed_trl_logs(trainer: str) -> None:
    assert TRL is not None
    assert TRL.origin is not None
    places = [*Path(TRL.origin).parent.rglob(f"{trainer}_trainer.py")]
    source = "".join(place.read_text(encoding="utf-8") for place in places)
    logged = set(re.findall(r'etrics(?:\[mode\])?\[f?"(?:\{prefix\})?([\w/]+)"\]', source))
    found = {name for name, row in QUANTITIES.items() if logged & set(row.names)}
    assert LOGGED[trainer] <= found
