"""The `speed` section of a config: how the same work is done, each switch on its own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from canary.config.strict import Strict


class SpeedConfig(Strict):
    """Switches that change how fast a training goes and, but for rounding, not what it learns.
    Null leaves a switch to the trainer."""

    advantages: Literal["loop", "vectorised"] | None = Field(
        None, description="Advantages token by token in Python, or for all sequences at once."
    )
    logprobs: Literal["whole", "completion"] | None = Field(
        None,
        description=(
            "Log-probabilities at every padded position, or at those of the completions alone."
        ),
    )
    shared_forward: bool | None = Field(
        None, description="Log-probabilities and values from one forward instead of two."
    )
    kv_cache: bool | None = Field(None, description="Generate with a cache of keys and values.")
    decode: Literal["dynamic", "static", "compiled"] | None = Field(
        None, description="A cache that grows, one of fixed size, or that and compiled decoding."
    )
    rollout_batch: Literal["micro", "whole"] | None = Field(
        None, description="Sample a micro-batch at a time, or all prompts of a rollout together."
    )
    lengths: Literal["fixed", "longest", "bucketed"] | None = Field(
        None,
        description=(
            "Pad to the longest sequence there can be, to the longest of a micro-batch, or that "
            "with the rows of an update sorted by length."
        ),
    )
    optimizer: Literal["loop", "foreach", "fused"] | None = Field(
        None, description="AdamW tensor by tensor, over lists of tensors, or in one kernel."
    )
    prefetch: int | None = Field(
        None, ge=1, description="Batches that each loading process keeps ready."
    )
    pin_memory: bool | None = Field(None, description="Batches in page-locked memory.")
    compile: bool | None = Field(None, description="Forward and backward through torch.compile.")
    liger: bool | None = Field(None, description="Fused kernels and losses of liger-kernel.")
