"""Odd models, batches and losses of a user do not end the training, and change nothing in it."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.training.asking.tiny import Looked, Loop, llama


class Unwilling:
    """A config that cannot be read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("it is not loaded")


class Unready(nn.Module):
    """A model of one's own whose config cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = llama()
        self.config = Unwilling()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


def test_what_goes_wrong_beside_a_training_does_not_reach_it() -> None:
    loop = Loop(Unready())
    assert loop.run() == {}
    why = "the training cannot be looked at: RuntimeError: it is not loaded"
    assert loop.facts["unseen"] == {"first updates": why}


def test_a_compiled_model_is_left_alone() -> None:
    model = torch.compile(llama(), backend="eager")
    looked = Looked()
    assert not looked.answers()
    assert "torch.compile" in looked.facts["unseen"]["first updates"]
    del model


class Late(Exception):
    """What a time limit of the user's raises."""


class Slow(nn.Module):
    """A model that exceeds a time limit when it is called again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = llama()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        if not torch.is_grad_enabled():
            signal.raise_signal(signal.SIGUSR2)
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


def test_a_time_limit_that_strikes_in_a_question_reaches_the_training() -> None:
    def ring(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGUSR2, ring)
    try:
        with pytest.raises(Late):
            Loop(Slow()).run()
    finally:
        signal.signal(signal.SIGUSR2, before)
