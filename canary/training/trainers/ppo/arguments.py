"""The arguments of the PPO trainer: those of transformers, and PPO's by the field's names."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import TrainingArguments

from canary.config.ppo import PPOConfig


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
