"""Trainings of every kind on one device, each run once and shared by the tests that look at it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.config.schema import TRAINING_TYPES
from canary.record.types import RunRecord
from tests.integration.conftest import Finished, canary, settings, write_config
from tests.planting import plant

STEPS, LOOK, WARMUP = 16, 2, 4
UNTIMED = LOOK + WARMUP
PROFILED = {"enabled": True, "start_step": 8, "num_steps": 2}
DTYPES = ("float32", "bfloat16")

CLOCK = """
import time, torch
from transformers import TrainerCallback

class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        with open(FILE + spec.scratch_dir.name, "a") as stream:
            stream.write(f"{time.perf_counter()!r}\\n")

trainer.add_callback(Clock())
"""
"""A clock of the host that waits for the device at each step's end: plain, slow and sure."""


@dataclass(frozen=True)
class Case:
    """One training; in float32 the whole model, watched by a synchronised clock, in bfloat16 an
    adapter, running freely, some of its steps profiled."""

    training_type: str
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.training_type}-{self.dtype}"


CASES = tuple(Case(name, dtype) for name in TRAINING_TYPES for dtype in DTYPES)


@dataclass(frozen=True)
class Trained:
    """One finished training."""

    case: Case
    run: Finished
    folder: Path

    @property
    def record(self) -> RunRecord:
        return self.run.record()

    def rows(self) -> list[dict[str, Any]]:
        """Of its steps."""
        return self.run.rows()

    def synchronised_s(self) -> list[float]:
        """When each step had ended, on the synchronised clock."""
        launch = self.rows()[0]["launch"]
        lines = (self.folder / f"clock-launch{launch}").read_text().splitlines()
        return [float(line) for line in lines]


def values_of(case: Case, device: str) -> dict[str, object]:
    """The config of a case."""
    changes: dict[str, object] = {
        "device": device,
        "dtype": case.dtype,
        "max_steps": STEPS,
        "metrics_warmup_steps": WARMUP,
        "look_steps": LOOK,
        "dataset_size": 4 * STEPS,
        "threads": 1 if device == "cpu" else 4,
    }
    if case.dtype == "bfloat16":
        changes |= {"use_peft": True, "profiler": PROFILED}
    return settings(case.training_type, **changes)


class Trainings:
    """Trainings on one device."""

    def __init__(self, device: str, folder: Path) -> None:
        self._device = device
        self._folder = folder
        self._done: dict[Case, Trained] = {}

    def of(self, case: Case) -> Trained:
        """The training of a case."""
        if case not in self._done:
            self._done[case] = self._run(case, self._folder / case.name)
        return self._done[case]

    def again(self, case: Case) -> RunRecord:
        """The look of a case once more."""
        folder = self._folder / f"{case.name}-again"
        path = write_config(folder, values_of(case, self._device) | {"exact": True})
        finished = canary("run", str(path), "-o", str(folder / "out"))
        assert finished.code == 0, finished.err + finished.log()
        return finished.record()

    def _run(self, case: Case, folder: Path) -> Trained:
        if case.dtype == "float32":
            plant(folder, f"FILE = {str(folder / 'clock-')!r}\n{CLOCK}")
        path = write_config(folder, values_of(case, self._device))
        finished = canary("run", str(path), "-o", str(folder / "out"), cwd=folder)
        return Trained(case, finished, folder)
