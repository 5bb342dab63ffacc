"""A wider batch is what the training's own collator would have made, or the batch is left alone."""

from __future__ import annotations

from collections import UserDict, namedtuple
from typing import Any

import pytest
import torch

from canary.training.relations.widening import Unclear, widened

ROWS = ([5, 6, 7, 2], [8, 2], [9, 9, 2])
Pair = namedtuple("Pair", ["x", "y"])


def collated(width: int, side: str = "right", shift: bool = False) -> dict[str, torch.Tensor]:
    """The rows padded to a width, as a collator does it."""

    def padded(rows: Any, pad: int) -> torch.Tensor:
        more = [[pad] * (width - len(row)) for row in rows]
        return torch.tensor(
            [
                row + add if side == "right" else add + row
                for row, add in zip(rows, more, strict=True)
            ]
        )

    ids = padded(ROWS, 0)
    mask = padded([[1] * len(row) for row in ROWS], 0)
    positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": padded([[-100, *row[1:]] for row in ROWS], -100),
        "position_ids": positions,
        "weights": padded([[0.5] * len(row) for row in ROWS], 0),
        "keep": mask.bool(),
    }


def equal(one: Any, other: Any) -> bool:
    """Whether two batches hold the same tensors by name."""
    return {*one} == {*other} and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


@pytest.mark.parametrize("side", ["right", "left"])
def test_it_is_what_a_wider_collator_makes(side: str) -> None:
    assert equal(widened(collated(4, side), 7), collated(11, side))


def test_a_batch_keeps_its_types() -> None:
    found = collated(4)
    given = UserDict({"both": [Pair(found["input_ids"], found["labels"])], "name": "a", "n": 3})
    made: Any = widened(given, 2)
    assert isinstance(made, UserDict)
    assert isinstance(made["both"][0], Pair)
    assert made["both"][0].y[:, -2:].eq(-100).all()
    assert (made["name"], made["n"]) == ("a", 3)
    assert found["input_ids"].shape == (3, 4), "the loader's own batch is left as it is"


def test_chosen_and_rejected_rows_have_padding_of_their_own() -> None:
    chosen, rejected = collated(4), collated(6, "left")
    batch = {f"chosen_{name}": value for name, value in chosen.items()}
    batch |= {f"rejected_{name}": value for name, value in rejected.items()}
    wanted = {f"chosen_{name}": value for name, value in collated(6).items()}
    wanted |= {f"rejected_{name}": value for name, value in collated(8, "left").items()}
    assert equal(widened(batch, 2), wanted)


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": torch.tensor([[3, 4, 5], [6, 7, 8]])},
        # Text may end with the same token several times, as it has it in between.
        (torch.tensor([[3, 4, 4], [4, 7, 8]]), torch.tensor([[4, 4, 5], [7, 8, 9]])),
        # Or begin with it, as no other row does.
        {"input_ids": torch.tensor([[3, 0]]), "attention_mask": torch.ones(1, 2)},
        ["text", "more text"],
    ],
)
def test_a_batch_without_a_padded_row_is_left_alone(batch: Any) -> None:
    assert widened(batch, 7) is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"attention_bias": torch.zeros(3, 1, 4, 4)}, "more than two dimensions"),
        ({"scores": torch.arange(12.0).reshape(3, 4)}, "scores holds different values"),
        ({"position_ids": torch.tensor([[0, 1, 0, 1]] * 3)}, "packed"),
        ({"cu_seq_lens_q": torch.tensor([0, 4])}, "packed"),
        ({"attention_mask": torch.tensor([[1, 1, 0, 1]] * 3)}, "between tokens"),
        ({"attention_mask": torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1], [1] * 4])}, "both sides"),
    ],
)
def test_what_is_not_known_is_not_guessed(more: dict[str, torch.Tensor], words: str) -> None:
    with pytest.raises(Unclear, match=words):
        widened(collated(4) | more, 7)


def test_a_model_may_have_few_positions() -> None:
    made: Any = widened(collated(4), 7, widest=6)
    assert made["input_ids"].shape == (3, 6)
    assert widened(collated(4), 7, widest=4) is None
