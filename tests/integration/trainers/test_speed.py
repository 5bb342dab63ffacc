"""Settings that change the speed of a training and not what it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canary.errors import ConfigError
from canary.training.models.model import load_model, load_tokenizer
from canary.training.trainers import build_trainer
from tests.integration.trainers.test_workload import make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]


def trained(folder: Path, training_type: str, **changes: Any) -> list[float]:
    """Loss and gradient norm of each step."""
    spec = make_spec(folder, training_type, **{"dataset_size": 32, **changes})
    spec.scratch_dir.mkdir(parents=True)
    trainer = build_trainer(spec)
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [step[name] for step in steps for name in ("loss", "grad_norm")]


@pytest.mark.parametrize("training_type", ["sft", "dpo", "grpo"])
def test_equal_products_of_micro_batches_are_equal_updates(
    tmp_path: Path, training_type: str
) -> None:
    """Not KTO, ORPO and CPO: their losses have terms of a micro-batch."""
    extra = {"fixed_length": True} if training_type == "grpo" else {}
    whole, parts = (
        trained(
            tmp_path / f"{size}x{times}",
            training_type,
            batch_size=size,
            gradient_accumulation_steps=times,
            **extra,
        )
        for size, times in ((8, 1), (2, 4))
    )
    assert parts == pytest.approx(whole, rel=2e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        ("kernels-community/flash-attn2", "pip install kernels"),
        ("flash_attention_2", "pip install flash-attn"),
    ],
)
def test_an_attention_kernel_that_cannot_be_had_says_what_to_install(
    tmp_path: Path, kernel: str, hint: str
) -> None:
    spec = make_spec(tmp_path, "sft", attn_implementation=kernel)
    with pytest.raises(
        ConfigError, match=f"attn_implementation {kernel} cannot be used"
    ) as refused:
        load_model(spec, load_tokenizer(spec))
    assert hint in str(refused.value.hint)
