"""Each type of alert: a run in which it must fire, and its nearest healthy neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from canary.anomaly import Observation
from canary.record.alert import SEVERITIES
from tests.unit.observing import (
    agreement,
    before_after,
    cosine,
    growing,
    judged,
    rewards,
    run,
    types,
    wobble,
)

Run = Sequence[Observation]


def at_20(before: Any, after: Any) -> Any:
    return before_after(before, after, 20)


def falling(step: int) -> float:
    """A loss as it learns."""
    return 1.0 + 4.0 * math.exp(-step / 20) + 0.02 * math.sin(step)


FIRES: dict[str, dict[str, Run]] = {
    "gradient_explosion": {
        "in a loop whose rewards are equal in each step": run(
            30, grad_norm=before_after(wobble(1.0), 100.0, 20), no_signal=True
        ),
        "a norm of a thousand times the usual": run(
            30, grad_norm=before_after(wobble(1.0), 1000.0, 20)
        ),
        "from the first step on": run(3, grad_norm=20000.0),
    },
    "gradient_vanishing": {
        "no gradient from the first step": run(3, grad_norm=1e-9),
        "it goes away": run(30, grad_norm=before_after(wobble(1.0), 0.0, 20)),
    },
    "gradient_variance": {
        "norms that jump by a hundred": run(60, grad_norm=lambda n: 0.05 if n % 2 else 5.0),
    },
    "lr_too_high": {"a rate of 3": run(3, learning_rates=(3.0,))},
    "lr_too_low": {
        "held at 1e-10": run(20, learning_rates=(1e-10,)),
        "a schedule that ended long before the training": run(
            60, learning_rates=before_after(cosine(30), (0.0,), 31)
        ),
    },
    "lr_sudden_change": {
        "ten times as high": run(20, learning_rates=before_after((1e-4,), (1e-3,), 10)),
        "at the second step, by hand": run(
            2, learning_rates=lambda n: (1e-3 if n == 1 else 1e-2,), peak_rates=(None,)
        ),
        "of the second group alone": run(
            20, learning_rates=before_after((1e-4, 1e-4), (1e-4, 1e-2), 10)
        ),
    },
    "batch_size_impact": {
        "a worse loss": run(
            40,
            batch_size=before_after(8, 64, 21),
            loss=before_after(wobble(1.0), wobble(1.6), 21),
        ),
        "dearer samples": run(
            40,
            batch_size=before_after(64, 8, 21),
            wall_s=before_after(wobble(0.64), wobble(0.16), 21),
        ),
    },
    "convergence_plateau": {
        "a loss that stands still": run(60, loss=0.5),
        "240 steps with noise of 2%": run(240, loss=wobble(2.0, 0.02)),
        "the same after it learned": run(
            320, loss=lambda n: wobble(1 + 3 * math.exp(-n / 15), 0.02)(n), learning_rates=(1e-4,)
        ),
    },
    "convergence_divergence": {
        "2% per step for 50 steps": run(50, loss=growing(2.0, 1.02)),
        "2% per step with noise of 5%, after it learned": run(
            130, loss=lambda n: wobble(falling(n) if n < 80 else falling(79) * 1.02 ** (n - 79))(n)
        ),
        "after it had learned": run(
            120, loss=lambda n: falling(n) if n < 80 else falling(79) * 1.06 ** (n - 79)
        ),
        "2 to 160 in 25 steps": run(25, loss=growing(2.0, 80 ** (1 / 24))),
        "14 steps at far too high a rate": run(14, loss=growing(1.5, 1.5)),
    },
    "loss_spike": {
        "one bad batch": run(40, loss=lambda n: 12.0 if n == 30 else falling(n)),
    },
    "calibration_poor": {
        "predictions that miss by half": run(20, agreement=agreement(wobble(0.5))),
        "one step of many samples": run(1, agreement=agreement(1.2, count=256)),
    },
    "calibration_drift": {
        "errors that double": run(
            120, agreement=agreement(before_after(wobble(0.1), wobble(0.28), 90))
        ),
    },
    "reward_distribution_drift": {
        "rewards that fall": run(120, rewards=rewards(before_after(wobble(1.0), wobble(0.4), 90))),
        "a spread that triples": run(
            120, rewards=lambda n: rewards(wobble(1.0), 0.2 if n < 90 else 0.7)(n)
        ),
    },
    "loss_not_finite": {
        "NaN": run(5, loss=before_after(1.0, math.nan, 4)),
    },
    "kl_not_finite": {"NaN": run(5, kl=before_after(0.1, math.nan, 4))},
    "reward_not_finite": {
        "NaN": run(5, rewards=rewards(before_after(1.0, math.nan, 4))),
        "Inf": run(5, rewards=rewards(before_after(1.0, math.inf, 4))),
    },
    "gradient_not_finite": {"Inf": run(5, grad_norm=before_after(1.0, math.inf, 4))},
    "kl_blowup": {
        "a policy that runs away": run(60, kl=before_after(wobble(0.05), growing(1e-4, 1.2), 40)),
        "from the second step on": run(4, kl=before_after(0.0, wobble(8.0), 2)),
    },
    "entropy_collapse": {
        "to a single answer": run(60, entropy=before_after(wobble(1.0), 0.02, 40)),
        "at the second step": run(4, entropy=before_after(2.15, 5e-4, 2)),
    },
    "clip_fraction_saturation": {
        "most of the tokens": run(30, clip_fraction=before_after(wobble(0.1), 0.8, 15)),
    },
}

SILENT: dict[str, dict[str, Run]] = {
    "gradient_explosion": {
        "norms of 15, never otherwise": run(60, grad_norm=wobble(15.0)),
        "norms that are always large": run(60, grad_norm=wobble(60.0)),
        "the first step of a fresh head": run(60, grad_norm=lambda n: 1 + 40 * math.exp(-n / 3)),
        "small norms that grow": run(40, grad_norm=growing(1e-3, 1.1)),
    },
    "gradient_vanishing": {
        "a group of equal rewards": run(
            30, grad_norm=lambda n: 0.0 if n % 5 == 0 else 1.0, no_signal=lambda n: n % 5 == 0
        ),
        "one step without": run(30, grad_norm=lambda n: 0.0 if n == 20 else 1.0),
    },
    "gradient_variance": {
        "noise of a fifth": run(200, grad_norm=wobble(1.0, 0.2)),
        "a policy's long tail": run(200, grad_norm=lambda n: math.exp(wobble(0, 1)(n) + n % 3)),
    },
    "lr_too_high": {"a rate of 1": run(3, learning_rates=(1.0,))},
    "lr_too_low": {
        "a decay to zero": run(100, learning_rates=cosine(100)),
        "a warm-up from zero": run(100, learning_rates=cosine(10_000, 1e-5, 5000)),
    },
    "lr_sudden_change": {"two groups that differ": run(20, learning_rates=(1e-5, 1e-3))},
    "batch_size_impact": {
        "the short last batch of an epoch": run(
            60,
            batch_size=lambda n: 3 if n % 15 == 0 else 8,
            loss=lambda n: 4.0 if n % 15 == 0 else 1.0,
        )
    },
    "convergence_plateau": {
        "a policy's loss, which is zero": run(60, loss=0.0),
        "a warm-up so slow that nothing moves yet": run(
            60, loss=0.6931, learning_rates=cosine(10_000, 1e-6, 1000)
        ),
        "slow learning with noise of 2%": run(300, loss=lambda n: wobble(2 * n**-0.05, 0.02)(n)),
        "slow learning, linear": run(240, loss=lambda n: wobble(2 - 0.0004 * n, 0.02)(n)),
        "noise that hides whether it learns": run(300, loss=wobble(2.0, 0.2)),
        "what online RL minimises": run(
            300, loss=wobble(2.0, 0.02), rewards=rewards(wobble(1.0, 0.05))
        ),
        "the end of a decay": run(
            100,
            loss=lambda n: falling(n) if n < 45 else 1.5,
            learning_rates=lambda n: (1e-4,) if n < 45 else (1e-6,),
        ),
    },
    "convergence_divergence": {
        "a loss that falls": run(200, loss=falling),
        "half as high again after new data": run(
            120, loss=before_after(wobble(1.0), wobble(1.6), 60)
        ),
        "a rise by a quarter": run(100, loss=lambda n: wobble(1 + 0.0025 * n)(n)),
        "one spike": run(100, loss=lambda n: 50.0 if n == 60 else falling(n)),
        "a penalty that begins at zero": run(40, loss=lambda n: 1e-4 * n * n),
        "what online RL minimises": run(
            40, loss=lambda n: 0.01 * n * n, rewards=rewards(wobble(1.0, 0.05))
        ),
        "nothing left to learn, and then a little more": run(
            200, loss=lambda n: 2.0 * 0.9**n if n < 60 else 0.02
        ),
    },
    "loss_spike": {
        "a batch half again as hard": run(40, loss=lambda n: 3.0 if n == 30 else 2.0),
        "a policy's losses about zero": run(60, loss=lambda n: 0.5 if n == 30 else wobble(0, 1)(n)),
    },
    "calibration_poor": {
        "one step of few samples": run(1, agreement=agreement(1.2, count=4)),
        "rewards that are all zero": run(60, agreement=agreement(0.0, scale=0.0)),
    },
    "calibration_drift": {
        "errors that come and go": run(200, agreement=agreement(wobble(0.1, 0.2))),
        "errors that become less": run(
            120, agreement=agreement(before_after(wobble(0.28), wobble(0.1), 90))
        ),
    },
    "reward_distribution_drift": {
        "rewards that rise as it learns": run(200, rewards=rewards(lambda n: 0.1 + 0.01 * n)),
        "a spread that narrows": run(120, rewards=lambda n: rewards(1.0, 50 / (50 + n))(n)),
    },
    "loss_not_finite": {"a large loss": run(5, loss=1e30)},
    "kl_not_finite": {"none, and large ones": run(5, kl=lambda n: 1e30 if n > 3 else 0.1)},
    "reward_not_finite": {"large ones": run(5, rewards=rewards(1e30))},
    "gradient_not_finite": {"none": run(5, loss=1.0)},
    "kl_blowup": {
        "a policy that leaves its reference slowly": run(200, kl=lambda n: 0.003 * n),
        "one step": run(60, kl=lambda n: 100.0 if n == 40 else 0.1),
        "from its reference to 4.5 nats a token": run(60, kl=lambda n: 4.5 - 4.5 / n),
        "a whole completion's": run(60, kl=lambda n: 0.1 * n, kl_of_sequence=True),
    },
    "entropy_collapse": {
        "down to a third": run(100, entropy=lambda n: 1 / (1 + 0.02 * n)),
        "one step, soon after the start": run(9, entropy=lambda n: 1e-3 if n == 3 else 1.0),
    },
    "clip_fraction_saturation": {"a third of the tokens": run(60, clip_fraction=0.33)},
}

DOCUMENTED = {
    "gradient_explosion": "critical",
    "gradient_vanishing": "high",
    "gradient_variance": "medium",
    "lr_too_high": "high",
    "lr_too_low": "medium",
    "lr_sudden_change": "medium",
    "batch_size_impact": "medium",
    "convergence_plateau": "medium",
    "convergence_divergence": "high",
    "calibration_poor": "medium",
    "calibration_drift": "medium",
    "reward_distribution_drift": "medium",
    "loss_not_finite": "critical",
    "gradient_not_finite": "critical",
    "kl_not_finite": "high",
    "reward_not_finite": "high",
    "kl_blowup": "high",
    "entropy_collapse": "high",
    "clip_fraction_saturation": "medium",
    "loss_spike": "medium",
}


def cases(table: dict[str, dict[str, Run]]) -> list[Any]:
    return [
        pytest.param(kind, observations, id=f"{kind}: {words}")
        for kind, runs in table.items()
        for words, observations in runs.items()
    ]


def test_every_type_is_tried_both_ways() -> None:
    assert set(FIRES) == set(SILENT) == set(DOCUMENTED)


@pytest.mark.parametrize(("kind", "observations"), cases(FIRES))
def test_it_fires(kind: str, observations: Run) -> None:
    found = [alert for alert in judged(observations) if alert.type == kind]
    assert found, types(observations)
    first = found[0]
    assert first.severity == DOCUMENTED[kind]
    assert first.severity in SEVERITIES
    assert first.message
    assert 1 <= first.step <= len(observations)
    assert first.value is not None


@pytest.mark.parametrize(("kind", "observations"), cases(SILENT))
def test_it_keeps_silent(kind: str, observations: Run) -> None:
    assert kind not in types(observations)


LIMITS: list[tuple[str, str, tuple[float, float, float], Callable[[Any], Run]]] = [
    ("gradient", "explosion_threshold", (3, 5, 2.5), lambda v: run(30, grad_norm=at_20(1.0, v))),
    ("gradient", "vanishing_threshold", (0.1, 0.05, 0.2), lambda v: run(5, grad_norm=v)),
    (
        *("learning_rate", "change_threshold", (0.1, 1.25e-4, 1.05e-4)),
        lambda v: run(20, learning_rates=before_after((1e-4,), (v,), 10)),
    ),
    ("learning_rate", "min_lr", (1e-5, 5e-6, 2e-5), lambda v: run(20, learning_rates=(v,))),
    ("learning_rate", "max_lr", (1e-3, 2e-3, 1e-3), lambda v: run(2, learning_rates=(v,))),
    (
        *("batch_size", "performance_threshold", (0.5, 2, 1.4)),
        lambda v: run(40, batch_size=at_20(8, 64), loss=at_20(wobble(1), wobble(v))),
    ),
    (
        *("convergence", "plateau_threshold", (0.1, 0.02, 0.2)),
        lambda v: run(60, loss=lambda n: 1 + v * (n % 2)),
    ),
    ("convergence", "plateau_window", (10, 12, 9), lambda v: run(v, loss=1.0)),
    (
        *("reward_drift", "drift_threshold", (0.5, 0.2, 0.7)),
        lambda v: run(120, rewards=rewards(before_after(wobble(1), wobble(v), 90))),
    ),
    (
        *("reward_drift", "calibration_threshold", (0.95, 0.2, 0.02)),
        lambda v: run(20, agreement=agreement(wobble(v))),
    ),
    ("rlhf", "kl_limit", (10, 20, 5), lambda v: run(30, kl=at_20(0.1, v))),
    ("rlhf", "entropy_floor", (0.5, 0.4, 0.6), lambda v: run(30, entropy=at_20(1.0, v))),
    ("rlhf", "clip_limit", (0.2, 0.3, 0.1), lambda v: run(30, clip_fraction=v)),
]


@pytest.mark.parametrize(("section", "name", "values", "made"), LIMITS)
def test_every_threshold_moves_what_it_names(
    section: str, name: str, values: tuple[float, float, float], made: Callable[[Any], Run]
) -> None:
    limit, *sides = values
    arguments: dict[str, Any] = {section: {name: limit}}
    beyond, within = map(made, sides)
    assert types(beyond, **arguments)
    assert not types(within, **arguments)
    # The default judges one of the two otherwise.
    assert any(types(each) != types(each, **arguments) for each in (beyond, within))


@pytest.mark.parametrize(
    ("section", "settings", "observations"),
    [
        ("gradient", {"explosion_threshold": 10.0}, run(1, grad_norm=15.0)),
        ("gradient", {"explosion_threshold": 10.0}, run(30, grad_norm=at_20(wobble(9.0), 15.0))),
        ("gradient", {"vanishing_threshold": 1e-3}, run(30, grad_norm=at_20(wobble(1.0), 1e-4))),
        ("rlhf", {"kl_limit": 1.0}, run(30, kl=at_20(0.9, 1.5))),
        ("rlhf", {"kl_limit": 1.0}, run(30, kl=at_20(0.9, 1.5), kl_of_sequence=True)),
    ],
)
def test_a_limit_that_the_user_sets_is_taken_as_given(
    section: str, settings: dict[str, float], observations: Run
) -> None:
    arguments: dict[str, Any] = {section: settings}
    found = judged(observations, **arguments)
    assert found
    assert found[0].threshold in settings.values()
    late = 20 if len(observations) > 1 else 1
    assert late <= found[0].step <= late + 3
    assert not types(observations), "the default compares with what is usual"
