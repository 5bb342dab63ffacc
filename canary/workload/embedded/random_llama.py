"""Llamas with seeded random weights, built at load, for speed canaries without a download."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from canary.errors import InputError

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM

_PREFIX = "embedded/random-"
_HEAD_SIZE = 64
_MAX_POSITIONS = 2048


@dataclass(frozen=True)
class LlamaShape:
    """The widths of a Llama; heads are 64 wide, every head has its own keys and values."""

    hidden: int
    intermediate: int
    layers: int


# Parameters within 10% of the name at a vocabulary of 1,024 (tests/unit/test_embedded.py).
RANDOM_SIZES: dict[str, LlamaShape] = {
    "10m": LlamaShape(320, 864, 8),
    "30m": LlamaShape(512, 1376, 9),
    "70m": LlamaShape(768, 2048, 10),
    "160m": LlamaShape(1024, 2752, 12),
    "410m": LlamaShape(1536, 4096, 14),
    "1b": LlamaShape(2048, 5504, 20),
}


def parse_random_name(name: str) -> str | None:
    """The size in `embedded/random-<size>`, or None for a name of another form.

    Raises InputError for a size that RANDOM_SIZES does not hold.
    """
    if not name.startswith(_PREFIX):
        return None
    size = name.removeprefix(_PREFIX)
    _require_known(size)
    return size


def random_llama(size: str, seed: int, dtype: torch.dtype, vocab_size: int) -> LlamaForCausalLM:
    """A Llama of RANDOM_SIZES[size] with the weights that `seed` gives, in `dtype`.

    The global CPU generator is left as it was. Raises InputError for an unknown size.
    """
    _require_known(size)
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


def _require_known(size: str) -> None:
    if size in RANDOM_SIZES:
        return
    near = get_close_matches(size, RANDOM_SIZES, n=1)
    meant = f" (did you mean '{_PREFIX}{near[0]}'?)" if near else ""
    raise InputError(
        f"no random model '{_PREFIX}{size}'{meant}",
        f"known sizes: {', '.join(RANDOM_SIZES)}",
    )
