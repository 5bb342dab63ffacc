"""Padding must have no weight in the loss, but the end of a text may look like padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from canary.record.exact import Asked
from tests.unit.training.asking.tiny import EOS, PAD, Loop, batch, llama

Masked = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Says, of ids and their mask, which tokens the loss leaves out."""


class Masking(Loop):
    """A loop whose loss leaves out what `masked` says."""

    masked: Masked

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        logits = self.model(**one).logits[:, :-1]
        left_out = self.masked(one["input_ids"], one["attention_mask"])
        labels = one["input_ids"].masked_fill(left_out, -100)[:, 1:]
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100
        )


def asked(masked: Masked, model: Any = None, **changed: Any) -> Asked:
    loop = Masking(model or llama(), **changed)
    loop.masked = masked
    return loop.run()["trained_padding"]


def nothing(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(ids, dtype=torch.bool)


def padding(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return mask == 0


def all_but_one(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The first token of padding ends the text, as where there is no EOS."""
    real = torch.cat([mask[:, :1], mask[:, :-1]], dim=1)
    return real == 0


def ends_as_padding(seed: int) -> dict[str, torch.Tensor]:
    """Rows that end with EOS, and are padded with it."""
    made = batch(seed)
    made["input_ids"][made["attention_mask"] == 0] = EOS
    return made


def of_ones(seed: int) -> dict[str, torch.Tensor]:
    """The second half of each row counts as real, as in a completion without a mask."""
    made = batch(seed)
    made["attention_mask"][:, 3:] = 1
    made["input_ids"][:, 0], made["attention_mask"][:, 0] = PAD, 0
    return made


@pytest.mark.parametrize("batches", [batch, of_ones], ids=["masked", "a mask of ones"])
def test_trained_padding_is_broken(batches: Any) -> None:
    found = asked(nothing, batches=batches)
    assert found["status"] == "broken", found
    assert "padding tokens are trained on" in found["words"]
    assert found["place"]


@pytest.mark.parametrize("masked", [padding, all_but_one])
def test_masked_padding_holds(masked: Masked) -> None:
    found = asked(masked)
    assert found["status"] == "holds", found


def test_the_first_eos_is_real_where_eos_pads() -> None:
    model = llama()
    model.config.pad_token_id = EOS
    assert asked(all_but_one, model, batches=ends_as_padding)["status"] == "holds"
    assert asked(nothing, model, batches=ends_as_padding)["status"] == "broken"
