"""Sampled ids against trained ids."""

from __future__ import annotations

from typing import Any

import torch

from canary.training.exact.rollouts import SampledIds

EOS = 9


class Model:
    """Generates what it was given."""

    def __init__(self, completions: list[list[int]]) -> None:
        self._completions = torch.tensor(completions)

    def generate(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.cat([input_ids, self._completions], dim=1)


def sampled(completions: list[list[int]]) -> SampledIds:
    model = Model(completions)
    rows = SampledIds(model, frozenset({EOS}))
    model.generate(input_ids=torch.ones(len(completions), 2, dtype=torch.long))
    return rows


def batch(ids: list[list[int]], mask: list[list[int]]) -> dict[str, torch.Tensor]:
    return {"completion_ids": torch.tensor(ids), "completion_mask": torch.tensor(mask)}


def test_what_was_sampled_is_known_up_to_its_first_eos() -> None:
    rows = sampled([[3, 4, EOS, 0], [5, 6, 7, 8]])
    trained = batch([[5, 6, 7, 8], [3, 4, EOS, 0]], [[1, 1, 1, 1], [1, 1, 1, 0]])
    assert rows.not_sampled(trained) == 0


def test_other_ids_for_the_same_text_are_strangers() -> None:
    rows = sampled([[3, 4, EOS, 0], [5, 6, 7, 8]])
    trained = batch([[34, EOS, 0, 0], [5, 6, 7, 8]], [[1, 1, 0, 0], [1, 1, 1, 1]])
    assert rows.not_sampled(trained) == 1


def test_a_lost_eos_is_a_stranger_and_a_masked_row_is_not() -> None:
    rows = sampled([[3, 4, EOS, 0]])
    assert rows.not_sampled(batch([[3, 4, EOS, 0]], [[1, 1, 0, 0]])) == 1
    assert rows.not_sampled(batch([[3, 4, EOS, 0]], [[0, 0, 0, 0]])) == 0


def test_without_sampling_through_the_model_nothing_is_said() -> None:
    rows = SampledIds(Model([[1]]), frozenset({EOS}))
    assert rows.not_sampled(batch([[1]], [[1]])) is None
    tools = batch([[3]], [[1]]) | {"tool_mask": torch.ones(1, 1)}
    assert sampled([[3]]).not_sampled(tools) is None
