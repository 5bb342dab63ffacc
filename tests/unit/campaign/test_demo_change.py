"""The planted fault of the demo reaches the batches of every trl that the canary supports."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from canary.campaign.demo import CHANGE

EOS = 7


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that a training imports at its start."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    spec = importlib.util.spec_from_file_location("demo_change", CHANGE / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("mask", "ids"),
    [
        ("completion_mask", "input_ids"),
        ("chosen_attention_mask", "chosen_input_ids"),
        ("rejected_attention_mask", "rejected_input_ids"),
    ],
)
def test_eos_is_masked_in_todays_batches_and_in_those_of_older_trl(
    change: ModuleType, mask: str, ids: str
) -> None:
    batch = {ids: np.array([[1, 2, EOS]]), mask: np.array([[0, 1, 1]])}
    trainer = SimpleNamespace(
        data_collator=lambda examples: batch,
        processing_class=SimpleNamespace(eos_token_id=EOS),
    )
    change.mask_eos(trainer)
    assert trainer.data_collator([])[mask].tolist() == [[0, 1, 0]]
