"""Simulated training runs with realistic noise, to judge gates on metrics.

The module knows nothing of the gates. A seed stands for a kind of run: one program, one model, one
machine. Runs of a kind differ by their number: by the noise between runs and within a run.
`history` gives earlier runs of a kind, `healthy` a new one, `faulty` the same new one with a fault.
A fault leaves all random draws as they are, so the two differ by the fault and by what follows from
it: a policy that learns less also has other lengths, entropies and step times.

All sizes are assumed, from general knowledge of training on GPUs: none was measured for this
module. Medians of whole runs spread by about 1% (quiet), 4% (shared) and 4% (noisy RL). Stalls are
heavy in their tail: file systems, network. The first steps are slow: compilation, caches. Rewards
are success rates of independent samples. Seeds of online RL differ much in the time of their rise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Series = dict[str, list[float]]
STALL = 25.0
"""A stalled step takes so many times as long."""


@dataclass(frozen=True)
class Laboratory:
    """How noisy the runs of one place are. Standard deviations are relative unless said."""

    name: str
    time_between: float  # step time, from run to run
    time_within: float  # step time, within a run
    generation_share: float  # of the step time, that goes with the completion length
    stall_chance: float  # per step
    neighbour_chance: float  # per step, that a neighbour starts to disturb
    drift_chance: float  # that step times drift over the history
    drift: float  # largest drift over 30 runs
    loss_between: float
    loss_within: float
    reward_samples: int  # independent samples per step
    reward_timing: float  # shift of the rise from run to run, as a share of the run
    reward_plateau: float  # absolute shift of the plateau from run to run
    reward_wander: float  # absolute, slow, within a run
    policy_between: float  # kl, entropy and length, from run to run
    policy_within: float
    mismatch_within: float  # absolute
    spike_chance: float  # per step, of a single spike of the mismatch


LABORATORIES: Mapping[str, Laboratory] = {
    each.name: each
    for each in (
        Laboratory(
            name="quiet_gpu",
            time_between=0.010,
            time_within=0.015,
            generation_share=0.0,
            stall_chance=0.003,
            neighbour_chance=0.0,
            drift_chance=0.0,
            drift=0.0,
            loss_between=0.004,
            loss_within=0.02,
            reward_samples=96,
            reward_timing=0.04,
            reward_plateau=0.02,
            reward_wander=0.01,
            policy_between=0.03,
            policy_within=0.05,
            mismatch_within=0.002,
            spike_chance=0.001,
        ),
        Laboratory(
            name="shared_gpu",
            time_between=0.030,
            time_within=0.040,
            generation_share=0.1,
            stall_chance=0.015,
            neighbour_chance=0.002,
            drift_chance=0.5,
            drift=0.08,
            loss_between=0.004,
            loss_within=0.03,
            reward_samples=64,
            reward_timing=0.05,
            reward_plateau=0.03,
            reward_wander=0.015,
            policy_between=0.04,
            policy_within=0.07,
            mismatch_within=0.004,
            spike_chance=0.002,
        ),
        Laboratory(
            name="noisy_rl",
            time_between=0.020,
            time_within=0.030,
            generation_share=0.3,
            stall_chance=0.006,
            neighbour_chance=0.0,
            drift_chance=0.2,
            drift=0.04,
            loss_between=0.015,
            loss_within=0.06,
            reward_samples=16,
            reward_timing=0.12,
            reward_plateau=0.06,
            reward_wander=0.03,
            policy_between=0.10,
            policy_within=0.12,
            mismatch_within=0.010,
            spike_chance=0.004,
        ),
    )
}


FAULTS: Mapping[str, Mapping[str, float]] = {
    "slower_10": {"step_time_factor": 1.10},
    "reward_worse_large": {"reward_loss": 0.35, "reward_delay": 0.25},
    "entropy_collapse": {"entropy_collapse_at": 0.35},
    "mismatch_spike": {"mismatch_spike_at": 0.55},
    "one_stall": {"stall_at": 0.7},
}
"""What is planted into a healthy run: arguments of `simulate`."""


@dataclass(frozen=True)
class _Kind:
    """What all runs of a seed have in common."""

    step_time: float
    drift_per_run: float
    loss_floor: float
    loss_fall: float
    loss_pace: float  # as a share of the run
    reward_start: float
    reward_plateau: float
    reward_middle: float  # of the rise, as a share of the run
    reward_width: float
    kl: float
    entropy: float
    entropy_kept: float
    length: float
    length_growth: float
    mismatch: float


def simulate(
    seed: int,
    *,
    run: int = 0,
    steps: int = 200,
    laboratory: str = "quiet_gpu",
    step_time_factor: float = 1.0,
    stall_at: float | None = None,
    reward_loss: float = 0.0,
    reward_delay: float = 0.0,
    entropy_collapse_at: float | None = None,
    mismatch_spike_at: float | None = None,
) -> Series:
    """One run: a value per step of each metric.

    The defaults are healthy. `reward_loss` is the share of the rise that is lost, `reward_delay`
    how much later it comes; times (`..._at`, `reward_delay`) are shares of the run.
    """
    lab = LABORATORIES[laboratory]
    kind = _kind(seed, lab)
    place = f"{seed}/{laboratory}/{run}"
    collapse = _rise(steps, entropy_collapse_at, 0.04)

    reward, progress = _reward(
        random.Random(f"{place}/reward"),
        lab,
        kind,
        steps,
        lost=reward_loss,
        delay=reward_delay,
        frozen_at=entropy_collapse_at,
    )
    lengths = _lengths(random.Random(f"{place}/length"), lab, kind, progress)
    times = _times(random.Random(f"{place}/time"), lab, kind, run, lengths, steps)
    if stall_at is not None:
        times[_step(stall_at, steps)] *= STALL
    return {
        "step_time_s": [each * step_time_factor for each in times],
        "loss": _loss(random.Random(f"{place}/loss"), lab, kind, steps),
        "reward": reward,
        "kl": _kl(random.Random(f"{place}/kl"), lab, kind, progress, collapse),
        "entropy": _entropy(random.Random(f"{place}/entropy"), lab, kind, progress, collapse),
        "completion_length": lengths,
        "mismatch": _mismatch(
            random.Random(f"{place}/mismatch"), lab, kind.mismatch, steps, mismatch_spike_at
        ),
    }


def history(seed: int, runs: int = 30, **how: Any) -> list[Series]:
    """Earlier healthy runs of a kind, oldest first. `how` goes to `simulate`."""
    return [simulate(seed, run=number, **how) for number in range(runs)]


def healthy(seed: int, runs: int = 30, **how: Any) -> Series:
    """The next run of the kind, after `runs` earlier ones, without a fault."""
    return simulate(seed, run=runs, **how)


def faulty(seed: int, fault: str, runs: int = 30, **how: Any) -> Series:
    """The run of `healthy` with a fault of FAULTS in it."""
    return simulate(seed, run=runs, **{**how, **FAULTS[fault]})


def _kind(seed: int, lab: Laboratory) -> _Kind:
    draw = random.Random(f"{seed}/{lab.name}/kind")
    drifts = draw.random() < lab.drift_chance
    drift = draw.uniform(-lab.drift, lab.drift) / 30
    return _Kind(
        step_time=math.exp(draw.uniform(math.log(0.3), math.log(20.0))),
        drift_per_run=drift if drifts else 0.0,
        loss_floor=draw.uniform(0.8, 1.6),
        loss_fall=draw.uniform(0.6, 2.0),
        loss_pace=draw.uniform(0.08, 0.25),
        reward_start=draw.uniform(0.02, 0.15),
        reward_plateau=draw.uniform(0.5, 0.9),
        reward_middle=draw.uniform(0.25, 0.45),
        reward_width=draw.uniform(0.04, 0.10),
        kl=math.exp(draw.uniform(math.log(0.01), math.log(0.2))),
        entropy=draw.uniform(0.6, 2.0),
        entropy_kept=draw.uniform(0.45, 0.8),
        length=math.exp(draw.uniform(math.log(120.0), math.log(1500.0))),
        length_growth=draw.uniform(-0.2, 0.6),
        mismatch=draw.choice((0.0, 1.0)),
    )


def _times(
    draw: random.Random,
    lab: Laboratory,
    kind: _Kind,
    run: int,
    lengths: list[float],
    steps: int,
) -> list[float]:
    """Seconds per step. Longer completions take longer."""
    level = kind.step_time * math.exp(draw.gauss(0.0, lab.time_between) + kind.drift_per_run * run)
    first, fades = draw.uniform(2.0, 9.0), draw.uniform(0.4, 0.9)
    noise = _ar1(draw, steps, 0.6, lab.time_within)
    disturbed, slower = 0, 1.0
    times = []
    for step in range(steps):
        value = level * math.exp(noise[step])
        value *= 1.0 + lab.generation_share * (lengths[step] / kind.length - 1.0)
        value *= 1.0 + first * math.exp(-step / fades)
        starts, lasts, strength = draw.random(), draw.expovariate(1 / 25), draw.uniform(1.05, 1.35)
        if not disturbed and starts < lab.neighbour_chance:
            disturbed, slower = 1 + int(lasts), strength
        if disturbed:
            value *= slower
            disturbed -= 1
        stalls, size = draw.random(), 0.5 * draw.paretovariate(1.8)
        if stalls < lab.stall_chance:
            value += level * min(size, 30.0)
        times.append(value)
    return times


def _loss(draw: random.Random, lab: Laboratory, kind: _Kind, steps: int) -> list[float]:
    """A loss that falls to a floor."""
    level = math.exp(draw.gauss(0.0, lab.loss_between))
    pace = kind.loss_pace * math.exp(draw.gauss(0.0, 0.05)) * steps
    noise = _ar1(draw, steps, 0.3, lab.loss_within)
    return [
        level * (kind.loss_floor + kind.loss_fall * math.exp(-step / pace)) * math.exp(noise[step])
        for step in range(steps)
    ]


def _reward(
    draw: random.Random,
    lab: Laboratory,
    kind: _Kind,
    steps: int,
    *,
    lost: float,
    delay: float,
    frozen_at: float | None,
) -> tuple[list[float], list[float]]:
    """Rewards, and how far the policy has come (0 to 1) at each step."""
    start = max(0.0, kind.reward_start + draw.gauss(0.0, 0.01))
    plateau = min(0.98, kind.reward_plateau + draw.gauss(0.0, lab.reward_plateau))
    middle = max(0.05, kind.reward_middle + draw.gauss(0.0, lab.reward_timing)) + delay
    width = kind.reward_width * math.exp(draw.gauss(0.0, 0.15))
    wander = _ar1(draw, steps, 0.95, lab.reward_wander)
    rewards, progress = [], []
    for step in range(steps):
        time = step / steps if frozen_at is None else min(step / steps, frozen_at + 0.04)
        reached = (1.0 - lost) / (1.0 + math.exp(-(time - middle) / width))
        mean = start + (plateau - start) * reached + wander[step] * (0.2 + reached)
        mean = min(0.999, max(0.001, mean))
        noise = draw.gauss(0.0, math.sqrt(mean * (1.0 - mean) / lab.reward_samples))
        rewards.append(min(1.0, max(0.0, mean + noise)))
        progress.append(reached)
    return rewards, progress


def _lengths(
    draw: random.Random, lab: Laboratory, kind: _Kind, progress: list[float]
) -> list[float]:
    """Tokens per completion: they grow or shrink with the policy."""
    level = kind.length * math.exp(draw.gauss(0.0, lab.policy_between))
    noise = _ar1(draw, len(progress), 0.5, lab.policy_within)
    return [
        level * (1.0 + kind.length_growth * done) * math.exp(noise[step])
        for step, done in enumerate(progress)
    ]


def _kl(
    draw: random.Random,
    lab: Laboratory,
    kind: _Kind,
    progress: list[float],
    collapse: list[float],
) -> list[float]:
    """The distance from the first policy: it grows with the progress."""
    level = kind.kl * math.exp(draw.gauss(0.0, 2 * lab.policy_between))
    noise = _ar1(draw, len(progress), 0.7, 2 * lab.policy_within)
    values = []
    for step, done in enumerate(progress):
        slow = 0.3 * (step / len(progress))
        value = level * (0.01 + done + slow + 4.0 * collapse[step]) * math.exp(noise[step])
        chance, size = draw.random(), draw.uniform(2.0, 5.0)
        values.append(value * size if chance < 0.003 else value)
    return values


def _entropy(
    draw: random.Random,
    lab: Laboratory,
    kind: _Kind,
    progress: list[float],
    collapse: list[float],
) -> list[float]:
    """Entropy per token: it falls with the progress, and stays well above 0 if healthy."""
    level = kind.entropy * math.exp(draw.gauss(0.0, lab.policy_between))
    kept = min(0.9, kind.entropy_kept * math.exp(draw.gauss(0.0, lab.policy_between)))
    noise = _ar1(draw, len(progress), 0.7, lab.policy_within)
    return [
        level
        * (1.0 - (1.0 - kept) * min(1.0, done))
        * (1.0 - 0.97 * collapse[step])
        * math.exp(noise[step])
        for step, done in enumerate(progress)
    ]


def _mismatch(
    draw: random.Random,
    lab: Laboratory,
    centre: float,
    steps: int,
    spike_at: float | None,
) -> list[float]:
    """Rollout engine against trainer: a ratio about 1, or a distance above 0."""
    noise = _ar1(draw, steps, 0.3, lab.mismatch_within)
    floor = 3.0 * lab.mismatch_within * math.exp(draw.gauss(0.0, 0.1))
    forced = None if spike_at is None else _step(spike_at, steps)
    values = []
    for step, off in enumerate(noise):
        chance, size = draw.random(), draw.uniform(10.0, 40.0)
        if chance < lab.spike_chance or step == forced:
            off += size * lab.mismatch_within
        values.append(centre + off if centre else max(0.0, floor + off))
    return values


def _ar1(draw: random.Random, steps: int, memory: float, size: float) -> list[float]:
    """Noise that remembers; `size` is its standard deviation at any step."""

    def values() -> Iterator[float]:
        value = draw.gauss(0.0, size)
        fresh = size * math.sqrt(1.0 - memory * memory)
        for _ in range(steps):
            yield value
            value = memory * value + draw.gauss(0.0, fresh)

    return list(values())


def _rise(steps: int, at: float | None, width: float) -> list[float]:
    """0 before a time, 1 after it; all 0 without a time."""
    if at is None:
        return [0.0] * steps
    return [1.0 / (1.0 + math.exp(-(step / steps - at) / (width / 2))) for step in range(steps)]


def _step(share: float, steps: int) -> int:
    return min(steps - 1, max(0, int(share * steps)))
