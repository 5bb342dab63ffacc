"""In loops without columns of a dataset, both answers of a prompt must be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from canary.relations.relation import Outcome
from tests.unit.training.relations.chats import scoring_model
from tests.unit.training.relations.tiny import EOS, PAD, VOCABULARY, Loop, llama

Split = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def halves(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    one, other = values.chunk(2)
    return one, other


def alternating(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return values[::2], values[1::2]


def pairs(seed: int, prompts: int = 4, answers: int = 2) -> dict[str, torch.Tensor]:
    """Prompts of equal length with their answers, one prompt after the other."""
    generator = torch.Generator().manual_seed(seed)
    rows = prompts * answers
    ids = torch.randint(3, VOCABULARY, (rows, 16), generator=generator)
    ids[:, :2] = 3  # A mark that all rows begin with.
    ids[:, :9] = ids[::answers, :9].repeat_interleave(answers, 0)
    for row in range(rows):
        ids[row, 15 - row % 3] = EOS
        ids[row, 16 - row % 3 :] = PAD
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


class Comparing(Loop):
    """A loss of pairs, of scores or of log-probabilities."""

    split: Split = staticmethod(alternating)
    pairwise = True

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        logits = self.model(**one).logits
        said = logits.flatten()
        if logits.dim() == 3:
            ids = one["input_ids"][:, 1:].unsqueeze(-1)
            each = logits[:, :-1].log_softmax(-1).gather(-1, ids).squeeze(-1)
            answers = one["attention_mask"][:, 1:].clone()
            answers[:, :8] = 0
            said = (each * answers).sum(1)
            said = said - said.detach()  # The reference, which equals the policy at first.
        if not self.pairwise:
            wanted = torch.tensor([1.0, 1.0, 0.0, 0.0]).repeat(len(said) // 4)
            return nn.functional.binary_cross_entropy_with_logits(said, wanted)
        chosen, rejected = self.split(said)
        return -nn.functional.logsigmoid(chosen - rejected).mean()


def asked(model: Any, split: Split = alternating, **changed: Any) -> Outcome:
    pairwise = changed.pop("pairwise", True)
    loop = Comparing(model, wanted=("swap",), batches=changed.pop("batches", pairs), **changed)
    loop.split, loop.pairwise = split, pairwise  # type: ignore[method-assign]
    return loop.run()["swap"]


def test_pairs_of_one_prompt_hold() -> None:
    found = asked(llama())
    assert found["status"] == "holds", found
    assert found["message"] == "the loss compares the two answers of each of 8 prompts"


def test_halves_of_alternating_rows_are_broken() -> None:
    found = asked(scoring_model(), halves)
    assert found["status"] == "broken", found
    assert "share their prompt, and the loss raises both" in found["message"]


def test_rejected_answers_of_other_prompts_are_broken() -> None:
    def shifted(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return values[::2], values[1::2].roll(1)

    found = asked(scoring_model(), shifted)
    assert found["status"] == "broken", found
    assert "compares each with the answer of another prompt" in found["message"]


def test_a_loss_of_single_rows_is_not_asked() -> None:
    """Both answers of a prompt are good, or both are bad, as KTO may have them."""
    found = asked(scoring_model(), pairwise=False)
    assert found["status"] == "not applicable", found
