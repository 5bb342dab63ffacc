"""False alarms and cost of live anomaly detection: `python -m bench.anomaly`.

- `noise`: runs in which nothing happens but noise, white or correlated from step to step, of every
  signal that a detector reads; the share of runs that raised any alert, with a 95% upper bound;
- `schedules`: learning-rate schedules of many lengths, over a loss that behaves;
- `cost`: CPU time of `analyze_training_step` on a model of 1.3 million parameters, in alternating
  rounds with and without it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from scipy import stats

from canary.anomaly.advanced import AdvancedAnomalyDetector
from canary.anomaly.observation import Agreement, Observation, Sample

PHIS = (0.0, 0.5, 0.8, 0.9, 0.95)
SDS = (0.001, 0.01, 0.05, 0.1, 0.2)
LENGTHS = (100, 300, 1000)
RUNS = 200


def correlated(chance: random.Random, phi: float, sd: float) -> Iterator[float]:
    """A stationary AR(1) series of mean 1 and standard deviation `sd`, cut off at five of them."""
    state = chance.gauss(0.0, 1.0)
    while True:
        yield 1.0 + sd * max(-5.0, min(5.0, state))
        state = phi * state + math.sqrt(1 - phi * phi) * chance.gauss(0.0, 1.0)


LEVELS = {
    "loss": (0.7, 2.0, 8.0),
    "grad_norm": (0.05, 1.0, 8.0),
    "wall_s": (0.1,),
    "kl": (0.01, 0.3, 5.0),
    "entropy": (0.05, 1.0),
    "clip_fraction": (0.05, 0.25),
    "length": (40.0, 400.0),
    "reward": (1.0, 0.5, -2.0),
    "spread": (0.3,),
    "error": (0.05, 0.15, 0.2),
}
"""Signals, and the levels that a run draws its own from. KL, like all, is a level of the run's."""


def noisy_run(
    seed: int, phi: float, sd: float, steps: int, around_zero: bool = False
) -> list[Observation]:
    """A run in which every signal is stationary noise. `around_zero`: rewards of mean zero."""
    chance = random.Random(f"{seed} {phi} {sd} {steps} {around_zero}")
    level = {name: chance.choice(levels) for name, levels in LEVELS.items()}
    series = {name: correlated(chance, phi, sd) for name in LEVELS}
    found = []
    for step in range(1, steps + 1):
        now = {name: level[name] * next(values) for name, values in series.items()}
        reward = now["reward"] - level["reward"] if around_zero else now["reward"]
        error = now["error"] * abs(level["reward"])
        agreement = Agreement(
            error=error,
            centred_error=error / 2,
            centred_std=error / 3,
            square=level["reward"] ** 2,
            count=64,
        )
        found.append(
            Observation(
                step=step,
                loss=now["loss"],
                grad_norm=now["grad_norm"],
                learning_rates=(1e-4,),
                batch_size=8 if step % 25 else 3,
                wall_s=now["wall_s"],
                rewards=Sample(reward, now["spread"], 64),
                agreement=agreement,
                kl=now["kl"],
                entropy=now["entropy"],
                clip_fraction=now["clip_fraction"],
                length=now["length"],
            )
        )
    return found


def alerts_of(observations: Sequence[Observation]) -> list[str]:
    """Types of all alerts of a run."""
    detector = AdvancedAnomalyDetector(save_alerts=False)
    return [alert.type for each in observations for alert in detector.judge(each)]


def upper(alarms: int, runs: int) -> float:
    """One-sided 95% upper bound of a share (Clopper-Pearson)."""
    return 1.0 if alarms == runs else float(stats.beta.ppf(0.95, alarms + 1, runs - alarms))


def noise(runs: int) -> None:
    """A line for each kind of noise, and for all of them."""
    total = alarmed = 0
    for phi in PHIS:
        for sd in SDS:
            for steps in LENGTHS:
                types: Counter[str] = Counter()
                bad = 0
                for seed in range(runs):
                    found = set(alerts_of(noisy_run(seed, phi, sd, steps, bool(seed % 2))))
                    types.update(found)
                    bad += bool(found)
                total, alarmed = total + runs, alarmed + bad
                print(
                    f"phi {phi:<4} sd {100 * sd:>4.1f}% {steps:>4} steps: {bad} of {runs} runs "
                    f"({100 * bad / runs:.1f}%, upper {100 * upper(bad, runs):.1f}%) {dict(types)}",
                    flush=True,
                )
    print(f"all: {alarmed} of {total} ({100 * alarmed / total:.2f}%)")
