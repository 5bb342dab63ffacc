"""Invariants of PPO, kept by a real run and each broken."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.report import Check
from canary.compare.rules.comparison import rule_checks
from canary.record.types import RunRecord
from tests.unit.comparing import altered
from tests.unit.ppo_records import METRICS, SIGNALS, altered_config, moved, ppo

KEPT = (
    "starts_at_ratio_one",
    "advantages_scaled",
    "rewards_add_up",
    "reward_varies",
    "sampled_ids_trained",
    "frozen_unchanged",
    "trainable_changed",
)


def checks(whole: RunRecord) -> dict[str, Check]:
    return {check.name: check for check in rule_checks([whole])}


def test_a_healthy_run_keeps_all_of_ppo() -> None:
    found = checks(ppo())
    assert {name: found[name].status for name in KEPT} == dict.fromkeys(KEPT, "pass")
    assert "fail" not in {check.status for check in found.values()}


BROKEN: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("starts_at_ratio_one", (*METRICS, "ratio_deviation", 3), 0.01, "first update"),
    ("starts_at_ratio_one", (*METRICS, "ratio_deviation", 3), "nan", "first update"),
    ("starts_at_ratio_one", (*METRICS, "kl", 0), 0.02, "KL is 0.02"),
    ("advantages_scaled", (*SIGNALS, "advantages", "rms", 4), 0.3, "expected 1"),
    ("rewards_add_up", (*SIGNALS, "rewards", "mean", 2), 0.0, "in step 3"),
    ("reward_varies", (*METRICS, "reward_std"), [0.0] * 6, "the same reward"),
    ("sampled_ids_trained", ("exact", "batches", 0, 0, "not_sampled"), 1, "never sampled"),
    ("frozen_unchanged", ("exact", "frozen", "reference_changed"), True, "reference"),
]


@pytest.mark.parametrize(("name", "path", "value", "words"), BROKEN)
def test_a_broken_one_fails_with_its_reason(
    name: str, path: tuple[str | int, ...], value: Any, words: str
) -> None:
    check = checks(altered(ppo(), *path, to=value))[name]
    assert check.status == "fail"
    assert words in check.message


def test_rewards_that_are_whitened_sum_to_nothing_known() -> None:
    found = checks(altered_config(moved(ppo(), "rewards", 1), "whiten_rewards", True))
    assert "rewards_add_up" not in found


def test_a_policy_that_does_not_start_at_the_reference_has_a_kl_from_the_start() -> None:
    whole = altered(ppo(), *METRICS, "kl", 0, to=0.02)
    other = altered(whole, "exact", "model", "reference_sha256", to="f" * 64)
    assert checks(other)["starts_at_ratio_one"].status == "pass"


def test_advantages_without_any_spread_of_scores_have_no_scale() -> None:
    flat = altered(ppo(), *METRICS, "reward_std", to=[0.0] * 6)
    flat = altered(flat, *SIGNALS, "advantages", "rms", to=[0.0] * 6)
    assert "advantages_scaled" not in checks(flat)


def test_few_tokens_are_scaled_with_their_own_number() -> None:
    few = altered(ppo(), *SIGNALS, "advantages", "count", 0, to=4)
    few = altered(few, *SIGNALS, "advantages", "rms", 0, to=0.75**0.5)
    assert checks(few)["advantages_scaled"].status == "pass"


def test_half_precision_may_be_off_1_by_its_rounding() -> None:
    off = altered(ppo(), *METRICS, "ratio_deviation", 0, to=0.01)
    assert (
        checks(altered(off, "config", "dtype", to="bfloat16"))["starts_at_ratio_one"].status
        == "pass"
    )


def test_a_kl_that_is_no_number_is_told_where_ratios_are_not() -> None:
    """As of GRPO, and of records from before ratios were told."""
    bare = altered(ppo(), *METRICS, "ratio_deviation", to=[None] * 6)
    bare = altered(bare, *METRICS, "clip_ratio", 0, to=0.0)
    bare = altered(bare, *METRICS, "value_clip_ratio", 0, to=0.0)
    assert checks(bare)["starts_at_ratio_one"].status == "pass"
    check = checks(altered(bare, *METRICS, "kl", 0, to="nan"))["starts_at_ratio_one"]
    assert (check.status, "KL is nan" in check.message) == ("fail", True)
    check = checks(altered(bare, *METRICS, "clip_ratio", 0, to="nan"))["starts_at_ratio_one"]
    assert check.status == "fail"
