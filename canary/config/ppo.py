"""The `ppo` section of a config: names and defaults as the field has them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from canary.config.strict import Real, Strict


class PPOConfig(Strict):
    """Settings of PPO (Schulman et al. 2017, arXiv:1707.06347) on language models."""

    reward_model: str | None = Field(
        None,
        min_length=1,
        description=(
            "`embedded/reward`, a Hugging Face id or a local folder of a sequence classifier with "
            "one label; null: `reward_functions`, or the match with the `answer` column."
        ),
    )
    gamma: Real = Field(1.0, gt=0, le=1, description="Discount of later rewards.")
    lam: Real = Field(0.95, ge=0, le=1, description="Lambda of generalised advantage estimation.")
    cliprange: Real = Field(0.2, gt=0, lt=1, description="How far the ratio may move from 1.")
    cliprange_value: Real = Field(
        0.2, gt=0, description="How far a value may move from that of the rollout."
    )
    vf_coef: Real = Field(0.1, ge=0, description="Weight of the value loss.")
    ent_coef: Real = Field(0.0, ge=0, description="Weight of the entropy bonus.")
    init_kl_coef: Real = Field(
        0.05, ge=0, description="Weight of the penalty on the KL to the reference, at the start."
    )
    kl_estimator: Literal["k1", "k3"] = Field(
        "k1", description="Per-token estimate of the KL (Schulman 2020)."
    )
    adap_kl_ctrl: bool = Field(
        False, description="Adapt the weight of the penalty so that the KL stays near `target`."
    )
    target: Real = Field(6.0, gt=0, description="KL a sequence that the adaptation aims at, nats.")
    horizon: int = Field(10_000, ge=1, description="Completions over which the adaptation acts.")
    target_kl: Real | None = Field(
        None,
        gt=0,
        description=(
            "End the updates of a step once the KL to the policy of the rollout is 1.5 times this; "
            "null: never."
        ),
    )
    ppo_epochs: int = Field(4, ge=1, description="Passes over each rollout.")
    num_mini_batches: int = Field(
        1,
        ge=1,
        description=(
            "Updates a pass; a rollout has batch_size x gradient_accumulation_steps x this prompts."
        ),
    )
    whiten_rewards: bool = Field(
        False, description="Scale the rewards of a rollout to variance 1, their mean kept."
    )
    missing_eos_penalty: Real | None = Field(
        None, gt=0, description="Taken off the score of a completion without an end."
    )
