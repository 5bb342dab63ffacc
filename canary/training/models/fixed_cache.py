"""A cache of fixed size under autocast: keys and values are kept in one dtype.

transformers makes the tensors of both in the dtype of the first keys. Under autocast rotary
embeddings leave keys in float32 and values are what a projection gives, so the values do not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MAKERS = ("_prepare_static_cache", "_get_cache")
"""What makes the cache of a model's `generate`; the second before transformers 5."""


def keep_one_dtype(model: Any) -> None:
    """Caches of this one model take keys in the dtype of their values, which attention under
    autocast computes in anyway."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    for name in MAKERS:
        if hasattr(inner, name):
            setattr(inner, name, _making(getattr(inner, name)))


def _making(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def made(*args: Any, **kwargs: Any) -> Any:
        cache = original(*args, **kwargs)
        for layer in getattr(getattr(cache, "self_attention_cache", cache), "layers", ()):
            if not hasattr(layer.update, "__wrapped__"):
                layer.update = _updating(layer.update)
        return cache

    return made


def _updating(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def update(keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return original(keys.to(values.dtype), values, *args, **kwargs)

    return update
