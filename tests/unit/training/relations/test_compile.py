"""A compiled model says the same, unless its forward pass depends on more than its inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from canary.training.relations.compiling import allow_graph_breaks
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


def test_a_compiler_that_is_switched_off_is_no_fault_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch._dynamo.config.disable", True)
    found = Loop(llama(), wanted=ONLY).run()["compile"]
    assert found["status"] == "not applicable"
    assert found["message"].startswith("torch.compile is switched off (TORCHDYNAMO_DISABLE")


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
