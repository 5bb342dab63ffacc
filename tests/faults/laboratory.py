"""Trains tiny canaries, clean ones and ones with a change planted in them, and compares them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canary.compare.report import Check, Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.timing.checks import TIMING_GATES
from canary.record.types import RunRecord
from tests.integration.conftest import PATIENT, canary, settings, write_config
from tests.planting import plant

AT_A_TIME = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
"""Trainings beside each other, of one thread each; other processes of the tests train too."""

SIZE: dict[str, object] = {
    "max_steps": 36,
    "look_steps": 12,
    "batch_size": 4,
    "gradient_accumulation_steps": 2,
    "dataset_size": 160,
    "allow_repeat": True,
    "metrics_warmup_steps": 2,
}

PPO_SIZE: dict[str, object] = {
    "max_steps": 6,
    "look_steps": 6,
    "exact": True,
    "batch_size": 2,
    "gradient_accumulation_steps": 2,
    "dataset_size": 60,
    "max_new_tokens": 16,
    "temperature": 0.8,
    "learning_rate": 1e-4,
}
PPO: dict[str, object] = {
    "ppo_epochs": 2,
    "num_mini_batches": 2,
    "cliprange_value": 0.01,
    "ent_coef": 0.01,
}
"""Every part of the loss is there, and values move by more than they may."""

CANARIES: dict[str, dict[str, object]] = {
    "sft": settings("sft", **SIZE),
    "sft_lora": settings("sft", **SIZE, use_peft=True),
    "sft_packed": settings(
        "sft",
        **SIZE | {"batch_size": 1},
        max_length=96,
        trainer_args={"packing": True, "packing_strategy": "bfd"},
    ),
    "dpo": settings("dpo", **SIZE),
    "reward": settings("reward", **SIZE),
    "kto": settings("kto", **SIZE),
    "grpo": settings("grpo", **SIZE | {"num_generations": 4, "max_new_tokens": 24}),
    "rloo": settings("rloo", **SIZE | {"num_generations": 4, "max_new_tokens": 24}),
    "ppo": settings("ppo", **PPO_SIZE, ppo=PPO),
    "ppo_whitened": settings("ppo", **PPO_SIZE, ppo=PPO | {"whiten_rewards": True}),
}
"""The clean canaries; each is trained once a session."""


@dataclass(frozen=True)
class Change:
    """What one training does otherwise than the clean one of its canary."""

    id: str
    canary: str = "sft"
    plant: str = ""
    """Code that changes the built trainer."""
    before: str = ""
    """Code that runs before the trainer is built."""
    config: Mapping[str, object] = field(default_factory=dict)
    """Keys of the config that differ."""
    yaml: str | None = None
    """The whole config as text, instead of the canary's values written out."""
    timed: bool = True
    """Whether the comparison looks at time and peak memory too."""


CAUGHT = ("changed", "regression")
"""Something else is learned, or something is worse for sure."""


@dataclass(frozen=True)
class Fault(Change):
    """A change that must be caught, and what must be said of it."""

    cause: str = ""
    """The mechanism that the diagnosis names first."""
    stage: str | None = None
    """The first stage that differs; None where nothing but time does."""
    signals: tuple[str, ...] = ()
    """Signals that must be among the differences of that stage."""
    telling: tuple[str, ...] = ()
    """Checks that must fail, or ask for acceptance where the config made the change."""


@dataclass(frozen=True)
class Benign(Change):
    """A change that must not be called one."""

    may_warn: tuple[str, ...] = ()
    """Checks that may warn."""


@dataclass(frozen=True)
class Compared:
    """A training, the clean one, and the comparison of both."""

    clean: RunRecord
    changed: RunRecord
    found: Comparison

    def signals(self, stage: str) -> list[str]:
        """Signals that differ in a stage."""
        return [d.signal for d in self.found.differences if d.stage == stage]


class Laboratory:
    """Runs trainings beside each other, each once, and hands out comparisons with clean ones."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._running: dict[str, Future[RunRecord]] = {}

    def begin(self, changes: Iterable[Change]) -> None:
        """Starts what the changes need: the clean trainings first."""
        wanted = list(changes)
        for name in dict.fromkeys(change.canary for change in wanted):
            self._start(clean(name))
        for change in wanted:
            self._start(change)

    def compare(self, change: Change) -> Compared:
        """Waits for the change's training and the clean one, and compares them."""
        baseline = self._start(clean(change.canary)).result()
        current = self._start(change).result()
        gates = TIMING_GATES if change.timed else ()
        found = compare_to_baseline(current, baseline, thresholds_for(change), gates=gates)
        return Compared(baseline, current, found)

    def close(self) -> None:
        """Starts nothing more, and waits for what runs."""
        self._pool.shutdown(cancel_futures=True)

    def _start(self, change: Change) -> Future[RunRecord]:
        if change.id not in self._running:
            self._running[change.id] = self._pool.submit(self._train, change)
        return self._running[change.id]

    def _train(self, change: Change) -> RunRecord:
        folder = self._root / change.id
        plant(folder, change.plant or "pass", change.before or "pass")
        path = write_config(folder, {**CANARIES[change.canary], **change.config})
        if change.yaml is not None:
            path.write_text(change.yaml)
        finished = canary("run", str(path), "-o", str(folder / "out"), cwd=folder, timeout=600)
        assert finished.code == 0, finished.err
        return finished.record()


def thresholds_for(change: Change) -> Thresholds:
    """A fault that is not told by its time is told whatever the machine does meanwhile."""
    if isinstance(change, Fault) and "step_time_median" not in change.telling:
        return DEFAULT_THRESHOLDS.model_copy(update=PATIENT)
    return DEFAULT_THRESHOLDS


def clean(name: str) -> Change:
    """The training of a canary with nothing changed."""
    return Change(f"clean_{name}", name)


def assert_caught(fault: Fault, compared: Compared) -> None:
    """The verdict, the first stage, its signals and the telling checks are as they should be."""
    found = compared.found
    said = told(found)
    assert found.verdict in CAUGHT, said
    first = found.first_difference
    assert (first.stage if first else None) == fault.stage, said
    if fault.stage is not None:
        missing = set(fault.signals) - set(compared.signals(fault.stage))
        assert not missing, f"{missing} not among the differences of {fault.stage}\n{said}"
    top = found.diagnosis.top_suspect
    assert top is not None, said
    assert top.category == fault.cause, f"{found.diagnosis.summary}\n{said}"
    for name in fault.telling:
        assert found.check(name).failed, said
        assert found.check(name).delta is not None, said


def assert_silent(benign: Benign, compared: Compared) -> None:
    """Nothing failed, nothing asks for acceptance, and only what may warn does."""
    found = compared.found
    said = told(found)
    assert found.verdict in ("pass", "inconclusive"), said
    assert not found.failed_checks, said
    warned = {check.name for check in found.checks if check.status == "warn"}
    assert warned <= set(benign.may_warn), said
    # A single launch a side may leave time undecided, and nothing else.
    open_lanes = {check.lane for check in found.checks if check.status == "inconclusive"}
    assert open_lanes <= {"timing"}, said


def told(found: Comparison) -> str:
    """The comparison in lines, for the message of a failed test."""

    def line(check: Check) -> str:
        return f"  {check.status:7} {check.name}: {check.message}"

    loud = [line(check) for check in found.checks if check.status not in ("pass", "skip")]
    steps = [f"  {d.order} {d.sentence()}" for d in found.differences]
    return "\n".join([found.first_line, "checks:", *loud, "differences:", *steps])


def changes_of(items: Iterable[Any]) -> list[Change]:
    """The changes that the collected tests are about, in their order."""
    found = []
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        found += [value for value in parameters.values() if isinstance(value, Change)]
    return found
