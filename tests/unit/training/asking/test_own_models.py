"""Models that users wrote themselves are asked too, whatever their arguments are called."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.unit.training.asking.tiny import PAD, VOCABULARY, Answers, Looked, batch, llama

Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


class Own(nn.Module):
    """Causal, as it reads from left to right; its arguments have names of their own."""

    def __init__(
        self, *, keeps_random: bool = True, mixes: bool = False, both: bool = False
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(VOCABULARY, 24, padding_idx=PAD)
        self.drop = nn.Dropout(0.3)
        self.rnn = nn.GRU(24, 24 // (1 + both), batch_first=True, bidirectional=both)
        self.head = nn.Linear(24, VOCABULARY)
        self.keeps_random, self.mixes = keeps_random, mixes

    def forward(self, idx: torch.Tensor, attn_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Say the logits."""
        hidden = self.rnn(self.embed(idx))[0]
        if self.mixes:
            hidden = hidden - hidden.mean(0, keepdim=True)
        hidden = checkpoint(
            self.drop, hidden, use_reentrant=False, preserve_rng_state=self.keeps_random
        )
        found: torch.Tensor = self.head(hidden)
        return found


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean over labels that are no padding."""
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten().long(), ignore_index=PAD
    )


def shifted(by: int) -> Loss:
    """Return a loss towards the token at a distance."""

    def loss(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = said_by(model, ids, mask)
        return cross_entropy(logits[:, : logits.shape[1] - by], ids[:, by:])

    return loss


def said_by(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the logits of a model, of transformers or not."""
    found = model(ids, mask)
    return found if torch.is_tensor(found) else found.logits


def asked(model: nn.Module, loss: Loss, *, again: bool = True) -> Answers:
    """Train for two updates and return the outcomes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    looked = Looked(again=again)
    for update in range(2):
        made = batch(update)
        loss(model, made["input_ids"], made["attention_mask"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return looked.answers()


ABOUT_TOKENS = ("neighbour", "causality", "padding_side", "next_token")


def test_a_model_with_names_of_its_own_is_asked() -> None:
    found = asked(Own(), shifted(1))
    assert {name: found[name]["status"] for name in ABOUT_TOKENS} == dict.fromkeys(
        ABOUT_TOKENS, "holds"
    ), found
    mixed = asked(Own(mixes=True), shifted(1))
    assert mixed["neighbour"]["status"] == "broken"


NOT_BY_GENERATE = "the model has no `generate`"


@pytest.mark.parametrize(
    ("made", "by", "status", "words"),
    [
        (llama, 0, "broken", "labels are its own token"),
        (llama, 1, "holds", "labels are the next token"),
        (llama, 2, "broken", "labels are the token after the next"),
        (llama, 3, "not asked", "match no nearby token"),
        (Own, 0, "note", "labels are its own token"),
        # An autoencoder: nothing reads what it says as the next token.
        (functools.partial(Own, both=True), 0, "not asked", NOT_BY_GENERATE),
        # An extra head, or labels that are shifted twice.
        (Own, 2, "note", "labels are the token after the next"),
    ],
)
def test_the_place_of_the_labels_is_found(
    made: Callable[[], nn.Module], by: int, status: str, words: str
) -> None:
    found = asked(made(), shifted(by))["next_token"]
    assert found["status"] == status, found
    assert words in found["words"]
    assert asked(made(), shifted(by), again=False)["next_token"]["status"] != "note"


def masked(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mask all labels inside the loss."""
    return cross_entropy(said_by(model, ids, mask), torch.full_like(ids, PAD))


def masked_by_sum(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The same, without a division by the number of labels."""
    logits = said_by(model, ids, mask)
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.full_like(ids, -100).flatten(), reduction="sum"
    )


@pytest.mark.parametrize("loss", [masked, masked_by_sum])
@pytest.mark.parametrize("model", [Own, llama])
def test_labels_that_the_loss_itself_masks_are_broken(
    loss: Loss, model: Callable[[], nn.Module]
) -> None:
    found = asked(model(), loss)["next_token"]
    assert found["status"] == "broken", found
    assert "no token is trained on" in found["words"]


class Reward(nn.Module):
    """Scores each row at its last column, or where its text ends; a layer gets ids of its own."""

    def __init__(self, *, at_end: bool, refuses: bool = False) -> None:
        super().__init__()
        self.layers, self.at_end, self.refuses = llama().model, at_end, refuses
        self.score = nn.Linear(32, 1)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Say a score of each row."""
        if self.refuses and not self.training:
            raise IndexError("index out of range")
        hidden = self.layers(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        last = attention_mask.sum(1) - 1 if self.at_end else torch.full((len(hidden),), -1)
        found: torch.Tensor = self.score(hidden[torch.arange(len(hidden)), last])
        return found


def square(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return a loss of scores."""
    found: torch.Tensor = model(ids, mask).square().mean()
    return found


def test_a_score_that_is_read_at_padding_is_broken() -> None:
    names = ("padding_side", "neighbour")
    right, wrong = (asked(Reward(at_end=one), square) for one in (True, False))
    assert [right[name]["status"] for name in names] == ["holds"] * 2, right
    assert [wrong[name]["status"] for name in names] == ["broken", "holds"], wrong


def test_a_model_that_refuses_and_is_no_language_model_needs_no_answer() -> None:
    found = asked(Reward(at_end=True, refuses=True), square)["neighbour"]
    assert found["words"] == "only for language models"
