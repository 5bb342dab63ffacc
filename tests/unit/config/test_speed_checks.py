"""Switches that cannot be had, or are said twice, are refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from canary.config.load import load_config
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError


def loaded(folder: Path, values: dict[str, Any]) -> CanaryConfig:
    path = folder / "canary.yaml"
    path.write_text(yaml.safe_dump(values))
    return load_config(path).config


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        (
            {
                "training_type": "sft",
                "speed": {"optimizer": "fused"},
                "trainer_args": {"optim": "x"},
            },
            "speed.optimizer",
            "trainer_args.optim set the same thing",
        ),
        (
            {
                "training_type": "grpo",
                "fixed_length": True,
                "trainer_args": {"generation_kwargs": {"min_new_tokens": 3}},
            },
            "fixed_length",
            "set the same thing",
        ),
        (
            {"training_type": "grpo", "fixed_length": True, "trainer_args": {"use_vllm": True}},
            "fixed_length",
            "not for vLLM",
        ),
        (
            {"training_type": "ppo", "speed": {"kv_cache": False, "decode": "static"}},
            "speed.decode",
            "speed.kv_cache is false",
        ),
        (
            {"training_type": "sft", "device": "cpu", "speed": {"pin_memory": True}},
            "speed.pin_memory",
            "needs a GPU",
        ),
        (
            {"training_type": "sft", "speed": {"prefetch": 2}},
            "speed.prefetch",
            "needs data workers",
        ),
        (
            {"training_type": "kto", "speed": {"lengths": "bucketed"}},
            "speed.lengths",
            "would change what kto learns",
        ),
        (
            {
                "training_type": "sft",
                "speed": {"lengths": "fixed"},
                "data_collator": "own:collate",
            },
            "speed.lengths",
            "conflicts with data_collator",
        ),
        ({"training_type": "grpo", "speed": {"lengths": "fixed"}}, "speed.lengths", "not used by"),
        (
            {
                "training_type": "custom",
                "trainer_factory": "own:build",
                "speed": {"optimizer": "fused"},
            },
            "speed.optimizer",
            "not used by training_type custom",
        ),
    ],
)
def test_a_switch_that_cannot_be_had_is_refused_with_its_key(
    tmp_path: Path, values: dict[str, Any], key: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        loaded(tmp_path, values)
    assert refused.value.key == key
    assert refused.value.hint


def test_a_misspelt_attention_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="attn_implementation"):
        loaded(tmp_path, {"attn_implementation": "flash_atention_2"})
