"""Looks at a training without being a part of it. Hides its operators, keeps random numbers,
wraps methods and hooks optimizers until undone. Finds objects that live in this process."""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import _C, nn
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import _disable_current_modes

from canary.protocol.failure import one_line, struck


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Hide the operators inside, or in the decorated function, from all modes: those that count
    them, and a default device of the user's."""
    modes = [_C._pop_torch_function_stack() for _ in range(_C._len_torch_function_stack())]
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(modes):
            _C._push_on_torch_function_stack(mode)


@contextlib.contextmanager
def kept_apart(failed: Callable[[str], None]) -> Iterator[None]:
    """Keep an error inside from the training; `failed` gets it in words. That of one of the user's
    signal handlers passes: see `struck`."""
    try:
        yield
    except Exception as error:  # A user's objects may raise anything.
        if struck(error):
            raise
        failed(one_line(error))


def random_states() -> Callable[[], None]:
    """Return what puts every shared stream of random numbers back to where it is now."""
    python, cpu = random.getstate(), torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    numpy: Any = sys.modules["numpy"].random if "numpy" in sys.modules else None
    numbers = None if numpy is None else numpy.get_state(legacy=False)

    def restore() -> None:
        random.setstate(python)
        torch.set_rng_state(cpu)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)
        if numpy is not None:
            numpy.set_state(numbers)

    return restore


@contextlib.contextmanager
def kept_random() -> Iterator[None]:
    """Run a block that leaves the random numbers as they were."""
    restore = random_states()
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def attributes_set(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Run a block in which each (object, attribute, value) holds; put back what was there."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


class Marked:
    """Tensors with what is known of them, as long as they live."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[torch.Tensor], Any]] = {}

    def note(self, made: Any, what: Any) -> None:
        """Keep what is known of a tensor; None: nothing is."""
        if what is not None:
            self.known[id(made)] = (weakref.ref(made), what)

    def of(self, value: Any) -> Any:
        """Return what is known of a tensor; None if nothing is."""
        made, what = self.known.get(id(value), (None, None))
        return what if made is not None and made() is value else None

    def take(self, value: Any) -> Any:
        """Return what is known of a tensor, and forget it."""
        known = self.of(value)
        self.known.pop(id(value), None)
        return known


def in_backward() -> bool:
    """Whether a backward pass runs in this thread, as when a checkpoint computes again."""
    return bool(_C._current_graph_task_id() != -1)


class Wrapping:
    """Wrapped methods and hooks, with the means to undo them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Call `around` with the method and its arguments instead of the method, if it exists. A
        Wrapping that nobody undoes wraps for good."""
        original = getattr(owner, name, None)
        if original is None:
            return
        replaced = vars(owner).get(name)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        placed = staticmethod(wrapper) if isinstance(replaced, staticmethod) else wrapper

        def put_back() -> None:
            if vars(owner).get(name) is not placed:
                return  # the training has replaced it since
            if replaced is None:
                delattr(owner, name)
            else:
                setattr(owner, name, replaced)

        setattr(owner, name, placed)
        self._undo.append(put_back)

    def wrap_backward(self, around: Callable[[Any], AbstractContextManager[None]]) -> None:
        """Enter `around` with the tensors of each backward, but not of one inside of another. Loops
        call it as `Tensor.backward` too."""

        def backward(original: Any, *args: Any, **kwargs: Any) -> None:
            if torch.compiler.is_compiling() or in_backward():
                original(*args, **kwargs)
                return
            with around(args[0] if args else kwargs.get("tensors")):
                original(*args, **kwargs)

        self.wrap(torch.autograd, "backward", backward)

    def hook_updates(self, begin: Callable[..., None], end: Callable[..., None]) -> None:
        """Call these before and after each step of any torch optimizer in this process."""
        before = torch_optimizer.register_optimizer_step_pre_hook(begin)
        after = torch_optimizer.register_optimizer_step_post_hook(end)
        self._undo += [before.remove, after.remove]

    def undo(self) -> None:
        """Remove all wrapping and hooks."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()


SLOT = "_compiled_call_impl"
"""What `nn.Module` calls in place of its `forward`, if an instance has it."""
BEFORE = "_canary_before"
"""What a watcher in this slot has taken the place of."""


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is compiled, watched or not."""
    slot = vars(module).get(SLOT)
    return hasattr(module, "_orig_mod") or getattr(slot, BEFORE, slot) is not None


def living(kind: type) -> list[Any]:
    """Return the objects of a kind that the garbage collector knows. The count of live tensors
    hides older ones from it while a training runs. A proxy that lies about its class is none."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
