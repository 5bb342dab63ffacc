"""Switches that cannot be had, or are said twice, are refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.config.load import load_config
from canary.errors import ConfigError

GRPO = "training_type: grpo\n"
SFT = "training_type: sft\n"
FUSED = "speed: {optimizer: fused}\n"
FIXED = "speed: {lengths: fixed}\n"
BUCKETED = "speed: {lengths: bucketed}\n"
SHORTEST = "fixed_length: true\ntrainer_args: {generation_kwargs: {min_new_tokens: 3}}"
NO_CACHE = "speed: {kv_cache: false, decode: static}"
REFUSED = [
    (SFT + FUSED + "trainer_args: {optim: x}", "speed.optimizer", "optim set the same thing"),
    (GRPO + SHORTEST, "fixed_length", "set the same thing"),
    (GRPO + "fixed_length: true\ntrainer_args: {use_vllm: true}", "fixed_length", "not for vLLM"),
    ("training_type: ppo\n" + NO_CACHE, "speed.decode", "speed.kv_cache is false"),
    (SFT + "device: cpu\nspeed: {pin_memory: true}", "speed.pin_memory", "needs a GPU"),
    (SFT + "speed: {prefetch: 2}", "speed.prefetch", "needs data workers"),
    ("training_type: kto\n" + BUCKETED, "speed.lengths", "would change what kto learns"),
    (SFT + FIXED + "data_collator: 'own:collate'", "speed.lengths", "conflicts with data_collator"),
    (GRPO + FIXED, "speed.lengths", "not used by"),
    ("attn_implementation: flash_atention_2", "attn_implementation", "attn_implementation"),
]


@pytest.mark.parametrize(("text", "key", "message"), REFUSED)
def test_a_switch_that_cannot_be_had_is_refused_with_its_key(
    tmp_path: Path, text: str, key: str, message: str
) -> None:
    path = tmp_path / "canary.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as refused:
        load_config(path)
    assert refused.value.key == key
    assert refused.value.hint or key == "attn_implementation"
