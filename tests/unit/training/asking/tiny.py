"""A small training loop whose parts can be spoilt, and the questions about its first updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from canary.record.exact import Asked, Exact
from canary.record.facts import Facts
from canary.training.asking.observer import Asking

PAD, EOS = 0, 2
VOCABULARY = 40
Answers = dict[str, Asked]


class Looked:
    """A look that begins here; `answers` ends it."""

    def __init__(self, trained: Any = None, *, again: bool = True) -> None:
        self._asking = Asking(trained or object(), again=again)
        self._asking.begin()
        self.facts: Facts = {}

    def answers(self, losses: Sequence[float] = ()) -> Answers:
        """Return what was found, by question; empty if nothing could be seen."""
        self._asking.end()
        exact: Exact = {"trajectory": {"losses": [*losses]}}
        self._asking.tell(self.facts, exact)
        return exact.get("asked", {})


def broken(found: Answers) -> set[str]:
    """Return what is broken."""
    return {name for name, one in found.items() if one["status"] == "broken"}


def llama(**changed: Any) -> Any:
    """A Llama of two layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    sizes["vocab_size"] = VOCABULARY
    config = LlamaConfig(
        num_attention_heads=4,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=1,
        **{**sizes, **changed},
    )
    return LlamaForCausalLM(config)


def gpt2() -> Any:
    """A GPT-2 of two layers: positions are absolute, and it has biases."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            bos_token_id=1,
            eos_token_id=EOS,
            pad_token_id=PAD,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def batch(
    seed: int, rows: int = 2, width: int = 10, side: str = "right"
) -> dict[str, torch.Tensor]:
    """Rows of tokens that end with EOS; the later ones are shorter and padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((rows, width), PAD)
    mask = torch.zeros(rows, width, dtype=torch.long)
    for row in range(rows):
        length = width - 3 * row - seed % 2
        text = torch.randint(3, VOCABULARY, (length,), generator=generator)
        text[-1] = EOS
        place = slice(0, length) if side == "right" else slice(width - length, width)
        ids[row, place], mask[row, place] = text, 1
    return {"input_ids": ids, "attention_mask": mask}


@dataclass
class Loop:
    """A loop of three updates with two micro-batches each."""

    model: Any
    optimizer: Any = None
    scheduler: bool = True
    side: str = "right"
    normalised: bool = True
    """Whether the loss is divided by the tokens of the whole update."""
    batches: Callable[[int], dict[str, torch.Tensor]] | None = None
    after_update: Callable[[int], None] = lambda update: None
    reference: nn.Module | None = None
    micro_batches: int = 2
    again: bool = True
    """Whether the model is called again."""

    def run(self) -> Answers:
        """Train, and return the answers by question."""
        self.model.train()
        optimizer = self.optimizer or torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
        looked = Looked(again=self.again)
        for update in range(3):
            made = self.batches or (lambda seed: batch(seed, side=self.side))
            micro = [made(2 * update + number) for number in range(self.micro_batches)]
            tokens = sum(int((one["attention_mask"][:, 1:]).sum()) for one in micro)
            for one in micro:
                if self.reference is not None:
                    with torch.no_grad():
                        self.reference(**one)
                self.loss(one, tokens).backward()
            optimizer.step()
            if self.scheduler:
                scheduler.step()
            optimizer.zero_grad()
            self.after_update(update)
        self.facts = looked.facts
        return looked.answers()

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Return the cross-entropy of a micro-batch."""
        known = {name: value for name, value in one.items() if name != "labels"}
        logits = self.model(**known).logits[:, :-1]
        labels = one["input_ids"][:, 1:].masked_fill(one["attention_mask"][:, 1:] == 0, -100)
        kind = "sum" if self.normalised else "mean"
        found = nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction=kind
        )
        return found / (tokens if self.normalised else self.micro_batches)
