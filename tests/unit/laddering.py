"""A machine made up for the ladder's tests: its launches are records, without a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canary.config.load import load_values
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError
from canary.ladder.ladder import Site
from canary.ladder.launching import FinishedRun, LaunchResult
from canary.ladder.levels import Settings
from canary.ladder.machine import Machine
from canary.record.step_row import Row
from canary.record.types import Bottleneck, Evidence, RunRecord
from tests.unit.comparing import altered, example

CPU = Machine("Some CPU", 2, (), "no GPU: none is visible", {"torch": "2.13.0"}, False)
GPUS = Machine(
    "Some CPU",
    16,
    ("Simulated 80GB", "Simulated 80GB"),
    "",
    {"torch": "2.13.0", "kernels": "0.10", "liger-kernel": "0.6"},
    True,
)
LOSSES = [0.69, 0.62, 0.58, 0.55, 0.53]


def config_of(training_type: str = "ppo", **values: Any) -> CanaryConfig:
    """A config of one trainer; `speed__lengths` stands for a key of a section."""
    given = {"name": "job", "training_type": training_type, **values}
    return load_values(None, {key: (value, "test") for key, value in given.items()}).config


def accepted(config: CanaryConfig, settings: Settings) -> bool:
    """Whether a config takes settings, by the rules of configs."""
    values: dict[str, Any] = {
        key: value
        for key, value in config.model_dump(mode="json", exclude_unset=True).items()
        if value is not None
    }
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        if section:
            values[section] = {**values.get(section, {}), name: value}
        else:
            values[key] = value
    try:
        load_values(None, {key: (value, "test") for key, value in values.items()})
    except ConfigError:
        return False
    return True


@dataclass
class Workshop:
    """Launches whose speed, learning and work follow from their settings."""

    faster: Mapping[tuple[str, Any], float] = field(default_factory=dict)
    """Factor of samples a second of a setting."""
    learns: Mapping[tuple[str, Any], float] = field(default_factory=dict)
    """What a setting adds to every loss from the second step on."""
    gaps: Mapping[tuple[str, Any], float] = field(default_factory=dict)
    """How far a setting puts generation off its policy."""
    unguarded: Mapping[tuple[str, Any], str] = field(default_factory=dict)
    """Settings with which a guard does not run, and all else does."""
    fails: Mapping[tuple[str, Any], str] = field(default_factory=dict)
    """Settings with which a launch does not run, and how it says so."""
    works: Mapping[tuple[str, Any], int] = field(default_factory=dict)
    """What a setting adds to the completion tokens of a step."""
    trl: float | str = 1.5
    """Speed of trl's defaults over a plain one, or why there are none."""
    drift: float = 1.0
    """Factor of the machine's speed from launch to launch."""
    limits: list[float | None] = field(default_factory=list)
    """Of the trials, in order."""
    started: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Kind, label and settings of every launch."""
    launched: list[FinishedRun] = field(default_factory=list)

    def guard(self, label: str, settings: Settings, *, records: bool = False) -> LaunchResult:
        self.started.append(("record" if records else "guard", label, dict(settings)))
        problem = self._problem(settings, {**self.fails, **self.unguarded})
        self.launched.append(FinishedRun("guard", label, None, problem))
        if problem:
            return LaunchResult(None, problem=problem)
        added = sum(self.learns.get(item, 0.0) for item in settings.items())
        losses = [loss + added * (step > 0) for step, loss in enumerate(LOSSES)]
        trajectory = {"losses": losses, "grad_norms": [2.0] * len(losses), "rl": {}}
        gap = 1e-6 + max((self.gaps.get(item, 0.0) for item in settings.items()), default=0.0)
        seen = {"step": 1, "tokens": 256, "gap": gap, "gap_mean": gap, "rank": 0.5, "ranked": 256}
        exact = {"trajectory": trajectory, "generation": {"steps": [seen]}}
        return LaunchResult(altered(example(), "exact", to=exact))

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> LaunchResult:
        self.started.append(("trial", label, dict(settings)))
        self.launched.append(FinishedRun("trial", label, f"run{len(self.started)}"))
        self.limits.append(limit_s)
        return self._ran(settings)

    def timed(self, label: str, settings: Settings, *, trl_defaults: bool = False) -> LaunchResult:
        self.started.append(("timed", label, dict(settings)))
        self.launched.append(FinishedRun("timed", label, f"run{len(self.started)}"))
        if trl_defaults and isinstance(self.trl, str):
            return LaunchResult(None, problem=self.trl)
        return self._ran(settings, float(self.trl) if trl_defaults else 1.0)

    def labels(self, kind: str) -> list[str]:
        """Of the launches of a kind, in order."""
        return [label for what, label, _ in self.started if what == kind]

    def _problem(
        self, settings: Settings, fails: Mapping[tuple[str, Any], str] | None = None
    ) -> str:
        told = self.fails if fails is None else fails
        return next((told[item] for item in settings.items() if item in told), "")

    def _ran(self, settings: Settings, factor: float = 1.0) -> LaunchResult:
        problem = self._problem(settings)
        if problem:
            return LaunchResult(None, problem=problem)
        for item in settings.items():
            factor *= self.faster.get(item, 1.0)
        speed = 10.0 * factor * self.drift ** len(self.started)
        tokens = 512 + sum(self.works.get(item, 0) for item in settings.items())
        row: Row = {"samples": 8, "completion_tokens": tokens, "rl": {"updates": 4.0}}
        return LaunchResult(record_at(speed), [row] * 6)


def record_at(speed: float) -> RunRecord:
    """A completed run of so many samples a second."""
    made = altered(example(), "perf", "samples_per_sec", to=speed)
    made = altered(made, "perf", "approx_tokens_per_sec", to=80 * speed)
    made = altered(made, "perf", "seconds_per_completion_token", to=1 / (64 * speed))
    made = altered(made, "perf", "step_time", "mean", to=8 / speed)
    made = altered(made, "perf", "cpu_utilization_avg", to=98.0)
    made = altered(made, "perf", "max_mem_mb", to=600.0)
    made = altered(made, "host", "gil_contention", to=0.001)
    made = altered(made, "phases", to={"generation": 6 / speed, "backward": 2 / speed})
    made = altered(made, "notes", to=[])
    return altered(made, "bottlenecks", to=[])


def held_back(whole: RunRecord) -> RunRecord:
    """The record with a named bottleneck."""
    found = Bottleneck(
        name="data_loading",
        severity="bottleneck",
        evidence=[Evidence(what="of the step waiting for data", value=40.0, unit="%")],
        advice="more workers",
    )
    return altered(whole, "bottlenecks", to=[found])


def site(
    config: CanaryConfig, launch: Workshop, machine: Machine = CPU, folder: Path = Path("/runs")
) -> Site:
    """A prepared site without a disk."""
    return Site(config, machine, folder, launch, "2026-11-21T12:00:00+00:00")


def silent(line: str) -> None:
    """Nobody listens."""
