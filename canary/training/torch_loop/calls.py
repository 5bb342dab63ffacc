"""Sees the calls of chosen modules, without hooks: those would be saved with the module, and a
global hook makes `torch.compile` print a warning.

`nn.Module` calls the function `_compiled_call_impl` of an instance if it has one. Copies and files
of a module do not call it. Code that `torch.compile` traces through skips the watcher.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from canary.training.collectors.aside import BEFORE, SLOT, Wrapping

Around = Callable[[nn.Module, Callable[..., Any], Any, Any], Any]


class ModuleCalls:
    """Calls `around(module, call, args, kwargs)` in place of each call of a watched module."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._replaced: dict[int, tuple[weakref.ref[nn.Module], Any, Any]] = {}
        wrap = Wrapping().wrap
        wrap(nn.Module, "compile", self._around_compile)
        wrap(torch, "compile", self._around_compile)
        wrap(nn.Module, "_replicate_for_data_parallel", self._around_replicate)
        leave_alone_when_compiling()

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """Watch these modules too."""
        for module in modules:
            known = self._replaced.get(id(module))
            before = vars(module).get(SLOT)
            if known is None or before is not known[2]:
                watcher = Watcher(self._around, weakref.ref(module), before)
                vars(module)[SLOT] = watcher
                self._replaced[id(module)] = (weakref.ref(module), before, watcher)

    def forget(self, module: nn.Module) -> bool:
        """Stop watching a module; return whether it was watched."""
        _, before, watcher = self._replaced.pop(id(module), (None, None, None))
        if watcher is None or vars(module).get(SLOT) is not watcher:
            return False
        if before is None:
            del vars(module)[SLOT]
        else:
            vars(module)[SLOT] = before
        return True

    def end(self) -> None:
        """Stop watching all modules."""
        for reference, _, _ in [*self._replaced.values()]:
            module = reference()
            if module is not None:
                self.forget(module)
        self._replaced.clear()

    def _around_compile(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Watch the compiled module in place of the original, which is compiled as it was."""
        module = args[0] if args else kwargs.get("model")
        watched = isinstance(module, nn.Module) and self.forget(module)
        made = original(*args, **kwargs)
        leave_alone_when_compiling()
        if watched:
            self.watch([made if isinstance(made, nn.Module) else module])
        return made

    def _around_replicate(self, original: Callable[..., Any], module: nn.Module) -> Any:
        """Leave the watcher out of DataParallel's replicas: they take a module's attributes."""
        replica = original(module)
        known = self._replaced.get(id(module))
        if known is not None and vars(replica).get(SLOT) is known[2]:
            del vars(replica)[SLOT]
        return replica


class Watcher:
    """Stands in a module's slot. Copies and files of the module hold None in its place."""

    def __init__(
        self, around: Around, reference: weakref.ref[nn.Module], before: Callable[..., Any] | None
    ) -> None:
        self._around = around
        self._reference = reference
        self._before = before
        vars(self)[BEFORE] = before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, and report the call."""
        module: Any = self._reference()
        called = module._call_impl if self._before is None else self._before
        if torch.compiler.is_compiling():
            return called(*args, **kwargs)
        # A module that took over the attributes of the watched one calls this too.
        caller = sys._getframe(1).f_locals.get("self", module)
        if caller is not module and isinstance(caller, nn.Module):
            if vars(caller).get(SLOT) is self:
                vars(caller)[SLOT] = self._before
            return caller(*args, **kwargs)
        return self._around(module, called, args, kwargs)

    def __deepcopy__(self, _: Any) -> None:
        return None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()


HERE = Path(__file__).resolve()


def leave_alone_when_compiling() -> None:
    """Let `torch.compile` run the canary's files as they are, without looking into them. This file
    is none of them: code that is compiled as a whole calls through it."""
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None or str(HERE.parents[1] / "launch.py") in rules.SKIP_DIRS:
        return
    package = HERE.parents[2]
    folders = [place for place in package.iterdir() if place.is_dir() and place.name != "training"]
    training = [place for place in HERE.parents[1].iterdir() if place != HERE.parent]
    files = [place for place in HERE.parent.iterdir() if place != HERE]
    rules.SKIP_DIRS.extend(str(place) for place in (*folders, *training, *files))
    rules._recompile_re()
