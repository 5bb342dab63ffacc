"""The `speed` section of a config: switches that do the same work in a faster way."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from canary.config.strict import Strict


class SpeedConfig(Strict):
    """Switches that change the speed of a training but, except for rounding, not what it learns.
    Null leaves a switch to the trainer."""

    advantages: Literal["loop", "vectorised"] | None = Field(
        None, description="Compute advantages per token in Python, or for all sequences at once."
    )
    logprobs: Literal["whole", "completion"] | None = Field(
        None,
        description=(
            "Compute log-probabilities at every padded position, or only at the completions."
        ),
    )
    shared_forward: bool | None = Field(
        None, description="Get log-probabilities and values from one forward instead of two."
    )
    kv_cache: bool | None = Field(None, description="Generate with a KV cache.")
    decode: Literal["dynamic", "static", "compiled"] | None = Field(
        None, description="KV cache: growing, of fixed size, or fixed with compiled decoding."
    )
    rollout_batch: Literal["micro", "whole"] | None = Field(
        None, description="Sample micro-batch by micro-batch, or the whole rollout at once."
    )
    lengths: Literal["fixed", "longest", "bucketed"] | None = Field(
        None,
        description=(
            "Pad to the maximum length, or to the longest row of the micro-batch; `bucketed` also "
            "sorts an update's rows by length."
        ),
    )
    optimizer: Literal["loop", "foreach", "fused"] | None = Field(
        None, description="Run AdamW per tensor, over lists of tensors, or as one fused kernel."
    )
    prefetch: int | None = Field(
        None, ge=1, description="Batches that each data worker loads ahead."
    )
    pin_memory: bool | None = Field(None, description="Put batches in page-locked memory.")
    compile: bool | None = Field(None, description="Compile forward and backward (torch.compile).")
    liger: bool | None = Field(None, description="Use fused kernels and losses of liger-kernel.")
