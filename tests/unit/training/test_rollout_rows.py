"""What the look keeps of a rollout: statistics that move when a value does, or its place."""

from __future__ import annotations

import math

import pytest
import torch

from canary.record.exact import Rollout
from canary.training.exact.rollouts import add_rollout, statistics_of


def rollout(rewards: list[list[float]], lengths: list[int]) -> dict[str, torch.Tensor]:
    width = len(rewards[0])
    mask = torch.tensor([[place < length for place in range(width)] for length in lengths])
    return {
        "completion_mask": mask,
        "completion_ids": torch.ones_like(mask, dtype=torch.int64),
        "rewards": torch.tensor(rewards),
        "scores": torch.tensor([float(sum(row)) for row in rewards]),
    }


def test_the_tokens_of_completions_count_and_no_others() -> None:
    rows: Rollout = {"tokens": [], "signals": {}}
    add_rollout(rows, rollout([[1.0, 2.0, 50.0], [3.0, 70.0, 70.0]], [2, 1]))
    found = rows["signals"]
    assert rows["tokens"] == [3]
    assert found["rewards"]["count"] == [3]
    assert found["rewards"]["mean"] == [2.0]
    assert found["rewards"]["rms"] == [pytest.approx(math.sqrt(14 / 3))]
    assert found["scores"]["count"] == [2]
    assert "completion_ids" not in found


def test_values_that_change_places_are_told_by_their_places_alone() -> None:
    one = statistics_of(torch.tensor([1.0, 2.0, 3.0]))
    other = statistics_of(torch.tensor([2.0, 3.0, 1.0]))
    assert (one["mean"], one["count"]) == (other["mean"], other["count"])
    assert one["rms"] == pytest.approx(other["rms"])
    assert abs(one["placed"] - other["placed"]) > 0.1


def test_of_no_tokens_there_is_nothing_and_a_nan_stays_one() -> None:
    assert statistics_of(torch.tensor([])) == {"count": 0, "mean": 0, "rms": 0, "placed": 0}
    assert math.isnan(statistics_of(torch.tensor([1.0, math.nan]))["mean"])
