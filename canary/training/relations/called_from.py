"""Names of the code that an update runs in: a training says there which algorithm it is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

NOT_THE_TRAINING = ("torch", "canary")
"""Packages whose frames say nothing about the training."""
DEEPEST = 64


def names_on_stack() -> tuple[str, ...]:
    """Return the names of classes, functions, modules and files that call, each with its kind, as
    `class GRPO`."""
    found: dict[str, None] = {}
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEEPEST):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__", ""))
        if module.split(".")[0] not in NOT_THE_TRAINING:
            found |= dict.fromkeys(_names(frame, module))
        frame = frame.f_back
    order = ("class", "function", "module", "file")
    return tuple(sorted(found, key=lambda name: order.index(name.split()[0])))


def _names(frame: FrameType, module: str) -> list[str]:
    code = frame.f_code
    names = [f"function {code.co_name}", f"file {Path(code.co_filename).name}"]
    names += [f"module {part}" for part in module.split(".") if part != "__main__"]
    if code.co_argcount and code.co_varnames[0] in ("self", "cls"):
        owner: Any = frame.f_locals.get(code.co_varnames[0])
        kind = (
            owner if issubclass(type(owner), type) else type(owner)
        )  # a proxy lies about its class
        names += [f"class {one.__name__}" for one in kind.__mro__ if one is not object]
    return names
