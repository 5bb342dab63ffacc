"""Figures of live anomaly detection: `python -m bench.anomaly curves|replay|cost`.

- `curves`: healthy curves with noise, white or correlated between steps, in every signal that
  detectors read, and the same with a fault of each type (`bench.anomaly_curves`);
- `replay FOLDER...`: runs the detectors on the steps of real runs;
- `cost`: CPU time of `analyze_training_step` on a model of 1.3 million parameters, in rounds with
  and without it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from scipy import stats

from bench.anomaly_curves import FAULTS, faulty, healthy
from canary.record.alert import Alert
from canary.record.jsonio import rows_since
from canary.training.anomaly.advanced import AdvancedAnomalyDetector
from canary.training.anomaly.observation import Observation, from_row

LONG = 100
"""Steps of a run that counts as long."""
RUNS = 200


def judged(observations: Sequence[Observation]) -> list[Alert]:
    """Return all alerts of a run."""
    detector = AdvancedAnomalyDetector(save_alerts=False)
    return [alert for each in observations for alert in detector.judge(each)]


def alerts_of(observations: Sequence[Observation]) -> list[str]:
    """Return their types."""
    return [alert.type for alert in judged(observations)]


def upper(alarms: int, runs: int) -> float:
    """Return the one-sided 95% upper bound of a share (Clopper-Pearson)."""
    return 1.0 if alarms == runs else float(stats.beta.ppf(0.95, alarms + 1, runs - alarms))


def curves(runs: int, seed: str) -> None:
    """Print the share of healthy curves with any alert, and per fault how many are found, and how
    many of these trainings raise an alert before their fault."""
    for online in (False, True):
        kinds: Counter[str] = Counter()
        alarmed = 0
        for number in range(5 * runs):
            found = set(alerts_of(healthy(f"{seed} {number}", online)))
            alarmed += bool(found)
            kinds.update(found)
        name = "online" if online else "supervised"
        print(f"healthy, {name}: {share(alarmed, 5 * runs)} {dict(kinds) or ''}", flush=True)
    for kind in FAULTS:
        hits, early = 0, 0
        for number in range(runs):
            observations, begins = faulty(kind, f"{seed} {number}")
            alerts = judged(observations)
            hits += any(alert.type == kind and alert.step >= begins for alert in alerts)
            early += any(alert.step < begins for alert in alerts)
        print(f"{kind}: {hits} of {runs} found, {early} with an alert before it", flush=True)


def share(alarms: int, runs: int) -> str:
    """Return the share of runs with alerts in words."""
    return (
        f"{alarms} of {runs} runs, {100 * alarms / runs:.2f}% "
        f"(95% upper {100 * upper(alarms, runs):.2f}%)"
    )


def replay(folders: Sequence[Path]) -> None:
    """Run the detectors on all real runs under the folders and print which raised an alert."""
    files = sorted(file for folder in folders for file in folder.rglob("steps.jsonl"))
    alarmed, longer, kinds = 0, 0, Counter[str]()
    for file in files:
        rows, _ = rows_since(file, 0)
        found = alerts_of([from_row(row) for row in rows])
        alarmed += bool(found)
        longer += len(rows) >= LONG
        kinds.update(set(found))
        if found:
            print(f"{file.parent}: {len(rows)} steps, {', '.join(found)}")
    print(f"all: {alarmed} of {len(files)} runs raised an alert, {dict(kinds)}; {longer} are long")


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
            )
            inside = time.thread_time() - began
        self._optimizer.zero_grad()
        return inside


def main() -> None:
    """Run the requested measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("curves", "replay", "cost"))
    parser.add_argument("folders", nargs="*", type=Path, help="runs to replay")
    parser.add_argument("-n", type=int, default=RUNS, help="runs of each kind")
    parser.add_argument("--seed", default="", help="other curves")
    asked = parser.parse_args()
    if asked.what == "curves":
        curves(asked.n, asked.seed)
    elif asked.what == "replay":
        replay(asked.folders or [Path("canary_output")])
    else:
        for batch, length in ((4, 64), (4, 256), (8, 256)):
            cost(batch, length)


if __name__ == "__main__":
    main()
