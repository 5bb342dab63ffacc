"""The LoRA adapter of a canary."""

from __future__ import annotations

from peft import LoraConfig

from canary.protocol.spec import WorkloadSpec


def lora_config(spec: WorkloadSpec) -> LoraConfig | None:
    """Return LoRA over every linear layer but the output head, or None if `use_peft` is off.

    The head of a reward model is new, so it is trained in full.
    """
    config = spec.config
    if not config.use_peft:
        return None
    assert config.lora_r is not None  # the config's defaults are filled in before a launch
    assert config.lora_alpha is not None
    assert config.lora_dropout is not None
    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
        bias="none",
        task_type="SEQ_CLS" if config.trainer.classifies else "CAUSAL_LM",
    )
