"""Start the launches of the ladder, each a `canary run` in a separate process."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from canary.campaign.side import Side
from canary.config.load import BUILTIN
from canary.config.schema import CanaryConfig
from canary.errors import MachineError, UsageError
from canary.ladder.guard.verdict import GUARD_STEPS
from canary.ladder.levels import Settings
from canary.protocol.job import LEVEL
from canary.record import jsonio
from canary.record.folder import RunFolder, rows_of_run
from canary.record.step_row import Row
from canary.record.types import RunRecord
from canary.runner.display.progress import Event

RECORD, REPLAY = "CANARY_RECORD_COMPLETIONS", "CANARY_REPLAY_COMPLETIONS"
TRL_DEFAULTS = "CANARY_TRL_DEFAULTS"
TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
TRIAL_STEPS, TRIAL_WARMUP = 9, 3
"""Steps of a trial, which decides whether a switch pays here, and its warm-up steps."""
NAME_CHARACTERS = 64
NOTHING_SAVED = ("save_model=null",)
"""The user does not need the models of these launches."""
QUIET_S = 30.0
"""Seconds without a step after which the ladder prints that a launch still runs."""


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


@dataclass(frozen=True)
class FinishedRun:
    """One launch in the report, so that you can find its record."""

    kind: str
    """`guard`, `trial` or `timed`."""
    label: str
    """Its level and, in a trial, its switch."""
    run_id: str | None
    """Its folder beside the report; None if it left no record."""
    problem: str = ""
    """Why it did not complete; empty if it did."""


class LadderRuns(Protocol):
    """Starts one launch and waits for its end."""

    launched: list[FinishedRun]
    """All launches that have ended, in order."""

    def guard(self, label: str, settings: Settings, *, records: bool = False) -> LaunchResult:
        """Look with the completions of the baseline; with `records`, sample and record them."""

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> LaunchResult:
        """Run a short timed launch; end it after `limit_s`."""

    def timed(self, label: str, settings: Settings, *, trl_defaults: bool = False) -> LaunchResult:
        """Run a launch whose speed counts."""


class RunProcesses:
    """Runs the launches of one config as processes, all in one folder."""

    def __init__(
        self,
        source: Path | None,
        overrides: tuple[str, ...],
        config: CanaryConfig,
        folder: Path,
        environ: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._source = source or BUILTIN
        self._overrides = overrides
        self._config = config
        self._folder = folder
        self._environ = dict(environ)
        self._say = say
        self._rounds: Counter[str] = Counter()
        self.launched: list[FinishedRun] = []

    def guard(self, label: str, settings: Settings, *, records: bool = False) -> LaunchResult:
        """See `LadderRuns`."""
        file = self._folder / "completions.jsonl"
        steps = min(GUARD_STEPS, self._config.max_steps or GUARD_STEPS)
        # No warm-up: at a learning rate of 0 the guard could not see the optimizer.
        short = {"exact": True, "look_steps": steps, "repeats": 1, "warmup_steps": 0}
        if "fixed_length" in settings:
            # Keep natural lengths, so that padding and tokens after EOS are guarded too.
            short["fixed_length"] = self._config.fixed_length
        variables = {RECORD if records else REPLAY: str(file)}
        return self._run(label, "guard", "guard", {**settings, **short}, variables)

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> LaunchResult:
        """See `LadderRuns`."""
        steps = min(TRIAL_STEPS, self._config.max_steps or TRIAL_STEPS)
        short: dict[str, Any] = {
            "max_steps": steps,
            "warmup_steps": min(self._config.warmup_steps, steps),
            "metrics_warmup_steps": min(TRIAL_WARMUP, steps // 3),
            "report_to": [],
        }
        if limit_s is not None:
            short["timeout"] = min(limit_s, self._config.timeout)
        short |= {"exact": False, "look_steps": 0, "repeats": 1}
        return self._run(label, "trial", "trial", {**settings, **short}, {})

    def timed(self, label: str, settings: Settings, *, trl_defaults: bool = False) -> LaunchResult:
        """See `LadderRuns`."""
        variables = {TRL_DEFAULTS: "1"} if trl_defaults else {}
        self._rounds[label] += 1
        name = f"round{self._rounds[label]}"
        settings = {**settings, "exact": False, "look_steps": 0, "repeats": 1}
        return self._run(label, "timed", name, settings, variables)

    def _run(
        self, label: str, kind: str, name: str, settings: Settings, variables: Mapping[str, str]
    ) -> LaunchResult:
        """Run one launch and list it in `launched`."""
        name = run_name(self._config.name, f"{name}-{label}")
        result = self._result(label, kind, name, settings, variables)
        run_id = None if result.record is None else result.record.run_id
        self.launched.append(FinishedRun(kind, label, run_id, result.problem))
        return result

    def _result(
        self, label: str, kind: str, name: str, settings: Settings, variables: Mapping[str, str]
    ) -> LaunchResult:
        needed = variables if self._is_needed(variables) else {}
        fixed = [f"name={name}", "profiler.enabled=false", *NOTHING_SAVED]
        progress = LaunchProgress(f"{label}, {kind}", self._say)
        side = Side(
            role="",
            label=label,
            config=self._source,
            folder=Path.cwd(),
            python=Path(sys.executable),
            environment={**self._environ, **self._tracking(label, kind), **needed},
            output_dir=self._folder,
            settings=self._overrides,
        )
        try:
            with progress:
                record = side.run_with([*fixed, *map(_setting, settings.items())], progress)
        except (UsageError, MachineError) as error:
            return LaunchResult(None, problem=str(error))
        if record.status != "completed":
            return LaunchResult(record, problem=_why_incomplete(record))
        return LaunchResult(record, rows_of_run(RunFolder(self._folder / record.run_id)))

    def _tracking(self, label: str, kind: str) -> dict[str, str]:
        """Return variables for trackers: they show only timed launches, level beside level."""
        if kind != "timed":
            return {}
        logs = self._environ.get(TENSORBOARD) or str(self._folder / "tensorboard")
        return {LEVEL: label.replace(" ", "_"), TENSORBOARD: logs}

    def _is_needed(self, variables: Mapping[str, str]) -> bool:
        """Completions are recorded and replayed only if the trainer samples them."""
        return TRL_DEFAULTS in variables or self._config.max_new_tokens is not None


class LaunchProgress:
    """Prints the steps and alerts of a launch. As a context manager it also prints when no event
    came for `quiet_s`."""

    def __init__(self, label: str, say: Callable[[str], None], quiet_s: float = QUIET_S) -> None:
        self._label = label
        self._say = say
        self._quiet_s = quiet_s
        self._steps = False
        self._last_event = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._last_event = time.monotonic()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        printed_at = self._last_event
        while not self._ended.wait(min(1.0, self._quiet_s)):
            now = time.monotonic()
            if now - max(printed_at, self._last_event) >= self._quiet_s:
                what = "no step" if self._steps else "still compiling or loading"
                self._say(f"  {self._label}: {what} for {now - self._last_event:.0f} s")
                printed_at = now

    def __call__(self, event: Event) -> None:
        """Print one event of `canary run`."""
        if event.kind == "call":
            return
        self._last_event = time.monotonic()
        self._steps = self._steps or event.kind == "step"
        if event.kind in ("step", "alert"):
            self._say(f"  {self._label}: {event.text}")


def run_name(job: str, launch: str) -> str:
    """Return a launch's name for its run's folder. It cuts a long name of the job, so that the
    names of launches still differ."""
    ending = slug(launch)[: NAME_CHARACTERS - 2]
    start = job[: NAME_CHARACTERS - 1 - len(ending)].rstrip("._-")
    return f"{start}.{ending}".strip("._-")


def slug(label: str) -> str:
    """Return a label as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", label).strip("._-")


def _why_incomplete(record: RunRecord) -> str:
    if not record.reason:
        return record.status
    return record.reason if record.status == "failed" else f"{record.status}: {record.reason}"


def _setting(item: tuple[str, Any]) -> str:
    """Return `key=value` as `--set` reads it."""
    key, value = item
    return f"{key}={jsonio.dumps(value)}"
