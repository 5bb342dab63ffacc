"""The tokenizer of a loop that names none, and what tokenizers and configs say of special ids."""

from __future__ import annotations

import gc
import sys
import weakref
from numbers import Integral
from typing import Any

import torch


class LivingTokenizers:
    """Tokenizers of transformers that live in the process.

    The count of live tensors hides older objects from the garbage collector while a training runs.
    So they are looked for at the beginning too.
    """

    def __init__(self) -> None:
        self._known = [weakref.ref(one) for one in _alive()]

    def only(self) -> Any:
        """Return the only tokenizer, or one of several that write the same; else None."""
        found = {id(one): one for known in self._known if (one := known()) is not None}
        found |= {id(one): one for one in _alive()}
        kinds = {_kind(one) for one in found.values()}
        return next(iter(found.values())) if len(kinds) == 1 else None


def special_ids(tokenizer: Any, model: Any) -> tuple[int | None, frozenset[int]]:
    """Return the ids of padding and of ends that a tokenizer, or else a model's configs, say."""
    known = (tokenizer, getattr(model, "config", None), getattr(model, "generation_config", None))
    pads = (pad for one in known for pad in _ids(getattr(one, "pad_token_id", None)))
    ends = frozenset(end for one in known for end in _ids(getattr(one, "eos_token_id", None)))
    return next(pads, None), ends


def _ids(said: Any) -> list[int]:
    """Return the ids of one or several, as numbers of Python, numpy or torch."""
    said = said.tolist() if isinstance(said, torch.Tensor) else said
    several = said if isinstance(said, list | tuple | set | frozenset) else [said]
    return [int(one) for one in several if isinstance(one, Integral)]


def _alive() -> list[Any]:
    base = getattr(sys.modules.get("transformers"), "PreTrainedTokenizerBase", None)
    if base is None:
        return []
    return [one for one in gc.get_objects() if base in type(one).__mro__]


def _kind(tokenizer: Any) -> tuple[object, ...]:
    """Return what decides which texts a tokenizer writes, and how it marks turns."""
    template = str(getattr(tokenizer, "chat_template", None))
    marks = tuple(getattr(tokenizer, "all_special_ids", ()))
    return type(tokenizer), len(tokenizer), template, marks
