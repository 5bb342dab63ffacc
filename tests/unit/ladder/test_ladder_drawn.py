"""What a guard says of generation: whether what would be sampled is drawn from the policy."""

from __future__ import annotations

from typing import Any

import pytest

from canary.ladder.guard import TOLERANCES, compare
from tests.unit.ladder.test_ladder_guard import exact


def drawn(gap: float | None = 1e-6, rank: float | None = 0.5, ranked: int = 400) -> Any:
    """A look's `exact`, with generation looked at in its first step."""
    seen = {"step": 1, "tokens": 400, "gap": gap, "rank": rank, "ranked": ranked}
    return exact() | {"generation": {"steps": [seen]}}


@pytest.mark.parametrize("rounding", ["float32", "bfloat16"])
def test_generation_off_the_policy_is_judged_by_what_arithmetic_may_round(rounding: Any) -> None:
    allowed = TOLERANCES[rounding].generation
    assert compare(drawn(), drawn(0.9 * allowed), "grpo", rounding).holds
    found = compare(drawn(), drawn(1.1 * allowed), "grpo", rounding)
    assert found.broken
    assert "generation off its policy 0 ->" in found.words


def test_tokens_that_are_drawn_from_something_else_break_the_guard() -> None:
    """The right logits and the wrong draw: uniform over the words, or always the likeliest."""
    for rank in (0.94, 0.22):
        assert compare(drawn(), drawn(rank=rank), "ppo", "float32").broken
    assert compare(drawn(), drawn(rank=0.55), "ppo", "float32").holds


def test_few_tokens_say_less_of_where_they_were_drawn_from() -> None:
    assert compare(drawn(), drawn(rank=0.7, ranked=20), "ppo", "float32").holds
    assert compare(drawn(), drawn(rank=0.7, ranked=2000), "ppo", "float32").broken


def test_a_baseline_that_never_agrees_with_itself_measures_others_by_that() -> None:
    """Of quantized layers no two forwards agree; of other models none may be far."""
    assert compare(drawn(0.01), drawn(0.015), "ppo", "float32").holds
    found = compare(drawn(2.0), drawn(2.0), "ppo", "float32")
    assert found.holds
    assert "not checked: generation (the baseline's" in found.words


def test_generation_that_nobody_looked_at_is_said() -> None:
    """As with vLLM, whose tokens no `generate` of the model draws."""
    found = compare(drawn(), exact() | {"generation": {"steps": []}}, "grpo", "float32")
    assert found.holds
    assert "not checked: generation (it does not use the model's" in found.words
    assert "generation" not in compare(exact(), exact(), "sft", "float32").words


def test_an_optimizer_whose_updates_do_not_show_is_said() -> None:
    still, moving = exact(learning_rates=[0.0, 0.0, 1e-3]), exact(learning_rates=[0.0, 1e-3, 2e-3])
    assert "not checked: the optimizer" in compare(still, still, "sft", "float32").words
    assert "optimizer" not in compare(moving, moving, "sft", "float32").words
