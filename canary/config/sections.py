"""The config's sections `import`, `ppo`, `speed` and `check`, and their base class."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def as_number(value: Any) -> Any:
    """Convert text such as 1e-4, which YAML 1.1 reads as text, to a number; else return it."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


Real = Annotated[float, BeforeValidator(as_number)]


class Strict(BaseModel):
    """Frozen; refuses unknown keys and converts no types silently. Docs and schema show the text
    below a key as what it means."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        protected_namespaces=(),
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class ImportConfig(Strict):
    """What a command leaves that another program recorded: the run's record is made from it."""

    source: str = Field(min_length=1)
    """File or folder that the command fills, relative to the working folder; `-`: the command's own
    output."""
    format: str | None = Field(None, min_length=1)
    """Format of the source; null: found from the files."""
    preset: str | None = Field(None, min_length=1)
    """Names of the metrics: a framework or a YAML file; null: the best fit."""


class PPOConfig(Strict):
    """Settings of PPO (Schulman et al. 2017, arXiv:1707.06347) on language models."""

    reward_model: str | None = Field(None, min_length=1)
    """Sequence classifier with one label: `embedded/reward`, a Hugging Face id or a local folder;
    null: `reward_functions` score, or else the match with the `answer` column."""
    gamma: Real = Field(1.0, gt=0, le=1)
    """Discount factor of later rewards."""
    lam: Real = Field(0.95, ge=0, le=1)
    """Lambda of generalised advantage estimation."""
    cliprange: Real = Field(0.2, gt=0, lt=1)
    """Clip range of the ratio around 1."""
    cliprange_value: Real = Field(0.2, gt=0)
    """Clip range of a value around the rollout's value."""
    vf_coef: Real = Field(0.1, ge=0)
    """Weight of the value loss."""
    ent_coef: Real = Field(0.0, ge=0)
    """Weight of the entropy bonus."""
    init_kl_coef: Real = Field(0.05, ge=0)
    """Initial weight of the penalty on the KL to the reference."""
    kl_estimator: Literal["k1", "k3"] = "k1"
    """Per-token estimate of the KL (Schulman 2020)."""
    adap_kl_ctrl: bool = False
    """Adapt the penalty's weight so that the KL stays near `target`."""
    target: Real = Field(6.0, gt=0)
    """KL per sequence in nats that adaptation aims at."""
    horizon: int = Field(10_000, ge=1)
    """Completions over which the weight adapts."""
    target_kl: Real | None = Field(None, gt=0)
    """Stop a step's updates once the KL to the rollout's policy exceeds 1.5 times this; null: never
    stop early."""
    ppo_epochs: int = Field(4, ge=1)
    """Passes over each rollout."""
    num_mini_batches: int = Field(1, ge=1)
    """Updates per pass; rollout prompts: batch_size x gradient_accumulation_steps x this."""
    whiten_rewards: bool = False
    """Scale a rollout's rewards to variance 1 and keep their mean."""
    missing_eos_penalty: Real | None = Field(None, gt=0)
    """Subtract this from the score of a completion without EOS."""


class SpeedConfig(Strict):
    """Switches that change the speed of a training but, except for rounding, not what it learns.
    Null leaves a switch to the trainer."""

    advantages: Literal["loop", "vectorised"] | None = None
    """Compute advantages per token in Python, or for all sequences at once."""
    logprobs: Literal["whole", "completion"] | None = None
    """Compute log-probabilities at every padded position, or only at the completions."""
    shared_forward: bool | None = None
    """Get log-probabilities and values from one forward instead of two."""
    kv_cache: bool | None = None
    """Generate with a KV cache."""
    decode: Literal["dynamic", "static", "compiled"] | None = None
    """KV cache: growing, of fixed size, or fixed with compiled decoding."""
    rollout_batch: Literal["micro", "whole"] | None = None
    """Sample micro-batch by micro-batch, or the whole rollout at once."""
    lengths: Literal["fixed", "longest", "bucketed"] | None = None
    """Pad to the maximum length, or to the longest row of the micro-batch; `bucketed` also sorts an
    update's rows by length."""
    optimizer: Literal["loop", "foreach", "fused"] | None = None
    """Run AdamW per tensor, over lists of tensors, or as one fused kernel."""
    prefetch: int | None = Field(None, ge=1)
    """Batches that each data worker loads ahead."""
    pin_memory: bool | None = None
    """Put batches in page-locked memory."""
    compile: bool | None = None
    """Compile forward and backward (torch.compile)."""
    liger: bool | None = None
    """Use fused kernels and losses of liger-kernel."""


class CheckConfig(Strict):
    """The rules that each run is checked against."""

    disable: tuple[str, ...] = Field((), strict=False)
    """Rules that are skipped, a list ([check.md](check.md))."""
