"""Facts of a loop that misuses its libraries: warnings, checkpoints that load nothing, losses that
pair each row with all targets, rows that end with the start of an answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, modeling_utils

from canary.record.facts import Facts
from canary.training.collectors.taps import LOADS, Loads
from canary.training.exact.operators import WorkCounter
from canary.training.facts.texts import new_tokens, open_turns
from canary.training.facts.watching import Warnings


def test_a_warning_of_a_library_is_kept_and_shown_where_it_would_be() -> None:
    watcher = Warnings()
    watcher.begin()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        nn.functional.mse_loss(torch.ones(3, 1), torch.ones(3))
        warnings.warn("of the user", stacklevel=1)
    watcher.end()
    facts: Facts = {}
    watcher.tell(facts, {})
    (one,) = facts["warned"]
    assert one["library"] == "torch"
    assert one["text"].startswith("Using a target size (torch.Size([3]))")
    assert {warning.filename for warning in shown} == {__file__}


def test_a_checkpoint_of_other_names_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "load_state_dict", nn.Module.load_state_dict)
    loads = Loads()
    loads.begin(torch)
    whole = nn.Sequential(nn.Linear(2, 2))
    part: Any = whole[0]
    whole.load_state_dict({"model.0.weight": torch.ones(2, 2)}, strict=False)
    assert [one["name"] for one in loads.failed()] == ["model.0.weight"]
    part.load_state_dict({"weight": torch.ones(2, 2), "other": torch.ones(1)}, strict=False)
    assert loads.failed() == []


def outer(rows: torch.Tensor, targets: torch.Tensor) -> Any:
    counter = WorkCounter(None)
    counter.begin()
    ((rows - targets) ** 2).mean().backward()
    return counter.end().get("outer_losses")


def test_a_loss_over_all_pairs_is_seen() -> None:
    values = torch.ones(4, 1, requires_grad=True)
    assert outer(values, torch.ones(4)) == [[[4, 1], [4]]]
    assert outer(values, torch.ones(4, 1)) == []
    assert outer(values, torch.ones(1)) == []
    assert outer(values, torch.ones(4, requires_grad=True)) == []


LOGITS = torch.arange(12.0).view(2, 2, 3)
CLASSES = torch.tensor([0, 1, 2, 0])
HALVES = torch.full((4, 3), 1 / 3)
F = nn.functional


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda x: F.cross_entropy(x, CLASSES), []),
        (lambda x: F.cross_entropy(x.softmax(-1), CLASSES), ["log_softmax, or cross_entropy, of"]),
        (lambda x: F.nll_loss(x.softmax(-1), CLASSES), ["nll_loss of"]),
        (lambda x: F.nll_loss(x.log_softmax(-1), CLASSES), []),
        (lambda x: F.nll_loss(x.softmax(-1).log(), CLASSES), []),
        (lambda x: F.kl_div(x.softmax(-1), HALVES, reduction="batchmean"), ["kl_div of"]),
        (lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1)), []),
        (lambda x: F.kl_div(x.detach().softmax(-1), HALVES) + x.mean(), []),
    ],
)
def test_probabilities_in_place_of_logits_are_seen(
    loss: Callable[[torch.Tensor], torch.Tensor], found: list[str]
) -> None:
    logits = LOGITS.clone().requires_grad_()
    counter = WorkCounter(None)
    counter.begin()
    loss(logits.view(-1, 3)).backward()
    seen = counter.end()["losses_of_probabilities"]
    assert seen == [f"{words} probabilities" for words in found]


def test_probabilities_are_known_through_a_view() -> None:
    counter = WorkCounter(None)
    counter.begin()
    probabilities = LOGITS.clone().requires_grad_().softmax(-1)
    F.cross_entropy(probabilities.view(-1, 3), CLASSES)
    assert counter.end()["losses_of_probabilities"]


class Rows(list[Any]):
    column_names = ("input_ids",)


class Tokenizer:
    """One id per word."""

    chat_template, eos_token, pad_token = "yes", "<end>", "<pad>"
    words = ("<user>", "a", "<assistant>", "b", "<end>")

    def apply_chat_template(self, chat: Any, *, tokenize: bool, add_generation_prompt: bool) -> str:
        return " ".join(self.words) + (" <assistant>" if add_generation_prompt else "")

    def decode(self, ids: Any) -> str:
        return " ".join(self.words[place] for place in ids)


def test_rows_that_end_with_the_start_of_an_answer_are_counted() -> None:
    rows = Rows([{"input_ids": [0, 1, 2, 3, 4, 2]}, {"input_ids": [0, 1, 2, 3, 4, 2, 4]}])
    assert open_turns(Tokenizer(), rows) == (2, 2)
    assert open_turns(Tokenizer(), Rows([{"input_ids": [0, 1, 2, 3, 4]}])) == (1, 0)
    assert open_turns(Tokenizer(), None) is None
    assert open_turns(SimpleNamespace(chat_template=None), rows) is None


@pytest.mark.parametrize("trains", [True, False])
def test_added_tokens_whose_embeddings_are_frozen_are_seen(
    monkeypatch: pytest.MonkeyPatch, trains: bool
) -> None:
    whole = PreTrainedModel.resize_token_embeddings
    monkeypatch.setattr(PreTrainedModel, "resize_token_embeddings", whole)
    LOADS.transformers_loaded(modeling_utils)
    config = GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1, n_positions=8)
    model = GPT2LMHeadModel(config)
    model.resize_token_embeddings(11)
    model.requires_grad_(trains)
    padded = {"input_ids": [1, 10], "attention_mask": [1, 0]}
    rows = Rows([{"input_ids": [1, 9]}, padded])
    expected = {"first": 9, "frozen": not trains, "rows": 2, "rows_with": 1}
    assert new_tokens(nn.ModuleList([model])[0], rows) == expected
    assert new_tokens(GPT2LMHeadModel(config), rows) is None


def test_a_model_whose_table_cannot_be_read_is_resized_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = PreTrainedModel.resize_token_embeddings
    monkeypatch.setattr(PreTrainedModel, "resize_token_embeddings", whole)
    LOADS.transformers_loaded(modeling_utils)
    config = GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1, n_positions=8)
    with torch.device("meta"):
        model = GPT2LMHeadModel(config)
    model.resize_token_embeddings(11, mean_resizing=False)
    assert len(model.get_input_embeddings().weight) == 11
    assert LOADS.resized(model) is None
