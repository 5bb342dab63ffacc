"""What the `speed` section of a config means for the loop of PPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig

from canary.config.schema import CanaryConfig
from canary.training.trainers.arguments import uses_cuda
from canary.training.trainers.speed import cache, compilation


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
