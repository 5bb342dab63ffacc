"""Starts the launches of the ladder, each a `canary run` in a process of its own."""

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
from canary.record.folder import RunFolder, measured_rows
from canary.record.step_row import Row
from canary.record.types import RunRecord
from canary.runner.display.progress import Event

RECORD, REPLAY = "CANARY_RECORD_COMPLETIONS", "CANARY_REPLAY_COMPLETIONS"
TRL_DEFAULTS = "CANARY_TRL_DEFAULTS"
TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
TRIAL_STEPS, TRIAL_WARMUP = 9, 3
"""Steps of a launch that only decides whether a switch pays here, and those that do not count."""
NAME_CHARACTERS = 64
NOTHING_SAVED = ("save_model=null",)
"""No launch of the ladder trains the model that the user wants to have."""
QUIET_S = 30.0
"""After so long without a step a launch is said to be at it still, and again after as long."""


@dataclass(frozen=True)
class Ran:
    """One ended launch."""

    record: RunRecord | None
    rows: list[Row] = field(default_factory=list)
    """Of its measured steps."""
    problem: str = ""
    """Why it did not complete; empty where it did."""

    @property
    def speed(self) -> float | None:
        """Samples a second; None where it has none."""
        return None if self.problem or self.record is None else self.record.perf.samples_per_sec


@dataclass(frozen=True)
class FinishedRun:
    """One launch as the report names it, so that its record can be found."""

    kind: str
    """`guard`, `trial` or `timed`."""
    label: str
    """Of which level, and with what switch."""
    run_id: str | None
    """Its folder beside the report; None where it left no record."""
    problem: str = ""
    """Why it did not complete; empty where it did."""


class LadderRuns(Protocol):
    """Starts one launch and waits for its end."""

    launched: list[FinishedRun]
    """All that have ended, in their order."""

    def guard(self, label: str, settings: Settings, *, records: bool = False) -> Ran:
        """A probe on the completions of the baseline, or, with `records`, the one that samples
        them."""

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> Ran:
        """A short timed launch, ended after `limit_s`."""

    def timed(self, label: str, settings: Settings, *, trl_defaults: bool = False) -> Ran:
        """A launch whose speed counts."""


class RunProcesses:
    """Launches of one config, all into one folder."""

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

    def guard(self, label: str, settings: Settings, *, records: bool = False) -> Ran:
        """See `LadderRuns`."""
        file = self._folder / "completions.jsonl"
        steps = min(GUARD_STEPS, self._config.max_steps or GUARD_STEPS)
        # At a rate of 0 nothing that the optimizer does would show.
        short = {"repeats": 0, "probe_steps": steps, "warmup_steps": 0}
        if "fixed_length" in settings:
            # Lengths as they come: what follows an end, and what pads it, is guarded too.
            short["fixed_length"] = self._config.fixed_length
        own = {RECORD if records else REPLAY: str(file)}
        return self._run(label, "guard", "guard", {**settings, **short}, own)

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> Ran:
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
        short |= {"probe_steps": 0, "repeats": 1}
        return self._run(label, "trial", "trial", {**settings, **short}, {})

    def timed(self, label: str, settings: Settings, *, trl_defaults: bool = False) -> Ran:
        """See `LadderRuns`."""
        own = {TRL_DEFAULTS: "1"} if trl_defaults else {}
        self._rounds[label] += 1
        name = f"round{self._rounds[label]}"
        return self._run(label, "timed", name, {**settings, "probe_steps": 0, "repeats": 1}, own)

    def _run(
        self, label: str, kind: str, name: str, settings: Settings, own: Mapping[str, str]
    ) -> Ran:
        """Runs it, and keeps which it was."""
        ran = self._ran(label, kind, run_name(self._config.name, f"{name}-{label}"), settings, own)
        run_id = None if ran.record is None else ran.record.run_id
        self.launched.append(FinishedRun(kind, label, run_id, ran.problem))
        return ran

    def _ran(
        self, label: str, kind: str, name: str, settings: Settings, own: Mapping[str, str]
    ) -> Ran:
        online = dict(own) if self._is_needed(own) else {}
        fixed = [f"name={name}", "profiler.enabled=false", *NOTHING_SAVED]

        heard = Heard(f"{label}, {kind}", self._say)
        side = Side(
            role="",
            label=label,
            config=self._source,
            folder=Path.cwd(),
            python=Path(sys.executable),
            environment={**self._environ, **self._reported(label, kind), **online},
            output_dir=self._folder,
            settings=self._overrides,
        )
        try:
            with heard:
                record = side.run_with([*fixed, *map(_setting, settings.items())], heard)
        except (UsageError, MachineError) as error:
            return Ran(None, problem=str(error))
        if record.status != "completed":
            return Ran(record, problem=_ended(record))
        return Ran(record, measured_rows(RunFolder(self._folder / record.run_id)))

    def _reported(self, label: str, kind: str) -> dict[str, str]:
        """Trackers get the launches whose speed counts, a level beside the other."""
        if kind != "timed":
            return {}
        logs = self._environ.get(TENSORBOARD) or str(self._folder / "tensorboard")
        return {LEVEL: label.replace(" ", "_"), TENSORBOARD: logs}

    def _is_needed(self, own: Mapping[str, str]) -> bool:
        """Completions are recorded and replayed where the trainer samples any."""
        return TRL_DEFAULTS in own or self._config.max_new_tokens is not None


class Heard:
    """Passes on what a launch tells of its steps, and of alerts. As a context it also says where
    nothing was told for `quiet_s`."""

    def __init__(self, label: str, say: Callable[[str], None], quiet_s: float = QUIET_S) -> None:
        self._label = label
        self._say = say
        self._quiet_s = quiet_s
        self._steps = False
        self._heard_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._heard_at = time.monotonic()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        said_at = self._heard_at
        while not self._ended.wait(min(1.0, self._quiet_s)):
            now = time.monotonic()
            if now - max(said_at, self._heard_at) >= self._quiet_s:
                what = "no step told" if self._steps else "still starting: compiles or loads"
                self._say(f"  {self._label}: {what}, {now - self._heard_at:.0f} s")
                said_at = now

    def __call__(self, event: Event) -> None:
        """One event of `canary run`."""
        self._heard_at = time.monotonic()
        self._steps = self._steps or event.kind == "step"
        if event.kind in ("step", "alert"):
            self._say(f"  {self._label}: {event.text}")


def run_name(job: str, launch: str) -> str:
    """What a launch is called in its run's folder; a long name of the job is cut, not what tells
    the launches apart."""
    ending = slug(launch)[: NAME_CHARACTERS - 2]
    start = job[: NAME_CHARACTERS - 1 - len(ending)].rstrip("._-")
    return f"{start}.{ending}".strip("._-")


def slug(label: str) -> str:
    """A label as a part of the names of folders."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", label).strip("._-")


def _ended(record: RunRecord) -> str:
    """Why a run did not complete."""
    if not record.reason:
        return record.status
    return record.reason if record.status == "failed" else f"{record.status}: {record.reason}"


def _setting(item: tuple[str, Any]) -> str:
    """`key=value` as `--set` reads it."""
    key, value = item
    return f"{key}={jsonio.dumps(value)}"
