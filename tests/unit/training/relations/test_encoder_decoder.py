"""An encoder-decoder: ids are those of the encoder, logits those of the decoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.training.relations.tiny import EOS, PAD, QUICK, VOCABULARY, Loop, batch


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
    )
    return T5ForConditionalGeneration(config)


class Answering(Loop):
    """Trains on answers of unequal lengths, with or without their end."""

    ends = True

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Return the model's own loss."""
        labels = one["input_ids"][:, :8].masked_fill(one["attention_mask"][:, :8] == 0, -100)
        if not self.ends:
            labels = labels.masked_fill(labels == EOS, -100)
        found: torch.Tensor = self.model(**one, labels=labels).loss
        return found


@pytest.mark.parametrize("ends", [True, False])
def test_answers_need_their_end(ends: bool) -> None:
    loop = Answering(t5(), wanted=QUICK, batches=lambda seed: batch(seed, rows=3))
    loop.ends = ends
    found = loop.run()
    broken = {name for name, one in found.items() if one["status"] == "broken"}
    assert broken - {"accumulation"} == (set() if ends else {"eos_labels"}), found
    assert found["padding_side"]["status"] == "not applicable"
