"""Start the launches of a ladder, each a `canary run` in a separate process."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from canary.campaign.side import Side
from canary.config.samples import BUILTIN
from canary.errors import MachineError, UsageError
from canary.ladder.switches import Job, Settings
from canary.record import jsonio
from canary.record.folder import RunFolder, rows_of_run
from canary.record.step_row import Row
from canary.record.types import RunRecord

RECORD, REPLAY = "CANARY_RECORD_COMPLETIONS", "CANARY_REPLAY_COMPLETIONS"
TRIAL_STEPS, TRIAL_WARMUP = 9, 3
"""Steps of a trial, which decides whether a switch pays here, and its warm-up steps."""
GUARD_STEPS = 5
"""Steps of a guard's look: enough to see an update in the next losses."""
NAME_CHARACTERS = 64
TIMED: Settings = {"exact": False, "look_steps": 0, "repeats": 1}
"""A launch without a look."""


@dataclass(frozen=True)
class LaunchResult:
    """One ended launch."""

    record: RunRecord | None
    rows: list[Row] = field(default_factory=list)
    """Rows of the measured steps."""
    problem: str = ""
    """Why it did not complete; empty if it did."""

    @property
    def speed(self) -> float | None:
        """Samples per second; None if not measured."""
        return None if self.problem or self.record is None else self.record.perf.samples_per_sec


@dataclass
class Site:
    """A job on this machine, and its launches: all in one folder, one after the other."""

    job: Job
    folder: Path
    say: Callable[[str], None]
    rounds: int = 3
    created: str = ""
    source: Path | None = None
    """The config's file."""
    overrides: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    _rounds: Counter[str] = field(default_factory=Counter)

    def guard(self, label: str, settings: Settings, *, records: bool = False) -> LaunchResult:
        """Look with the completions of the baseline; with `records`, sample and record them."""
        steps = min(GUARD_STEPS, self.job.config.max_steps or GUARD_STEPS)
        # No warm-up: at a learning rate of 0 the guard could not see the optimizer.
        short = {"exact": True, "look_steps": steps, "repeats": 1, "warmup_steps": 0}
        if "fixed_length" in settings:
            # Keep natural lengths, so that padding and tokens after EOS are guarded too.
            short["fixed_length"] = self.job.config.fixed_length
        completions = {RECORD if records else REPLAY: str(self.folder / "completions.jsonl")}
        variables = completions if self.job.config.max_new_tokens is not None else {}
        return self._run(label, "guard", {**settings, **short}, variables)

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> LaunchResult:
        """Run a short timed launch; end it after `limit_s`."""
        steps = min(TRIAL_STEPS, self.job.config.max_steps or TRIAL_STEPS)
        short: dict[str, Any] = {
            "max_steps": steps,
            "warmup_steps": min(self.job.config.warmup_steps, steps),
            "metrics_warmup_steps": min(TRIAL_WARMUP, steps // 3),
            "report_to": [],
            **TIMED,
        }
        if limit_s is not None:
            short["timeout"] = min(limit_s, self.job.config.timeout)
        return self._run(label, "trial", {**settings, **short})

    def timed(self, label: str, settings: Settings) -> LaunchResult:
        """Run a launch whose speed counts. Trackers show these alone."""
        self._rounds[label] += 1
        return self._run(label, f"round{self._rounds[label]}", {**settings, **TIMED})

    def _run(
        self,
        label: str,
        name: str,
        settings: Settings,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> LaunchResult:
        """Run one launch."""
        name = run_name(self.job.config.name, f"{name}-{label}")
        fixed = [f"name={name}", "profiler.enabled=false"]
        side = Side(
            role="",
            label=label,
            config=self.source or BUILTIN,
            folder=Path.cwd(),
            python=Path(sys.executable),
            environment={**self.environ, **variables},
            output_dir=self.folder,
            settings=self.overrides,
        )
        words = (f"{key}={jsonio.dumps(value)}" for key, value in settings.items())
        try:
            record = side.run_with([*fixed, *words])
        except (UsageError, MachineError) as error:
            return LaunchResult(None, problem=str(error))
        if record.status == "completed":
            return LaunchResult(record, rows_of_run(RunFolder(self.folder / record.run_id)))
        said = (None if record.status == "failed" else record.status, record.reason)
        return LaunchResult(record, problem=": ".join(filter(None, said)) or record.status)


def run_name(job: str, launch: str) -> str:
    """Return a launch's name for its run's folder. It cuts a long name of the job, so that the
    names of launches still differ."""
    ending = re.sub(r"[^A-Za-z0-9._]+", "-", launch).strip("._-")[: NAME_CHARACTERS - 2]
    start = job[: NAME_CHARACTERS - 1 - len(ending)].rstrip("._-")
    return f"{start}.{ending}".strip("._-")
