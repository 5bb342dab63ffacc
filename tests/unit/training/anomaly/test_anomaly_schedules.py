"""Learning-rate schedules are no anomalies: those of torch and transformers, of many lengths, with
what the optimizer tells of its scheduler, and as bare rates as a row has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
)

from canary.anomaly import AdvancedAnomalyDetector, Observation
from canary.training.anomaly.measure import rates_of

Make = Callable[[torch.optim.Optimizer, int], LRScheduler]


def of_transformers(name: str, warmup: float) -> Make:
    def make(optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler:
        from transformers import get_scheduler

        more: dict[str, Any] = {}
        if name == "warmup_stable_decay":
            more["scheduler_specific_kwargs"] = {"num_decay_steps": max(2, steps // 4)}
        elif name == "cosine_with_restarts":
            more["scheduler_specific_kwargs"] = {"num_cycles": 4}
        elif name == "cosine_with_min_lr":
            more["scheduler_specific_kwargs"] = {"min_lr_rate": 0.1}
        count = int(warmup) if warmup >= 1 else int(warmup * steps)
        return get_scheduler(name, optimizer, count, steps, **more)

    return make


def ramp_then_decay(optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler:
    first = max(2, steps // 10)
    return SequentialLR(
        optimizer,
        [
            LinearLR(optimizer, start_factor=0.01, total_iters=first),
            ExponentialLR(optimizer, gamma=0.97),
        ],
        [first],
    )


SCHEDULES: dict[str, Make] = {
    f"{name}, warm-up {warmup}": of_transformers(name, warmup)
    for name in (
        "linear",
        "cosine",
        "cosine_with_restarts",
        "cosine_with_min_lr",
        "polynomial",
        "constant_with_warmup",
        "inverse_sqrt",
        "warmup_stable_decay",
    )
    for warmup in (0, 1, 5, 0.1)
    if not (name == "inverse_sqrt" and warmup == 0)  # divides by it
} | {
    "constant": of_transformers("constant", 0),
    "one cycle": lambda optimizer, steps: OneCycleLR(optimizer, 1e-4, total_steps=steps),
    "root decay": lambda optimizer, steps: PolynomialLR(optimizer, total_iters=steps, power=0.5),
    "warm restarts": lambda optimizer, _: CosineAnnealingWarmRestarts(optimizer, T_0=10),
    "ramp, then exponential": ramp_then_decay,
}


SHORTEST = {"cosine_with_restarts": 30, "one cycle": 10}
"""A cosine of two steps, or a rise by twenty times in one, has no shape to be told by."""


def rates(make: Make, steps: int) -> Iterator[torch.optim.Optimizer]:
    """The optimizer at each step of a schedule."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-4)
    schedule = make(optimizer, steps)
    for _ in range(steps):
        yield optimizer
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the optimizer never steps here
            schedule.step()


@pytest.mark.parametrize("steps", [4, 10, 30, 100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_schedule_raises_nothing(steps: int) -> None:
    for name, make in SCHEDULES.items():
        if steps < SHORTEST.get(name.split(",")[0], 0):
            continue
        with_optimizer = AdvancedAnomalyDetector(save_alerts=False)
        bare = AdvancedAnomalyDetector(save_alerts=False)
        raised = []
        for step, optimizer in enumerate(rates(make, steps), 1):
            now, peaks = rates_of(optimizer)
            plain = tuple(float(rate) for rate in now)
            raised += with_optimizer.judge(
                Observation(step=step, learning_rates=plain, peak_rates=peaks)
            )
            raised += bare.judge(Observation(step=step, learning_rates=plain))
        assert not raised, (name, [(alert.message, alert.step) for alert in raised])


@pytest.mark.parametrize("steps", [10, 100, 1000])
def test_a_schedule_by_hand_raises_nothing(steps: int) -> None:
    """As many a loop has it: warm-up and cosine computed, and put into the group."""
    import math

    detector = AdvancedAnomalyDetector(save_alerts=False)
    warmup = max(1, steps // 10)
    for it in range(steps):
        if it < warmup:
            rate = 6e-4 * (it + 1) / (warmup + 1)
        else:
            share = (it - warmup) / (steps - warmup)
            rate = 6e-5 + 0.5 * (1 + math.cos(math.pi * share)) * (6e-4 - 6e-5)
        observation = Observation(step=it + 1, learning_rates=(rate,), peak_rates=(None,))
        assert not detector.judge(observation), it


@pytest.mark.parametrize("updates", [300, 30_000])
def test_a_linear_decay_of_several_steps_per_rate_raises_nothing(updates: int) -> None:
    """As cleanrl's PPO: it lowers the rate once per rollout, and takes 16 steps at each rate."""
    for shown in (range(40), range(updates - 40, updates)):
        detector = AdvancedAnomalyDetector(save_alerts=False)
        for number, update in enumerate(shown):
            rate = (1.0 - update / updates) * 2.5e-4
            for step in range(16 * number + 1, 16 * number + 17):
                observation = Observation(step=step, learning_rates=(rate,), peak_rates=(None,))
                assert not detector.judge(observation), (update, rate)


def test_drops_by_hand_to_a_tenth_are_reported_each() -> None:
    detector = AdvancedAnomalyDetector(save_alerts=False)
    found = []
    for step in range(1, 91):
        rate = 1e-3 * 0.1 ** (step // 30)
        found += detector.judge(Observation(step=step, learning_rates=(rate,), peak_rates=(None,)))
    assert [alert.step for alert in found] == [30, 60, 90]
