"""A watched module stays what it is for its copies, its files and modes of the training."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from canary.training.exact.operators import LiveTensors, WorkCounter, why_uncounted
from canary.training.torch_loop.calls import ModuleCalls


class Plain(nn.Linear):
    """Copies its attributes itself, as users' recipes and some of torch's modules do."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))


class Recipe(nn.Linear):
    def __deepcopy__(self, memo: Any) -> Recipe:
        made: Recipe = object.__new__(type(self))
        memo[id(self)] = made
        for name, value in vars(self).items():
            made.__dict__[name] = copy.deepcopy(value, memo)
        return made


def shared(module: nn.Module) -> nn.Module:
    made: nn.Module = object.__new__(type(module))
    vars(made).update(vars(module))
    vars(made)["_parameters"] = dict(vars(module)["_parameters"])
    return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleCalls, list[nn.Module]]]:
    for owner, name in (
        (nn.Module, "compile"),
        (torch, "compile"),
        (nn.Module, "_replicate_for_data_parallel"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    seen: list[nn.Module] = []

    def around(module: nn.Module, call: Any, args: Any, kwargs: Any) -> Any:
        seen.append(module)
        return call(*args, **kwargs)

    made = ModuleCalls(around)
    yield made, seen
    made.end()


@pytest.mark.parametrize("kind", [nn.Linear, Plain, Recipe])
@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy, shared])
def test_a_copy_runs_its_own_weights(
    kind: type[nn.Linear], way: Any, calls: tuple[ModuleCalls, list[nn.Module]]
) -> None:
    watching, seen = calls
    model = kind(2, 1)
    watching.watch([model])
    other = way(model)
    vars(other)["_parameters"] = {
        name: nn.Parameter(torch.zeros_like(value)) for name, value in model.named_parameters()
    }
    assert float(other(torch.ones(2))) == 0.0
    assert float(model(torch.ones(2))) != 0.0
    assert seen == [model]


@pytest.mark.parametrize("kind", [nn.Linear, Plain])
def test_a_whole_model_can_be_saved(
    kind: type[nn.Linear], calls: tuple[ModuleCalls, list[nn.Module]]
) -> None:
    watching, _ = calls
    model = kind(2, 1)
    watching.watch([model])
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(torch.ones(2)), model(torch.ones(2)))


class Mine(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_the_modes_of_the_training_stay_balanced() -> None:
    with Mine():
        assert why_uncounted() == "the training has a dispatch mode of its own"
    assert why_uncounted() is None
    counter = WorkCounter(None)
    counter.begin()
    mine = Mine()
    with mine:
        torch.ones(1).add(1)
        assert counter.end()["operators"]["aten.add.Tensor"] == 1
        assert _get_current_dispatch_mode_stack() == [mine]
    assert not _get_current_dispatch_mode_stack()


def test_an_optimizer_step_that_is_compiled_is_not_counted() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())
    why: list[str | None] = []
    optimizer.register_step_post_hook(lambda *_: why.append(why_uncounted()))
    model(torch.ones(2)).backward()
    torch.compile(optimizer.step, backend="eager")()
    optimizer.step()
    assert why == ["torch.compile runs the optimizer's step", None]


def test_the_garbage_collector_of_a_training_stays_as_it_set_it() -> None:
    live = LiveTensors(whole_process=False)
    gc.disable()
    try:
        live.freeze()
        live.count()
        live.release()
        assert not live.counts
    finally:
        gc.enable()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        live.freeze()
        live.count()
        live.release()
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()
