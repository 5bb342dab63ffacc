"""Waits for the first optimizer of a process that imports torch, then calls back. Notes calls of
`load_state_dict` that load nothing at all, and embeddings that get more rows.

Loaded in every Python process of the user's command that imports torch. Standard library only, and
little of it: a process that makes no optimizer pays for a few wrapped functions.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

OnOptimizer = Callable[[Any], None]
OnBackwards = Callable[[str], None]


class Taps:
    """Passes on what scripts call by names that they import early."""

    def __init__(
        self, first_optimizer: Callable[[Taps], None], backwards_alone: OnBackwards
    ) -> None:
        """`first_optimizer` is called once, with these taps, when an optimizer is made.
        `backwards_alone` is called if backward runs without one: at first with nothing, and with
        the count at the end of the process."""
        self._first: Callable[[Taps], None] | None = first_optimizer
        self._backwards_alone = backwards_alone
        self._backwards = 0
        self.optimizer_made: OnOptimizer | None = None
        """Gets each new optimizer."""

    def install(self, torch: ModuleType) -> None:
        """Wrap `Optimizer.__init__`, and `backward` until the first optimizer is made."""
        self._is_compiling = torch.compiler.is_compiling
        self._count_backwards(torch.autograd)
        optimizer = torch.optim.Optimizer
        optimizer.__init__ = self._around_init(optimizer.__init__)

    def _count_backwards(self, autograd: ModuleType) -> None:
        original = autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:
            if self._first is not None and not self._is_compiling():
                self._backward_begins()
            original(*args, **kwargs)

        def end() -> None:
            if autograd.backward is backward:
                autograd.backward = original  # type: ignore[attr-defined]

        autograd.backward = backward  # type: ignore[attr-defined]
        self._end_counting = end

    def _backward_begins(self) -> None:
        self._backwards += 1
        if self._backwards == 1:
            self._backwards_alone("")
            atexit.register(self._process_ends)

    def _process_ends(self) -> None:
        if self._first is not None:
            self._backwards_alone(str(self._backwards))

    def _around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            first, self._first = self._first, None
            if first is not None:
                self._end_counting()
                first(self)
            if self.optimizer_made is not None:
                self.optimizer_made(optimizer)

        return init


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
    """Whether one module is gone, or one of both is a part of the other."""
    return one is None or any(
        part is whole for tree, whole in ((one, other), (other, one)) for part in tree.modules()
    )


LOADS = Loads()
