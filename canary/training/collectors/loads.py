"""Notes what happens to models before a training: calls of `load_state_dict` that load nothing at
all, and embeddings that get more rows.

Loaded in every Python process of the user's command that imports torch: standard library only.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from types import ModuleType
from typing import Any

ROWS = 8
"""New rows that are kept."""


class Loads:
    """Modules whose newest `load_state_dict` found none of its names, and larger embeddings."""

    def __init__(self) -> None:
        self._failed: list[tuple[weakref.ref[Any], dict[str, Any]]] = []
        self._begun = False
        self._resized: list[tuple[weakref.ref[Any], int, Any]] = []
        """Model, first new token, and a copy of the first new rows."""

    def begin(self, torch: ModuleType) -> None:
        """Wrap `torch.nn.Module.load_state_dict`, once."""
        if self._begun:
            return
        self._begun = True
        module = torch.nn.Module
        original = module.load_state_dict

        @functools.wraps(original)
        def load(loaded: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            keys = original(loaded, state_dict, *args, **kwargs)
            self._loaded(loaded, state_dict, keys)
            return keys

        module.load_state_dict = load

    def transformers_loaded(self, modeling: ModuleType) -> None:
        """Wrap `resize_token_embeddings` of the freshly loaded `transformers.modeling_utils`."""
        model = modeling.PreTrainedModel
        original = model.resize_token_embeddings

        @functools.wraps(original)
        def resize(resized: Any, *args: Any, **kwargs: Any) -> Any:
            # A model may have no such table, or one without values: neither look may fail.
            before = None
            with contextlib.suppress(Exception):
                before = len(resized.get_input_embeddings().weight)
            table = original(resized, *args, **kwargs)
            with contextlib.suppress(Exception):
                if before is not None and len(table.weight) > before:
                    made = table.weight.detach()[before : before + ROWS].float().cpu().clone()
                    self._resized.append((weakref.ref(resized), before, made))
            return table

        model.resize_token_embeddings = resize

    def resized(self, model: Any) -> tuple[Any, int, Any] | None:
        """Return the part of a model that got more tokens, the first of them, and a copy of some
        new rows; None if no part did."""
        parts = [one for _, one in model.named_modules()]
        for resized, first, made in self._resized:
            part = resized()
            if any(part is one for one in parts):
                return part, first, made
        return None

    def _loaded(self, module: Any, state_dict: Any, keys: Any) -> None:
        unknown = list(getattr(keys, "unexpected_keys", ()))
        missing = list(getattr(keys, "missing_keys", ()))
        if len(unknown) < len(state_dict):
            # A second try, perhaps of a part, may have found what the first did not.
            self._failed = [one for one in self._failed if not _shares(one[0](), module)]
        elif unknown and missing:
            fact = {
                "model": type(module).__name__[:80],
                "given": len(unknown),
                "name": str(unknown[0])[:120],
                "wanted": str(missing[0])[:120],
            }
            self._failed.append((weakref.ref(module), fact))

    def failed(self) -> list[dict[str, Any]]:
        """Return what was given and wanted, for each such module that still lives."""
        return [fact for module, fact in self._failed if module() is not None]


def _shares(one: Any, other: Any) -> bool:
    return one is None or any(part is one or part is other for part in _parts(one, other))


def _parts(one: Any, other: Any) -> Any:
    yield from (part for part in one.modules() if part is other)
    yield from (part for part in other.modules() if part is one)


LOADS = Loads()
