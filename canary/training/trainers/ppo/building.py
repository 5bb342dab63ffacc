"""From a config to a PPO trainer: policy, value head, reference, scorer, data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig, PreTrainedTokenizerBase, TrainingArguments, set_seed

from canary.config.ppo import PPOConfig
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError, InputError
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.lora import lora_config
from canary.training.models.model import load_model, load_tokenizer, reference_of
from canary.training.plugins import callbacks
from canary.training.trainers.arguments import training_arguments, uses_cuda
from canary.training.trainers.ppo.adaptive_kl import MOST
from canary.training.trainers.ppo.model import ActorCritic
from canary.training.trainers.ppo.modes import without_dropout
from canary.training.trainers.ppo.rollout import prompt_ids
from canary.training.trainers.ppo.scoring import build_scorer
from canary.training.trainers.ppo.trainer import PPOTrainer
from canary.training.trainers.speed import cache, compilation


@dataclass
class PPOArguments(TrainingArguments):
    """See `canary.config.ppo` for what each means."""

    max_new_tokens: int = 32
    temperature: float = 1.0
    fixed_length: bool = False
    gamma: float = 1.0
    lam: float = 0.95
    cliprange: float = 0.2
    cliprange_value: float = 0.2
    vf_coef: float = 0.1
    ent_coef: float = 0.0
    init_kl_coef: float = 0.05
    kl_estimator: str = "k1"
    adap_kl_ctrl: bool = False
    target: float = 6.0
    horizon: int = 10_000
    target_kl: float | None = None
    ppo_epochs: int = 4
    num_mini_batches: int = 1
    whiten_rewards: bool = False
    missing_eos_penalty: float | None = None

    @property
    def mini_batch(self) -> int:
        """Completions of one update, on one rank."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    @property
    def rollout_size(self) -> int:
        """Completions of one step, on one rank."""
        return self.mini_batch * self.num_mini_batches


ARGUMENTS_OF_PPO = tuple(name for name in PPOConfig.model_fields if name != "reward_model")
"""Keys of the `ppo` section that are arguments of the trainer."""


ELSEWHERE = (
    "neftune_noise_alpha",
    "label_smoothing_factor",
    "auto_find_batch_size",
    "torch_empty_cache_steps",
    "eval_on_start",
    "load_best_model_at_end",
)
"""Arguments of transformers that its own training loop reads, and PPO's does not."""


def build_ppo(spec: WorkloadSpec) -> PPOTrainer:
    """A PPOTrainer, not yet started."""
    config = spec.config
    assert config.ppo is not None
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    settings = {name: getattr(config.ppo, name) for name in ARGUMENTS_OF_PPO}
    arguments = training_arguments(
        spec,
        PPOArguments,
        **settings,
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        fixed_length=config.fixed_length,
        remove_unused_columns=False,
        dataloader_drop_last=True,
    )
    spec.notes.extend(
        f"trainer_args.{name} is not used: PPO's loop is its own"
        for name in ELSEWHERE
        if config.trainer_args.get(name)
    )
    _require_a_horizon(spec, arguments)
    _require_prompts(spec, rows, tokenizer)
    policy = load_model(spec, tokenizer)
    policy.generation_config = _nothing_cut_off(policy.generation_config)
    reference = reference_of(spec, policy)
    adapt.checkpoint_activations(policy, arguments)
    trainer = PPOTrainer(
        model=_actor_critic(spec, policy),
        reference=reference,
        scorer=build_scorer(spec, rows, tokenizer, arguments.device),
        args=arguments,
        switches=switches_of(config, _widest(spec, rows, tokenizer)),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
    )
    _require_whole_models(trainer)
    return trainer


def _require_whole_models(trainer: Any) -> None:
    """ConfigError where a rank would hold a part of the policy that it samples from."""
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ConfigError(
            "PPO samples from a policy that is whole on every rank, and this one is shared out",
            "train with DDP (nproc), or on one device",
            key="training_type",
        )


def _require_a_horizon(spec: WorkloadSpec, arguments: PPOArguments) -> None:
    """ConfigError where one adaptation could take all of the KL's weight, or turn its sign."""
    completions = arguments.rollout_size * spec.ranks
    least = math.floor(MOST * completions) + 1
    if arguments.adap_kl_ctrl and arguments.horizon < least:
        raise ConfigError(
            f"ppo.horizon {arguments.horizon} is too short for rollouts of {completions} "
            "completions: the weight of the KL would turn negative",
            f"{least} at least; 10000 is usual",
            key="ppo.horizon",
        )


def _require_prompts(spec: WorkloadSpec, rows: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """InputError naming a row whose prompt has no token: nothing says what comes first then."""
    for number, prompt in enumerate(rows["prompt"], start=1):
        if prompt == "" and not prompt_ids({"prompt": prompt}, tokenizer):
            raise InputError(
                f"dataset '{spec.config.dataset_name}': 'prompt' of usable row {number} is empty",
                "leave the row out",
            )


def _nothing_cut_off(own: GenerationConfig) -> GenerationConfig:
    """A model's own settings may shift what is sampled (top_k, repetition_penalty ...), and
    `generate` takes each that is not said otherwise: then the log-probabilities that PPO learns by
    would not be those that it sampled by."""
    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
    return GenerationConfig(**{name: getattr(own, name) for name in tokens})


def _actor_critic(spec: WorkloadSpec, policy: Any) -> ActorCritic:
    """The policy with its adapter, where it has one, and a value head. Dropout is off: what is
    sampled and what is trained are one policy."""
    adapter = lora_config(spec)
    if adapter is not None:
        from peft import get_peft_model

        set_seed(spec.config.seed)
        policy = get_peft_model(policy, adapter)
    without_dropout(policy)
    if spec.config.lora_dropout:
        spec.notes.append("lora_dropout is not used: PPO trains the policy that it samples from")
    set_seed(spec.config.seed)
    return ActorCritic(policy)


def _widest(spec: WorkloadSpec, rows: Any, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Tokens of the longest prompt there is; None where nothing has its size."""
    speed = spec.config.speed
    if speed.lengths != "fixed" and not has_fixed_cache(spec.config):
        return None
    return max(len(prompt_ids(row, tokenizer)) for row in rows)


@dataclass(frozen=True)
class Switches:
    """How the work is done. What is learned stays the same but for rounding."""

    advantages_by_loop: bool = False
    whole_logprobs: bool = False
    shared_forward: bool = True
    bucketed: bool = False
    fixed_width: bool = False
    """Pad prompts and completions to the longest there can be."""
    prompt_width: int | None = None
    """Tokens that prompts are padded to, with `fixed_width`."""
    rows_at_once: int | None = None
    """Prompts that are sampled together; None: all of a rollout."""
    generation: tuple[tuple[str, Any], ...] = ()
    """Arguments of `generate`: the cache."""


def switches_of(config: CanaryConfig, prompt_width: int | None) -> Switches:
    """The switches as set, or where they are not, as they are fastest without a risk.

    `prompt_width`: tokens of the longest prompt, where something has its size.
    """
    speed = config.speed
    return Switches(
        advantages_by_loop=speed.advantages == "loop",
        whole_logprobs=speed.logprobs == "whole",
        shared_forward=speed.shared_forward is not False,
        bucketed=speed.lengths == "bucketed",
        fixed_width=speed.lengths == "fixed",
        prompt_width=prompt_width if speed.lengths == "fixed" else None,
        rows_at_once=config.batch_size if speed.rollout_batch == "micro" else None,
        generation=generation_options(config, prompt_width),
    )


def has_fixed_cache(config: CanaryConfig) -> bool:
    """Whether tokens are decoded with a cache of fixed size."""
    return config.speed.decode in ("static", "compiled")


def generation_options(
    config: CanaryConfig, prompt_width: int | None
) -> tuple[tuple[str, Any], ...]:
    """Arguments of `generate` for the cache, and for compiled decoding.

    A cache of fixed size has room for the longest prompt from the first rollout on: it would grow
    with each longer one, and what is compiled for its size be compiled again. Older
    transformers cannot be told, and grow it.
    """
    settings = {"use_cache": True, **cache(config), **compilation(config, uses_cuda(config))}
    if has_fixed_cache(config) and hasattr(GenerationConfig(), "max_cache_len"):
        assert prompt_width is not None
        assert config.max_new_tokens is not None
        settings["max_cache_len"] = prompt_width + config.max_new_tokens
    return tuple(settings.items())
