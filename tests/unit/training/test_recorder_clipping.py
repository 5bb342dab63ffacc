"""Clipping in a loop of one's own: a lost or another clip is named, and called no objective."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import plain
from tests.unit.recording import Recording

pytestmark = pytest.mark.train

Clip = Callable[[list[torch.nn.Parameter]], Any]


def by_norm(most: float) -> Clip:
    return lambda parameters: clip_grad_norm_(parameters, most)


def by_value(most: float) -> Clip:
    return lambda parameters: clip_grad_value_(parameters, most)


def by_hand(most: float) -> Clip:
    def clip(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
        for gradient in gradients:
            gradient.mul_(torch.clamp(most / norm, max=1.0))
        return norm

    return clip


def never(parameters: list[torch.nn.Parameter]) -> None:
    return None


def train(
    folder: Path,
    clip: Clip,
    *,
    phases: bool = False,
    tells: bool = False,
    adam: bool = False,
    growing: bool = False,
    scale: float = 1.0,
    config: dict[str, Any] | None = None,
) -> RunRecord:
    """A loop whose gradient norm is of order 10, or grows to that from 0.1 on."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    kind = torch.optim.AdamW if adam else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=1e-4)
    made = Recording(folder, 6)
    with made.of("clipped", model=model, optimizer=optimizer, config=config) as recorder:
        for number in range(20):
            inputs = torch.randn(4, 6)
            size = 0.02 * 3.0 ** min(number, 6) if growing else 3.0
            with recorder.step({"x": inputs}) as step:
                loss = (model(inputs) * size - size).square().mean() * scale
                step.loss(loss)
                with step.phase("backward") if phases else contextlib.nullcontext():
                    loss.backward()
                norm = clip(list(model.parameters()))
                if tells and norm is not None:
                    step.grad_norm(norm)
                optimizer.step()
                optimizer.zero_grad()
    return made.record()


def compared(current: RunRecord, baseline: RunRecord) -> Comparison:
    return compare_to_baseline(current, baseline, gates=())


@pytest.mark.parametrize("clip", [by_norm, by_value, by_hand])
def test_the_first_gradient_is_the_one_before_any_kind_of_clip(
    clip: Callable[[float], Clip], tmp_path: Path
) -> None:
    clean, clipped = train(tmp_path, never), train(tmp_path, clip(0.1))
    assert clipped.exact["first_gradient"] == clean.exact["first_gradient"]
    assert clean.exact["clipping"]["before"] == clean.exact["clipping"]["applied"]
    assert len(clean.exact["clipping"]["before"]) == 6
    found = plain(clipped)["clipping"]
    assert all(one < before for before, one in zip(found["before"], found["applied"], strict=True))


@pytest.mark.parametrize(
    ("loop", "was", "now", "words"),
    [
        ({}, by_norm(1.0), never, "is no longer clipped"),
        ({"adam": True}, by_norm(1.0), never, "is no longer clipped"),
        ({}, by_value(0.1), by_value(0.2), "is clipped differently"),
        ({}, never, by_hand(1.0), "is now clipped"),
        ({"growing": True}, by_norm(1.0), never, "is no longer clipped"),
        ({"growing": True, "tells": True, "adam": True}, by_norm(1.0), by_norm(9e9), "no longer"),
    ],
)
def test_a_lost_or_another_clip_is_called_clipping(
    loop: dict[str, Any], was: Clip, now: Clip, words: str, tmp_path: Path
) -> None:
    found = compared(train(tmp_path, now, **loop), train(tmp_path, was, **loop))
    assert found.verdict == "changed"
    assert found.first_difference is not None
    assert found.first_difference.signal == "applied_gradient"
    suspect = found.diagnosis.top_suspect
    assert suspect is not None
    assert suspect.category == "optimizer", found.diagnosis.suspects
    assert words in suspect.description
    assert "objective" not in [one.category for one in found.diagnosis.suspects]
    assert any("clip" in action for action in suspect.suggested_actions)


def test_a_gradient_that_is_zeroed_before_the_step_is_not_called_clipped(tmp_path: Path) -> None:
    def zeroed(parameters: list[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)

    found = compared(train(tmp_path, zeroed), train(tmp_path, by_norm(1.0)))
    suspect = found.diagnosis.top_suspect
    assert suspect is not None
    assert suspect.category == "optimizer"
    assert "is zero at the optimizer, so nothing is learned" in suspect.description
    assert any("set to zero" in action for action in suspect.suggested_actions)


def test_another_objective_under_a_clip_is_no_clipping(tmp_path: Path) -> None:
    found = compared(train(tmp_path, by_norm(1.0), scale=2.0), train(tmp_path, by_norm(1.0)))
    assert found.diagnosis.top_suspect is not None
    assert found.diagnosis.top_suspect.category == "objective"


def test_a_loop_that_fails_leaves_backward_as_it_was(tmp_path: Path) -> None:
    before = torch.autograd.backward

    def fails(parameters: list[torch.nn.Parameter]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(tmp_path, fails)
    assert torch.autograd.backward is before
