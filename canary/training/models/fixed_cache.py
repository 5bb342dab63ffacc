"""Keep the keys and values of a fixed-size cache in one dtype under autocast.

transformers allocates both in the dtype of the first keys. Under autocast, rotary embeddings make
the keys float32. The values keep the dtype of their projection, so they do not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MAKERS = ("_prepare_static_cache", "_get_cache")
"""Methods that create the cache for a model's `generate`; the second before transformers 5."""


def keep_one_dtype(model: Any) -> None:
    """Make this model's caches store keys in the dtype of the values. Attention under autocast
    computes in that dtype anyway."""
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
