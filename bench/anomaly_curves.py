"""Synthetic trainings for `bench.anomaly`: healthy ones, and the same with one thing wrong.

All parameters are drawn; nobody chose a curve for a detector. A healthy loss still learns: a loss
that stands still is a plateau.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from canary.training.anomaly.observation import Agreement, Observation, Sample

LENGTHS = (60, 150, 300, 800)
SAMPLES = 32
Run = list[Observation]


def correlated(chance: random.Random, phi: float, sd: float) -> Iterator[float]:
    """Yield a stationary AR(1) series with mean 1 and standard deviation `sd`, clipped at 5 sd."""
    state = chance.gauss(0.0, 1.0)
    while True:
        yield 1.0 + sd * max(-5.0, min(5.0, state))
        state = phi * state + math.sqrt(1 - phi * phi) * chance.gauss(0.0, 1.0)


def _loss(chance: random.Random, steps: int) -> Callable[[int], float]:
    """Return a loss without noise, by step: power law, exponential, epochs, preferences."""
    start, kind = (
        chance.uniform(0.5, 9.0),
        chance.choice(("power", "decay", "epochs", "preference")),
    )
    if kind == "power":
        power, first = chance.uniform(0.1, 0.5), chance.uniform(1.0, 20.0)
        return lambda n: start * (1 + n / first) ** -power
    if kind == "decay":
        floor, tau = chance.uniform(0.1, 0.7), steps * chance.uniform(0.4, 1.5)
        return lambda n: start * (floor + (1 - floor) * math.exp(-n / tau))
    if kind == "epochs":
        drop, length = chance.uniform(0.05, 0.3), max(10, steps // chance.randint(3, 6))
        return lambda n: start * (1 - drop) ** (n // length) * (1 + n / 5) ** -0.1
    low, middle = chance.uniform(0.1, 0.5), steps * chance.uniform(0.2, 0.6)
    return lambda n: low + (0.693 - low) / (1 + (n / middle) ** 2)


def _rate(chance: random.Random, steps: int) -> tuple[Callable[[int], float], bool]:
    """Return a learning rate by step, and whether a loop sets it by hand."""
    peak, warm = 10 ** chance.uniform(-6, -3), max(1, steps // chance.choice((10, 20, 50)))
    held = chance.choice((1, 4, 16))
    kind = chance.choice(("constant", "linear", "cosine", "stairs"))
    if kind == "constant":
        return lambda n: peak, chance.random() < 0.5
    if kind == "stairs":
        return lambda n: peak * (1 - (n // held * held) / steps), True

    def rate(n: int) -> float:
        if n < warm:
            return peak * n / warm
        share = (n - warm) / (steps - warm)
        return peak * ((1 - share) if kind == "linear" else 0.5 * (1 + math.cos(math.pi * share)))

    return rate, False


def healthy(seed: object, online: bool, least: int = 0) -> Run:
    """Return a healthy training of a drawn length; `online`: with rewards, as PPO and GRPO."""
    chance = random.Random(f"healthy {seed} {online}")
    steps = chance.choice([each for each in LENGTHS if each >= least])
    noise = chance.choice((0.005, 0.02, 0.05, 0.1, 0.2))
    series = [correlated(chance, chance.choice((0.0, 0.3, 0.8)), noise) for _ in range(12)]
    loss, (rate, by_hand) = _loss(chance, steps), _rate(chance, steps)
    norm, tail = 10 ** chance.uniform(-1.5, 1.5), chance.uniform(0.1, 0.7)
    reward, gain = chance.uniform(-2, 2), chance.uniform(0.0, 2.0)
    kl, entropy = 10 ** chance.uniform(-3, -0.5), chance.uniform(0.3, 3)
    settled, size = chance.uniform(0.4, 0.9), chance.choice((4, 16, 64))
    scale = max(0.3, abs(reward))
    found = []
    for n in range(steps):
        now = [next(each) for each in series]
        done = n / steps
        each = Observation(
            step=n + 1,
            loss=loss(n) * now[0],
            grad_norm=norm * (1 + 2 * math.exp(-n / 10)) * math.exp(tail * chance.gauss(0, 1)),
            learning_rates=(rate(n),),
            peak_rates=(None,) if by_hand else (),
            batch_size=size if (n + 1) % 40 else size // 2,
            wall_s=0.1 * now[1],
        )
        if online:
            error = 0.2 * scale * abs(now[10])
            mean = reward + gain * (1 - math.exp(-3 * done)) + 0.3 * (now[2] - 1)
            each = replace(
                each,
                loss=0.02 * chance.gauss(0, 1),
                surrogate=True,
                rewards=Sample(mean, 0.4 * now[3], SAMPLES),
                agreement=Agreement(error, error / 2, error / 3, scale**2, SAMPLES),
                kl=kl * (1 - math.exp(-5 * done)) * now[4],
                entropy=entropy * (1 - (1 - settled) * done) * now[5],
                clip_fraction=0.15 * now[6],
            )
        found.append(each)
    return found


Change = Callable[[random.Random, Run, int], Run]


def _from(first: int, run: Run, change: Callable[[int, Observation], Observation]) -> Run:
    """Return the run with `change(steps since, observation)` from the place `first` on."""
    return [each if n < first else change(n - first, each) for n, each in enumerate(run)]


def _times(name: str, low: float, high: float, steps: int = 10**6) -> Change:
    """Return a fault that multiplies a signal for some steps, by a factor drawn on a log scale."""

    def change(chance: random.Random, run: Run, first: int) -> Run:
        factor = math.exp(chance.uniform(math.log(low), math.log(high)))

        def wrong(n: int, one: Observation) -> Observation:
            return replace(one, **{name: getattr(one, name) * factor}) if n < steps else one

        return _from(first, run, wrong)

    return change


def _to(name: str, low: float, high: float) -> Change:
    """Return a fault after which a signal stays at a drawn value."""

    def change(chance: random.Random, run: Run, first: int) -> Run:
        value = math.exp(chance.uniform(math.log(low), math.log(high)))
        wrong: dict[str, Any] = {name: (value,) if name == "learning_rates" else value}
        return _from(first, run, lambda n, one: replace(one, **wrong))

    return change


def _unstable(chance: random.Random, run: Run, first: int) -> Run:
    factor = chance.uniform(20, 300)
    return _from(
        first, run, lambda n, one: replace(one, grad_norm=(one.grad_norm or 0) / factor ** (n % 2))
    )


def _rate_jumps(chance: random.Random, run: Run, first: int) -> Run:
    factor = chance.choice((0.05, 0.1, 0.3, 2.0, 3.0, 10.0))
    rate = 10 ** chance.uniform(-6, -3)
    flat = [replace(one, learning_rates=(rate,), peak_rates=(None,)) for one in run]
    return _from(first, flat, lambda n, one: replace(one, learning_rates=(rate * factor,)))


def _batch(chance: random.Random, run: Run, first: int) -> Run:
    factor = chance.uniform(1.4, 2.5)
    return _from(
        first,
        run,
        lambda n, one: replace(one, batch_size=256, loss=(one.loss or 0) * factor),
    )


def _plateau(chance: random.Random, run: Run, first: int) -> Run:
    first = min(first, len(run) - 240)
    level = run[first].loss or 1.0
    noise = correlated(chance, chance.choice((0.0, 0.3)), chance.choice((0.001, 0.005, 0.01, 0.02)))
    constant = [replace(one, learning_rates=(1e-4,), peak_rates=(None,)) for one in run]
    return _from(first, constant, lambda n, one: replace(one, loss=level * next(noise)))


def _divergence(chance: random.Random, run: Run, first: int) -> Run:
    growth, level = chance.uniform(1.02, 1.1), run[first].loss or 1.0
    noise = correlated(chance, 0.0, chance.choice((0.01, 0.03, 0.06)))
    return _from(
        first, run, lambda n, one: replace(one, loss=level * growth ** min(n, 80) * next(noise))
    )


def _error(low: float, high: float) -> Change:
    def change(chance: random.Random, run: Run, first: int) -> Run:
        factor = chance.uniform(low, high)
        return _from(first, run, lambda n, one: replace(one, agreement=_worse(one, factor)))

    return change


def _worse(one: Observation, factor: float) -> Agreement | None:
    was = one.agreement
    if was is None:
        return None
    return replace(
        was,
        error=was.error * factor,
        centred_error=was.centred_error * factor,
        centred_std=was.centred_std * factor,
    )


def _reward(chance: random.Random, run: Run, first: int) -> Run:
    fall, wider = chance.choice(((chance.uniform(0.4, 2), 1.0), (0.0, chance.uniform(2.5, 6))))

    def change(n: int, one: Observation) -> Observation:
        was = one.rewards
        assert was is not None
        return replace(one, rewards=Sample(was.mean - fall, (was.std or 0) * wider, was.count))

    return _from(first, run, change)


def _runaway(chance: random.Random, run: Run, first: int) -> Run:
    top, growth = chance.uniform(3, 20), chance.uniform(1.1, 1.6)
    return _from(first, run, lambda n, one: replace(one, kl=min(top, 0.05 * growth**n)))


def _not_a_number(name: str) -> Change:
    def change(chance: random.Random, run: Run, first: int) -> Run:
        wrong: dict[str, Any] = {name: math.nan}
        return _from(first, run, lambda n, one: replace(one, **wrong))

    return change


FAULTS: dict[str, tuple[bool, Change]] = {
    "gradient_explosion": (False, _times("grad_norm", 100, 3000, 3)),
    "gradient_vanishing": (False, _times("grad_norm", 1e-12, 1e-9)),
    "gradient_variance": (False, _unstable),
    "lr_too_high": (False, _to("learning_rates", 2, 50)),
    "lr_too_low": (False, _to("learning_rates", 1e-12, 5e-9)),
    "lr_sudden_change": (False, _rate_jumps),
    "batch_size_impact": (False, _batch),
    "convergence_plateau": (False, _plateau),
    "convergence_divergence": (False, _divergence),
    "calibration_poor": (True, _error(2.5, 6)),
    "calibration_drift": (True, _error(2.5, 6)),
    "reward_distribution_drift": (True, _reward),
    "loss_spike": (False, _times("loss", 3, 12, 1)),
    "loss_not_finite": (False, _not_a_number("loss")),
    "gradient_not_finite": (False, _not_a_number("grad_norm")),
    "kl_blowup": (True, _runaway),
    "entropy_collapse": (True, _times("entropy", 0.005, 0.06)),
    "clip_fraction_saturation": (True, _to("clip_fraction", 0.6, 0.95)),
}
"""By type: whether the training is online, and what goes wrong."""


def faulty(kind: str, seed: object) -> tuple[Run, int]:
    """Return a training with a fault of this kind, and the step at which it begins."""
    online, change = FAULTS[kind]
    run = healthy(f"{kind} {seed}", online, 300 if kind == "convergence_plateau" else 150)
    chance = random.Random(f"fault {kind} {seed}")
    first = chance.randint(80, len(run) - 50)
    return change(chance, run, first), first + 1
