"""Simulated training runs with realistic noise, to judge gates on metrics.

The module knows nothing of the gates. A seed stands for a kind of run: one program, one model, one
machine. Runs of a kind differ by their number: by the noise between runs and within a run.
`history` gives earlier runs of a kind, `healthy` a new one, `faulty` the same new one with a fault.
A fault leaves all random draws as they are, so the two differ by the fault and by what follows from
it: a policy that learns less also has other lengths, entropies and step times.

Where the sizes are from: all of them are assumed, from general knowledge of training on GPUs. None
was measured for this module.

- step time between runs, lognormal of 1% (quiet) to 3% (shared): clocks, temperature, placement, as
  repeated benchmarks on cloud machines commonly show. Assumed. With drift, and with lengths that
  differ, medians of whole runs spread by about 1% (quiet), 4% (shared) and 4% (noisy RL).
- step time within a run, AR(1) of 1.5% to 4%: batches of unequal length, data loading. Assumed.
- share of the step time that goes with the completion length, 0 to 0.3: generation in online RL.
  Assumed.
- stalls: 0.3% to 1.5% of steps, Pareto with exponent 1.8, at most 30 steps long: file systems,
  garbage collection, network. That such tails are heavy is well known; the exponent is assumed.
- first step 3 to 10 times as slow, gone after about four: compilation, caches, allocator. Assumed.
- drift over a history, up to 8% in 30 runs, and neighbours that slow 5% to 35% for some tens of
  steps: what users of shared GPUs report. Sizes assumed.
- loss noise of 2% to 6%, AR(1) of 0.3: sampling of batches at common batch sizes. Assumed.
- grad_norm lognormal of 20% to 40%, with rare spikes of 3 to 10 times: as logs of clipping
  commonly show. Assumed.
- reward: success rate of 16 to 96 independent samples per step (binomial noise); rise of the
  logistic curve shifted by 4% to 12% of the run between seeds; plateau shifted by 0.02 to 0.06.
  That seeds of online RL differ much in the time of their rise is well known; sizes assumed.
- kl, entropy, completion_length: shapes as public GRPO and PPO runs commonly show. Sizes assumed.
- mismatch of rollout engine and trainer: 0.2% to 1% about its centre, with a single spike in some
  runs: low precision kernels against a trainer in bfloat16. Assumed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Series = dict[str, list[float]]

METRICS = (
    "step_time_s",
    "loss",
    "grad_norm",
    "reward",
    "kl",
    "entropy",
    "completion_length",
    "mismatch",
)


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
    grad_norm_within: float
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
            grad_norm_within=0.20,
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
            grad_norm_within=0.25,
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
            grad_norm_within=0.40,
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


@dataclass(frozen=True)
class Fault:
    """What is planted into a healthy run, and where it ought to be seen."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # arguments of `simulate`
    metrics: tuple[str, ...] = ()  # where it ought to be seen; others may follow
    harmful: bool = True  # False: a gate that fails on it is wrong


FAULTS: Mapping[str, Fault] = {
    each.name: each
    for each in (
        Fault("slower_10", {"step_time_factor": 1.10}, ("step_time_s",)),
        Fault("reward_worse_small", {"reward_loss": 0.15, "reward_delay": 0.10}, ("reward", "kl")),
        Fault("reward_worse_large", {"reward_loss": 0.35, "reward_delay": 0.25}, ("reward", "kl")),
        Fault("reward_collapse", {"reward_collapse_at": 0.6}, ("reward", "kl")),
        Fault("entropy_collapse", {"entropy_collapse_at": 0.35}, ("entropy", "reward", "kl")),
        Fault("mismatch_grows_small", {"mismatch_growth": 0.04}, ("mismatch",)),
        Fault("mismatch_grows_large", {"mismatch_growth": 0.30}, ("mismatch",)),
        Fault("mismatch_spike", {"mismatch_spike_at": 0.55}, ("mismatch",), harmful=False),
        Fault("one_stall", {"stall_at": 0.7}, ("step_time_s",), harmful=False),
        Fault("stall_every_20", {"stall_every": 20, "stall_factor": 4.0}, ("step_time_s",)),
        Fault("stall_every_50", {"stall_every": 50, "stall_factor": 8.5}, ("step_time_s",)),
    )
}


@dataclass(frozen=True)
class _Kind:
    """What all runs of a seed have in common."""

    step_time: float
    drift_per_run: float
    loss_floor: float
    loss_fall: float
    loss_pace: float  # as a share of the run
    grad_norm: float
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
    stall_every: int | None = None,
    stall_factor: float = 25.0,
    reward_loss: float = 0.0,
    reward_delay: float = 0.0,
    reward_collapse_at: float | None = None,
    entropy_collapse_at: float | None = None,
    mismatch_centre: float | None = None,
    mismatch_growth: float = 0.0,
    mismatch_spike_at: float | None = None,
) -> Series:
    """One run: a value per step of each metric.

    The defaults are healthy. `reward_loss` is the share of the rise that is lost, `reward_delay`
    how much later it comes; times (`..._at`, `reward_delay`) are shares of the run.
    `mismatch_centre` is 1.0 for a ratio, 0.0 for a distance, None to let the seed choose.
    A stalled step takes `stall_factor` times as long: one step (`stall_at`) or every so many.
    `mismatch_growth` is how far the mismatch is off at the end; it begins at two fifths of the run.
    """
    if steps < 1:
        raise ValueError("a run has at least one step")
    lab = LABORATORIES[laboratory]
    kind = _kind(seed, lab)
    centre = kind.mismatch if mismatch_centre is None else mismatch_centre
    place = f"{seed}/{laboratory}/{run}"
    collapse = _rise(steps, entropy_collapse_at, 0.04)

    reward, progress = _reward(
        random.Random(f"{place}/reward"),
        lab,
        kind,
        steps,
        lost=reward_loss,
        delay=reward_delay,
        collapse=_rise(steps, reward_collapse_at, 0.03),
        frozen_at=entropy_collapse_at,
    )
    lengths = _lengths(random.Random(f"{place}/length"), lab, kind, progress)
    times = _times(random.Random(f"{place}/time"), lab, kind, run, lengths, steps)
    if stall_at is not None:
        times[_step(stall_at, steps)] *= stall_factor
    if stall_every is not None:
        for step in range(stall_every - 1, steps, stall_every):
            times[step] *= stall_factor
    loss = _loss(random.Random(f"{place}/loss"), lab, kind, steps)
    return {
        "step_time_s": [each * step_time_factor for each in times],
        "loss": loss,
        "grad_norm": _grad_norm(random.Random(f"{place}/grad_norm"), lab, kind, loss),
        "reward": reward,
        "kl": _kl(random.Random(f"{place}/kl"), lab, kind, progress, collapse),
        "entropy": _entropy(random.Random(f"{place}/entropy"), lab, kind, progress, collapse),
        "completion_length": lengths,
        "mismatch": _mismatch(
            random.Random(f"{place}/mismatch"),
            lab,
            centre,
            steps,
            growth=mismatch_growth,
            spike_at=mismatch_spike_at,
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
    return simulate(seed, run=runs, **{**how, **FAULTS[fault].changes})


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
        grad_norm=draw.uniform(0.3, 2.0),
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


def _grad_norm(draw: random.Random, lab: Laboratory, kind: _Kind, loss: list[float]) -> list[float]:
    """A norm that follows the loss, with rare spikes."""
    level = kind.grad_norm * math.exp(draw.gauss(0.0, 0.05))
    noise = _ar1(draw, len(loss), 0.2, lab.grad_norm_within)
    norms = []
    for step, value in enumerate(loss):
        norm = level * (value / (kind.loss_floor + kind.loss_fall)) ** 0.5 * math.exp(noise[step])
        chance, size = draw.random(), draw.uniform(3.0, 10.0)
        norms.append(norm * size if chance < 0.003 else norm)
    return norms


def _reward(
    draw: random.Random,
    lab: Laboratory,
    kind: _Kind,
    steps: int,
    *,
    lost: float,
    delay: float,
    collapse: list[float],
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
        reached *= 1.0 - collapse[step]
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
    *,
    growth: float,
    spike_at: float | None,
) -> list[float]:
    """Rollout engine against trainer: a ratio about 1, or a distance above 0."""
    noise = _ar1(draw, steps, 0.3, lab.mismatch_within)
    floor = 3.0 * lab.mismatch_within * math.exp(draw.gauss(0.0, 0.1))
    forced = None if spike_at is None else _step(spike_at, steps)
    values = []
    for step in range(steps):
        chance, size = draw.random(), draw.uniform(10.0, 40.0)
        off = noise[step]
        if chance < lab.spike_chance or step == forced:
            off += size * lab.mismatch_within
        off += growth * max(0.0, step / steps - 0.4) / 0.6
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
