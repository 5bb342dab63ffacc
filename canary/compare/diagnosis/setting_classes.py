"""Map names of common settings to mechanisms, from the documentation of the arguments."""

from __future__ import annotations

import re

from canary.compare.diagnosis.suspects import RegressionCategory as C

BY_NAME: dict[C, tuple[str, ...]] = {
    C.OPTIMIZER: (
        "learning_rate",
        "lr_.*",
        "warmup.*",
        "weight_decay",
        "adam_.*",
        "optim",
        "optim_args",
        "max_grad_norm",
        "betas",
        "eps",
        "amsgrad",
        "decoupled_weight_decay",
        "initial_lr",
        "momentum",
        "num_train_epochs|max_steps",  # they change only the learning-rate schedule
    ),
    C.OBJECTIVE: (
        "beta",
        "loss_type",
        "loss_weights",
        "label_smoothing.*",
        "epsilon.*",
        "delta",
        "scale_rewards",
        "importance_sampling_level",
        "desirable_weight",
        "undesirable_weight",
        "cpo_alpha",
        "simpo_gamma",
        "alpha",
        "rpo_alpha",
        "entropy_coef",
        "top_entropy_quantile",
        "use_weighting",
        "reference_free",
        "f_divergence_type",
        "center_rewards_coefficient",
        "model_accepts_loss_kwargs",
        "average_tokens_across_devices",
        "neftune_noise_alpha",
        "normalize_advantages",
        "reward_weights",
        "reward_clip_range",
        "mask_truncated_completions",
        "kl_coef|init_kl_coef|target_kl|cliprange.*|vf_coef|gamma|lam|whiten_rewards",
        "(?!lora_).*dropout.*|.*_pdrop",
        "ent_coef|ppo_epochs|num_ppo_epochs|kl_estimator|adap_kl_ctrl|target|horizon",
    ),
    C.DATA: (
        "dataset.*",
        "max_length",
        "max_seq_length",
        "max_prompt_length",
        "truncation.*",
        "packing.*",
        "completion_only_loss",
        "assistant_only_loss",
        "seed",
        "data_seed",
        "shuffle.*",
        "train_sampling_strategy",
        "group_by_length",
        "batch_size",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "num_mini_batches",
        "padding_free",
        "pad_to_multiple_of",
        "padding_side",
        "ignore_index",
        "data_collator",
        "formatting_func",
        "dataloader_drop_last",
    ),
    C.TOKENIZATION: (
        "chat_template.*",
        "tokenizer.*",
        "eos_token.*",
        "bos_token.*",
        "pad_token.*",
        "add_special_tokens",
        "vocab.*",
    ),
    C.ADAPTER: (
        "use_peft",
        "lora_.*",
        "peft.*",
        "r",
        "target_modules",
        "modules_to_save",
        "use_rslora",
        "use_dora",
        "init_lora_weights",
        "bias",
        "fan_in_fan_out",
        "ref_model.*",
        "sync_ref_model",
        "freeze.*",
        "requires_grad.*",
        "model_name",
        "model_revision",
        "model_name_or_path",
        "tie_word_embeddings",
    ),
    C.NUMERICS: (
        "bf16.*",
        "fp16.*",
        "tf32",
        "dtype",
        "torch_dtype",
        "load_in_.*",
        "quantization.*",
        "bnb_.*",
        "half_precision_backend",
        "cast_lm_head_to_fp32",
        "default_dtype",
        "matmul_precision",
    ),
    C.ROLLOUT: (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "do_sample",
        "max_new_tokens",
        "max_completion_length",
        "num_generations",
        "steps_per_generation",
        "generation.*",
        "use_cache|kv_cache|decode|rollout_batch",
        "fixed_length",
        "cache_implementation",
        "use_vllm|vllm_.*",
        "num_iterations",
        "reward_funcs",
        "reward_func_names",
        "reward_model.*",
        "missing_eos_penalty",
        "stop_.*",
        "no_repeat_ngram_size",
        "length_penalty",
        "use_transformers_.*|use_liger_kernel_rollout",
    ),
    C.KERNEL: (
        "gradient_checkpointing.*",
        "activation_.*",
        "attn_implementation",
        "torch_compile.*",
        "use_liger.*",
        "flash_sdp",
        "mem_efficient_sdp",
        "cudnn_benchmark",
        "foreach|fused|capturable",
        "anomaly_mode",
        "detect_anomaly",
    ),
    C.DATALOADER: (
        "dataloader_(?!drop_last).*",
        "num_workers",
        "pin_memory",
        "prefetch.*",
        "persistent_workers",
    ),
    C.IO: ("save_.*", "logging_.*", "log_completions", "report_to", "eval_.*", "push_to_hub"),
    C.COMMUNICATION: ("ddp_.*", "nproc", "world_size", "fsdp.*", "deepspeed.*", "backend"),
    C.ENVIRONMENT: ("threads", "device", "cpu_affinity"),
    C.MEMORY: ("torch_empty_cache_steps", "auto_find_batch_size", "offload.*", "max_memory"),
}
"""Names are matched whole, without the section before the last dot."""

BY_SECTION: tuple[tuple[str, C], ...] = (
    ("optimizer", C.OPTIMIZER),
    ("scheduler", C.OPTIMIZER),
    ("peft", C.ADAPTER),
    ("generation", C.ROLLOUT),
    ("collator", C.DATA),
    ("python", C.HOST),
    ("sampling", C.ROLLOUT),
    ("speed", C.KERNEL),
    ("switches", C.KERNEL),
)
"""By the section, if the name alone does not decide."""

_PATTERNS = [
    (re.compile("|".join(f"(?:{name})" for name in names)), category)
    for category, names in BY_NAME.items()
]


def category_of(key: str) -> C | None:
    """Return the mechanism of a setting; None if its name does not show it."""
    section, _, name = key.rpartition(".")
    root = re.sub(r"\d+$", "", section.partition(".")[0])
    known = dict(BY_SECTION)
    if root in ("peft", "optimizer", "scheduler", "generation", "python"):
        return known[root]
    for pattern, category in _PATTERNS:
        if pattern.fullmatch(name):
            return category
    return known.get(root)
