"""Llamas with seeded random weights, built at load, for speed canaries without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.inputs.embedded.sizes import RANDOM_SIZES, require_known

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM

_HEAD_SIZE = 64
_MAX_POSITIONS = 2048


def random_llama(size: str, seed: int, dtype: torch.dtype, vocab_size: int) -> LlamaForCausalLM:
    """A Llama of RANDOM_SIZES[size] with the weights that `seed` gives, in `dtype`.

    The global CPU generator is left as it was. Raises InputError for an unknown size.
    """
    require_known(size)
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = RANDOM_SIZES[size]
    heads = shape.hidden // _HEAD_SIZE
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=_MAX_POSITIONS,
        attention_dropout=0.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.to(dtype)
    return model
