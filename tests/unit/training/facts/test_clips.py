"""What the watcher of clips counts, each fault beside its healthy neighbour."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from canary.record.facts import ClipFacts, Facts
from canary.training.facts.updates import UpdateWatcher


def looped(*, used_up: bool = False, scaled: bool = False, unscale: bool = False) -> ClipFacts:
    """Three updates with a clip each."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    clipped = (value for value in model.parameters() if not used_up)
    kept = clipped if used_up else [*clipped]
    watcher = UpdateWatcher(SimpleNamespace(model=model))
    watcher.begin()
    try:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(2, 4)).square().mean()).backward()
            if unscale:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(kept, 1.0)
            scaler.step(optimizer)
            scaler.update()
    finally:
        watcher.end()
    facts: Facts = {}
    watcher.tell(facts, {})
    return facts["clips"]


@pytest.mark.filterwarnings("ignore:.*empty generator")
def test_clips_of_nothing_and_of_scaled_gradients_are_counted() -> None:
    assert looped() == {"clips": 3, "empty": 0, "scaled": 0}
    assert looped(used_up=True) == {"clips": 3, "empty": 3, "scaled": 0}
    assert looped(scaled=True) == {"clips": 3, "empty": 0, "scaled": 3}
    assert looped(scaled=True, unscale=True) == {"clips": 3, "empty": 0, "scaled": 0}


@pytest.mark.parametrize("named", [True, False])
def test_clips_of_values_are_counted_however_they_are_called(named: bool) -> None:
    watcher = UpdateWatcher(object())
    watcher.begin()
    try:
        value = nn.Parameter(torch.ones(2))
        value.grad = torch.full((2,), 3.0)
        if named:
            nn.utils.clip_grad_value_(parameters=iter([value]), clip_value=1.0)
        else:
            nn.utils.clip_grad_value_(iter([value]), 1.0)
        with pytest.raises(TypeError):
            nn.utils.clip_grad_value_([value])  # type: ignore[call-arg]
    finally:
        watcher.end()
    facts: Facts = {}
    watcher.tell(facts, {})
    assert value.grad.tolist() == [1.0, 1.0]
    assert facts["clips"]["clips"] == 1


def test_a_clip_by_a_norm_that_the_loop_has_is_counted() -> None:
    watcher = UpdateWatcher(object())
    watcher.begin()
    try:
        value = nn.Parameter(torch.ones(2))
        value.grad = torch.full((2,), 3.0)
        norm = nn.utils.get_total_norm([value.grad])
        nn.utils.clip_grads_with_norm_(iter([value]), max_norm=1.0, total_norm=norm)
    finally:
        watcher.end()
    facts: Facts = {}
    watcher.tell(facts, {})
    assert float(torch.linalg.vector_norm(value.grad)) == pytest.approx(1.0)
    assert facts["clips"] == {"clips": 1, "empty": 0, "scaled": 0}
