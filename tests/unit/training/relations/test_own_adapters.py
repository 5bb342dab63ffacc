"""Adapters that a model brings itself are merged, and the model is left as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from canary.training.relations.merging import merged
from tests.unit.training.relations.tiny import Loop, llama


class Adapter(nn.Module):
    """LoRA beside a linear layer."""

    forgets = 1.0
    """What merging multiplies the adapter by, wrongly."""
    fails = False

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, base.in_features))
        self.up = nn.Parameter(torch.randn(base.out_features, 2) * 0.1)
        self.merged, self.done = False, list[str]()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        said: torch.Tensor = self.base(hidden)
        return said if self.merged else said + 2.0 * (hidden @ self.down.T @ self.up.T)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def merge(self, safe: bool = False) -> None:
        self.base.weight = nn.Parameter(
            self.base.weight + 2.0 * self.forgets * self.up @ self.down, requires_grad=False
        )
        self.merged = True
        self.done.append("merge")
        if self.fails:
            raise RuntimeError("half way")

    def unmerge(self) -> None:
        raise AssertionError("a copy is put back instead")


class Forgetting(Adapter):
    forgets = 0.5


class Failing(Adapter):
    fails = True


class Wanting(Forgetting):
    """Its methods need arguments."""

    def merge(self, scale: float) -> None:  # type: ignore[override]
        raise AssertionError


def adapted(kind: type[Adapter]) -> Any:
    model = llama()
    for layer in model.model.layers:
        layer.self_attn.q_proj = kind(layer.self_attn.q_proj)
    return model


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Adapter, "holds"),
        (Forgetting, "broken"),
        (Failing, "undecided"),
        (Wanting, "not applicable"),
    ],
)
def test_own_adapters_are_merged(kind: type[Adapter], expected: str) -> None:
    model = adapted(kind)
    found = Loop(model, wanted=("merge",)).run()["merge"]
    assert found["status"] == expected, found
    for one in model.modules():
        if isinstance(one, Adapter):
            assert (one.merged, one.done) == (False, [])


@pytest.mark.parametrize("kind", [Adapter, Failing])
def test_everything_is_put_back(kind: type[Adapter]) -> None:
    model = adapted(kind)
    parameters = [*model.parameters()]
    values = [one.detach().clone() for one in parameters]
    try:
        with merged(model) as count:
            assert count == 2
    except RuntimeError:
        assert kind is Failing
    again = [*model.parameters()]
    assert all(one is other for one, other in zip(parameters, again, strict=True))
    assert all(torch.equal(one, was) for one, was in zip(again, values, strict=True))
