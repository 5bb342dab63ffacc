"""Settings that differ between two runs, and the mechanism that each one acts on. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canary.compare.commands import setting_name
from canary.compare.diagnosis.suspects import Evidence, EvidenceKind, simple
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.changes import made_by_command, shown
from canary.compare.report import KeyChange
from canary.config.sections import as_number
from canary.record.types import RunRecord

IGNORED = (
    *("transformers_version", "max_steps", "_from_model_config", "run_name"),
    *("logging_steps", "logging_first_step"),
)
"""Settings that follow from others or do not affect what is trained."""


@dataclass(frozen=True)
class SettingChange:
    """One setting on both sides."""

    key: str
    baseline: Any
    current: Any
    category: C | None
    """The mechanism that it controls."""
    in_config: bool
    """Whether the config changed; otherwise code or a package's default changed the setting."""

    @property
    def name(self) -> str:
        """Return the key without its section; for a command's option the trainer's name of it."""
        return setting_name(self.key) if self.in_config else self.key.rpartition(".")[2]

    def sentence(self) -> str:
        """Return the change in words."""
        if self.in_config:
            return f"{self.key} {shown(self.baseline)} -> {shown(self.current)}"
        sides = (self.baseline, self.current)
        was, now = ("its default" if value is None else str(value) for value in sides)
        return f"{self.key} {was} -> {now}"

    def evidence(self) -> Evidence:
        """Return the change as evidence."""
        aside = "" if self.in_config else ", set by code or by a default"
        words = f"{self.sentence()}{aside}"
        kind: EvidenceKind = "config" if self.in_config else "code"
        return Evidence(kind, words, simple(self.baseline), simple(self.current))


def setting_changes(
    config: Sequence[KeyChange], before: RunRecord, now: RunRecord
) -> tuple[SettingChange, ...]:
    """Return changed config keys first, then other changed settings of the training, once each."""
    made = made_by_command(before, now, config)
    found = [
        SettingChange(
            key=change.key,
            baseline=change.baseline,
            current=change.current,
            category=category_of(change.key) or category_of(setting_name(change.key)),
            in_config=change.key not in made,
        )
        for change in config
        if not change.cosmetic
    ]
    names = {change.name for change in found}
    listed = {(change.category, repr(as_number(change.current))) for change in found}
    values = {_values(change.baseline, change.current) for change in found}
    sides = (record.exact.get("evidence", {}).get("settings", {}) for record in (before, now))
    was, active = _of_shared_sections(*sides)
    for key in dict.fromkeys((*active, *was)):
        change = SettingChange(key, was.get(key), active.get(key), category_of(key), False)
        if change.baseline == change.current or change.name in {*IGNORED, *names}:
            continue
        if _values(change.baseline, change.current) in values:
            continue  # the same change under the trainer's name
        if change.current is not None and (change.category, repr(change.current)) in listed:
            continue
        names.add(change.name)
        found.append(change)
    return tuple(found)


def _values(was: Any, now: Any) -> str:
    """Return both values in one form, so that `1e-4` and `"1e-4"` are the same."""
    return repr((as_number(was), as_number(now)))


def _of_shared_sections(*sides: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the settings of sections that both sides have.

    Another kind of collator has other attributes; its code already shows that it changed.
    """
    both = set.intersection(*({key.partition(".")[0] for key in side} for side in sides))
    return [{k: v for k, v in side.items() if k.partition(".")[0] in both} for side in sides]


BY_NAME: dict[C, str] = {
    C.OPTIMIZER: (
        r"learning_rate|lr_.*|warmup.*|weight_decay|adam_.*|optim|optim_args|max_grad_norm|betas"
        r"|eps|amsgrad|decoupled_weight_decay|initial_lr|momentum"
        r"|(learning_rate|weight_decay|optim|momentum|eps|betas|amsgrad)_\d|num_train_epochs"
        r"|max_steps"
    ),
    C.OBJECTIVE: (
        r"beta|loss_type|loss_weights|label_smoothing.*|epsilon.*|delta|scale_rewards"
        r"|importance_sampling_level|desirable_weight|undesirable_weight|cpo_alpha|simpo_gamma"
        r"|alpha|rpo_alpha|entropy_coef|top_entropy_quantile|use_weighting|reference_free"
        r"|f_divergence_type|center_rewards_coefficient|model_accepts_loss_kwargs"
        r"|average_tokens_across_devices|neftune_noise_alpha|normalize_advantages|reward_weights"
        r"|reward_clip_range|mask_truncated_completions|kl_coef|init_kl_coef|target_kl"
        r"|cliprange.*|vf_coef|gamma|lam|whiten_rewards|(?!lora_).*dropout.*|.*_pdrop|ent_coef"
        r"|ppo_epochs|num_ppo_epochs|kl_estimator|adap_kl_ctrl|target|horizon"
    ),
    C.DATA: (
        r"dataset.*|max_length|max_seq_length|max_prompt_length|truncation.*|packing.*"
        r"|completion_only_loss|assistant_only_loss|seed|data_seed|shuffle.*"
        r"|train_sampling_strategy|group_by_length|batch_size|per_device_train_batch_size"
        r"|gradient_accumulation_steps|num_mini_batches|padding_free|pad_to_multiple_of"
        r"|padding_side|ignore_index|data_collator|formatting_func|dataloader_drop_last"
    ),
    C.TOKENIZATION: (
        r"chat_template.*|tokenizer.*|eos_token.*|bos_token.*|pad_token.*|add_special_tokens"
        r"|vocab.*"
    ),
    C.ADAPTER: (
        r"use_peft|lora_.*|peft.*|r|target_modules|modules_to_save|use_rslora|use_dora"
        r"|init_lora_weights|bias|fan_in_fan_out|ref_model.*|sync_ref_model|freeze.*"
        r"|requires_grad.*|model_name|model_revision|model_name_or_path|tie_word_embeddings"
    ),
    C.NUMERICS: (
        r"bf16.*|fp16.*|tf32|dtype|torch_dtype|load_in_.*|quantization.*|bnb_.*"
        r"|half_precision_backend|cast_lm_head_to_fp32|default_dtype|matmul_precision"
    ),
    C.ROLLOUT: (
        r"temperature|top_p|top_k|min_p|repetition_penalty|do_sample|max_new_tokens"
        r"|max_completion_length|num_generations|steps_per_generation|generation.*|use_cache"
        r"|kv_cache|decode|rollout_batch|fixed_length|cache_implementation|use_vllm|vllm_.*"
        r"|num_iterations|reward_funcs|reward_func_names|reward_model.*|missing_eos_penalty"
        r"|stop_.*|no_repeat_ngram_size|length_penalty|use_transformers_.*"
        r"|use_liger_kernel_rollout"
    ),
    C.KERNEL: (
        r"gradient_checkpointing.*|activation_.*|attn_implementation|torch_compile.*|use_liger.*"
        r"|flash_sdp|mem_efficient_sdp|cudnn_benchmark|foreach|fused|capturable|anomaly_mode"
        r"|detect_anomaly"
    ),
    C.DATALOADER: (
        r"dataloader_(?!drop_last).*|num_workers|pin_memory|prefetch.*|persistent_workers"
    ),
    C.IO: r"save_.*|logging_.*|log_completions|report_to|eval_.*|push_to_hub",
    C.COMMUNICATION: r"ddp_.*|nproc|world_size|fsdp.*|deepspeed.*|backend",
    C.ENVIRONMENT: r"threads|device|cpu_affinity",
    C.MEMORY: r"torch_empty_cache_steps|auto_find_batch_size|offload.*|max_memory",
}
"""Names are matched whole, without the section before the last dot."""

BY_SECTION = {
    "optimizer": C.OPTIMIZER,
    "scheduler": C.OPTIMIZER,
    "peft": C.ADAPTER,
    "generation": C.ROLLOUT,
    "python": C.HOST,
}
"""Sections whose settings are all of one kind."""
ELSE_BY_SECTION = {
    "collator": C.DATA,
    "sampling": C.ROLLOUT,
    "speed": C.KERNEL,
    "switches": C.KERNEL,
}
"""Sections that decide if the name does not."""

_PATTERNS = [(re.compile(names), category) for category, names in BY_NAME.items()]


def category_of(key: str) -> C | None:
    """Return the mechanism of a setting; None if its name does not show it."""
    section, _, name = key.rpartition(".")
    root = re.sub(r"\d+$", "", section.partition(".")[0])
    if root in BY_SECTION:
        return BY_SECTION[root]
    named = (category for pattern, category in _PATTERNS if pattern.fullmatch(name))
    return next(named, ELSE_BY_SECTION.get(root))
