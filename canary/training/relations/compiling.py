"""A model called through torch.compile, whose graphs run as they were traced.

The backend `aot_eager` traces forward and backward like Inductor, but runs the operators one by
one: faults of graphs show, those of Inductor's kernels do not.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from canary.relations.relation import CannotAsk
from canary.training.collectors.wrapping import is_compiled
from canary.training.relations.calls import KeptCall, scored


def allow_graph_breaks() -> None:
    """Ignore `fullgraph` of `torch.compile`. Hooks that look at a training cannot be traced, and
    would end it."""
    original = torch.compile

    @functools.wraps(original)
    def breaking(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "fullgraph": False})

    torch.compile = breaking


def compiled_scores(call: KeptCall) -> torch.Tensor | None:
    """Return what the compiled model says of a call; None if no graph was made.

    Raises:
        CannotAsk: the model is compiled already, or there is no compiler for this Python, or it is
            switched off.
    """
    module = call.module
    if is_compiled(module):
        raise CannotAsk("the training compiles its model already")
    from torch import _dynamo
    from torch._dynamo.backends.debugging import aot_eager

    if not _dynamo.is_dynamo_supported():
        raise CannotAsk("torch.compile does not support this Python")
    if _dynamo.config.disable:
        raise CannotAsk("torch.compile is switched off (TORCHDYNAMO_DISABLE or its like)")
    graphs = 0

    def counting(graph: Any, examples: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return aot_eager(graph, examples)

    kept = vars(module).get("forward")
    own: Any = module.forward
    try:
        module.forward = torch.compile(own, backend=counting, dynamic=False)  # type: ignore[method-assign]
        found = scored(call)
    finally:
        if kept is None:
            del module.forward
        else:
            module.forward = kept
    return found if graphs else None
