"""A compiled model says the same, unless its forward pass depends on more than its inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from canary.training.collectors.compiled import is_compiled
from canary.training.relations.calls import bound
from canary.training.relations.compiling import allow_graph_breaks
from canary.training.torch_loop.calls import ModuleCalls
from tests.unit.training.relations.tiny import Loop, gpt2, llama

ONLY = ("compile",)
pytestmark = [pytest.mark.train, pytest.mark.slow]
"""The compiler takes seconds of a core."""


@pytest.mark.parametrize("model", [llama, gpt2])
def test_a_traced_model_says_the_same(model: object) -> None:
    assert callable(model)
    found = Loop(model(), wanted=ONLY).run()["compile"]
    assert found["status"] == "holds", found


class Tracing(nn.Module):
    """Does something else while it is compiled."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * 1.1 if torch.compiler.is_compiling() else hidden


def test_another_path_in_the_compiler_is_broken() -> None:
    model = llama()
    model.model.norm = nn.Sequential(model.model.norm, Tracing())
    found = Loop(model, wanted=ONLY).run()["compile"]
    assert found["status"] == "broken", found


def test_a_watched_loop_is_asked() -> None:
    calls = ModuleCalls(lambda module, call, args, kwargs: call(*args, **kwargs))
    try:
        model = llama()
        calls.watch([model])
        assert not is_compiled(model)
        assert Loop(model, wanted=ONLY).run()["compile"]["status"] == "holds"
        compiled = nn.Linear(2, 2)
        compiled.compile(backend="eager")
        calls.watch([compiled])
        assert is_compiled(compiled)
    finally:
        calls.end()


def test_the_model_stays_uncompiled() -> None:
    model = llama()
    Loop(model, wanted=ONLY).run()
    assert "forward" not in vars(model)


def test_a_full_graph_is_not_demanded_where_hooks_look_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that cannot be traced would end a step that is compiled as a whole."""
    monkeypatch.setattr(torch, "compile", torch.compile)
    allow_graph_breaks()
    net = nn.Linear(2, 2)

    @torch.compile(backend="eager", fullgraph=True)  # type: ignore[untyped-decorator]
    def step(values: torch.Tensor) -> torch.Tensor:
        return net(values)

    seen: list[int] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def looks(module: nn.Module, given: object) -> None:
        seen.append(1)

    handle = register_module_forward_pre_hook(looks)
    try:
        assert step(torch.ones(1, 2)).shape == (1, 2)
    finally:
        handle.remove()
    assert seen


def test_arguments_of_a_compiled_module_keep_their_names() -> None:
    compiled = torch.compile(llama(), backend="eager")
    assert [*bound(compiled, (torch.ones(1, 2),), {"labels": None})] == ["input_ids", "labels"]
