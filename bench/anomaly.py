"""False alarms and cost of live anomaly detection: `python -m bench.anomaly noise|replay|cost`.

- `noise`: healthy runs with noise, white or correlated between steps, in every signal that
  detectors read; prints the share of runs with any alert, with a 95% upper bound;
- `times`: the same for step times on a machine whose speed shifts; also the share of runs found
  that slow down from their middle on;
- `replay FOLDER`: runs the detectors on the steps of real runs;
- `cost`: CPU time of `analyze_training_step` on a model of 1.3 million parameters, in rounds with
  and without it.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from scipy import stats

from canary.record.jsonio import rows_since
from canary.training.anomaly.advanced import AdvancedAnomalyDetector
from canary.training.anomaly.detectors.slowing import SlowingDetector
from canary.training.anomaly.observation import Agreement, Observation, Sample, from_row

PHIS = (0.0, 0.5, 0.8, 0.9, 0.95)
SDS = (0.001, 0.01, 0.05, 0.1, 0.2)
LENGTHS = (100, 300, 1000)
RUNS = 200


def correlated(chance: random.Random, phi: float, sd: float) -> Iterator[float]:
    """Yield a stationary AR(1) series with mean 1 and standard deviation `sd`, clipped at 5 sd."""
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
"""Signals, and the levels from which each run draws one."""
VALUES = {"value_loss": (0.02, 0.3, 40.0), "unexplained": (0.2, 1.0, 1.3)}
"""The same for a value function: its loss, and the unexplained share of the variance."""


def noisy_run(
    seed: int, phi: float, sd: float, steps: int, around_zero: bool = False
) -> list[Observation]:
    """Return a run whose signals are stationary noise; with `around_zero`, rewards of mean 0."""
    chance = random.Random(f"{seed} {phi} {sd} {steps} {around_zero}")
    level = {name: chance.choice(levels) for name, levels in LEVELS.items()}
    series = {name: correlated(chance, phi, sd) for name in LEVELS}
    # A separate generator, so that the draws of the other signals stay the same.
    apart = random.Random(f"values {seed} {phi} {sd} {steps}")
    level |= {name: apart.choice(levels) for name, levels in VALUES.items()}
    series |= {name: correlated(apart, phi, sd) for name in VALUES}
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
                value_loss=now["value_loss"],
                explained_variance=1 - now["unexplained"],
            )
        )
    return found


SHIFTS = ((1.0,), (1.0, 1.2), (1.0, 1.2, 1.4))
"""Levels of step time between which a shared machine shifts."""


def own_seconds(
    seed: int, phi: float, sd: float, steps: int, shifts: Sequence[float] = SHIFTS[1]
) -> list[float]:
    """Return the step times of a healthy run: noise around levels that change every 20 or 100 steps
    on average. Every twentieth step may evaluate and take three times as long."""
    chance = random.Random(f"seconds {seed} {phi} {sd} {steps} {shifts}")
    noise, level = correlated(chance, phi, sd), chance.choice(shifts)
    found = []
    for step in range(1, steps + 1):
        if chance.random() < 1 / (20, 100)[seed % 2]:
            level = chance.choice(shifts)
        longer = 3.0 if step % 20 == 0 and chance.random() < 0.5 else 1.0
        found.append(0.1 * level * longer * max(0.05, next(noise)))
    return found


def alerts_of(observations: Sequence[Observation]) -> list[str]:
    """Return the types of all alerts of a run."""
    detector = AdvancedAnomalyDetector(save_alerts=False)
    return [alert.type for each in observations for alert in detector.judge(each)]


def upper(alarms: int, runs: int) -> float:
    """Return the one-sided 95% upper bound of a share (Clopper-Pearson)."""
    return 1.0 if alarms == runs else float(stats.beta.ppf(0.95, alarms + 1, runs - alarms))


def noise(runs: int) -> None:
    """Print a line for each kind of noise, and one for all."""
    total: Counter[str] = Counter()
    for phi in PHIS:
        for sd in SDS:
            cell: Counter[str] = Counter()
            for seed in range(runs):
                steps = LENGTHS[seed % len(LENGTHS)]
                found = set(alerts_of(noisy_run(seed, phi, sd, steps, bool(seed % 2))))
                cell.update(found or {"none": 1})
                cell["alarmed"] += bool(found)
            total.update(cell | {"runs": runs})
            kinds = {kind: n for kind, n in cell.items() if kind not in ("none", "alarmed")}
            print(
                f"phi {phi:<4} sd {100 * sd:>4.1f}%: {share(cell['alarmed'], runs)} {kinds or ''}",
                flush=True,
            )
    print(f"all: {share(total['alarmed'], total['runs'])}")


def times(runs: int) -> None:
    """Print how many runs raise a slowing alert: healthy ones, and ones that slow down."""

    def alarmed(seconds: Sequence[float]) -> bool:
        detector = SlowingDetector()
        rows = (Observation(step=at, own_s=taken) for at, taken in enumerate(seconds, 1))
        return any([*detector.observe(row)] for row in rows)

    for shifts in SHIFTS:
        cells = [(phi, sd, seed) for phi in PHIS for sd in SDS for seed in range(runs)]
        alarms = sum(
            alarmed(own_seconds(seed, phi, sd, (60, *LENGTHS)[seed % 4], shifts))
            for phi, sd, seed in cells
        )
        print(f"healthy, levels {shifts}: {share(alarms, len(cells))}", flush=True)
    for steps in (40, 100):
        for slower in (1.5, 2.0, 2.6):
            for sd in SDS[2:]:
                found = 0
                for seed in range(runs):
                    taken = own_seconds(seed, 0.5, sd, steps, SHIFTS[0])
                    taken[steps // 2 :] = [slower * each for each in taken[steps // 2 :]]
                    found += alarmed(taken)
                print(f"{steps} steps, {slower} times, sd {sd:.0%}: {found} of {runs}", flush=True)


def share(alarms: int, runs: int) -> str:
    """Return the share of runs with alerts in words."""
    return (
        f"{alarms} of {runs} runs, {100 * alarms / runs:.2f}% "
        f"(95% upper {100 * upper(alarms, runs):.2f}%)"
    )


def replay(folder: Path) -> None:
    """Run the detectors on all real runs under a folder and print the alerts of each."""
    files = sorted(folder.rglob("steps.jsonl"))
    alarmed = 0
    for file in files:
        rows, _ = rows_since(file, 0)
        found = alerts_of([from_row(row) for row in rows])
        alarmed += bool(found)
        print(f"{file.parent.name}: {len(rows)} steps, {', '.join(found) or 'nothing'}")
    print(f"all: {alarmed} of {len(files)} runs raised an alert")


ROUNDS = 12
STEPS = 12
"""Steps per round; the first of each is not counted."""


def cost(batch: int, length: int) -> None:
    """Print the CPU time per step with and without detectors, in alternating rounds. Print also the
    time inside `analyze_training_step`, which is free of noise between rounds."""
    import torch

    torch.set_num_threads(1)
    for norm_passed in (False, True):
        steps: dict[bool, list[float]] = {False: [], True: []}
        inner: list[float] = []
        loop = SmallLlama(batch, length)
        for number in range(ROUNDS):
            for watched in (False, True) if number % 2 else (True, False):
                for step in range(STEPS):
                    began = time.thread_time()
                    inside = loop.step(watched, norm_passed)
                    if step:
                        steps[watched].append(time.thread_time() - began)
                        if watched:
                            inner.append(inside)
        bare, with_it = (statistics.fmean(steps[watched]) for watched in (False, True))
        mean = statistics.fmean(inner)
        print(
            f"{loop.parameters:,} parameters, batch {batch} x {length} tokens, gradient norm "
            f"{'passed as argument' if norm_passed else 'computed by the detector'}: bare step "
            f"{1e3 * bare:.1f} ms of CPU, watched {1e3 * with_it:.1f} ms, in analyze_training_step "
            f"{1e3 * mean:.2f} ms ({100 * mean / bare:.2f}%)",
            flush=True,
        )


class SmallLlama:
    """A plain loop on a small Llama; it clips gradients if it passes the norm."""

    def __init__(self, batch: int, length: int) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=128,
            intermediate_size=344,
            num_hidden_layers=4,
            num_attention_heads=4,
            vocab_size=2048,
        )
        self._model = LlamaForCausalLM(config).train()
        self.parameters = sum(p.numel() for p in self._model.parameters())
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._detector = AdvancedAnomalyDetector(save_alerts=False)
        self._shape = (batch, length)

    def step(self, watched: bool, clips: bool) -> float:
        """Train one step. Return the seconds inside the detector."""
        import torch

        ids = torch.randint(0, 2048, self._shape)
        loss = self._model(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = None
        if clips:
            norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        inside = 0.0
        if watched:
            began = time.thread_time()
            self._detector.analyze_training_step(
                model=self._model,
                optimizer=self._optimizer,
                loss=loss,
                batch_size=len(ids),
                grad_norm=norm,
                batch={"input_ids": ids},
            )
            inside = time.thread_time() - began
        self._optimizer.zero_grad()
        return inside


def main() -> None:
    """Run the requested measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("noise", "times", "replay", "cost"))
    parser.add_argument("folder", nargs="?", type=Path, help="runs to replay")
    parser.add_argument("-n", type=int, default=RUNS, help="runs per kind of noise")
    asked = parser.parse_args()
    if asked.what == "noise":
        noise(asked.n)
    elif asked.what == "times":
        times(asked.n)
    elif asked.what == "replay":
        replay(asked.folder or Path("canary_output"))
    else:
        for batch, length in ((4, 64), (4, 256), (8, 256)):
            cost(batch, length)


if __name__ == "__main__":
    main()
