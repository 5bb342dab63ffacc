"""A machine made up for the ladder's tests: its launches are records, without a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from canary.config.load import load_values
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError
from canary.ladder.site import LaunchResult, Site
from canary.ladder.switches import SWITCHES, Job, Machine, Settings, Switch
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


Setting = tuple[str, Any]
NONE: Mapping[Setting, Any] = {}


class Workshop(Site):
    """Launches whose speed, learning and work follow from their settings."""

    def __init__(
        self,
        faster: Mapping[Setting, float] = NONE,
        *,
        learns: Mapping[Setting, float] = NONE,
        unguarded: Mapping[Setting, str] = NONE,
        fails: Mapping[Setting, str] = NONE,
        works: Mapping[Setting, int] = NONE,
        drift: float = 1.0,
    ) -> None:
        """`faster`: factor of samples per second. `learns`: added to every loss from the second
        step on. `unguarded`, `fails`: why a guard, or any launch, does not run. `works`: added to
        the completion tokens of a step. `drift`: of the machine's speed per launch."""
        self.faster, self.learns, self.works = faster, learns, works
        self.unguarded, self.fails, self.drift = unguarded, fails, drift
        self.limits: list[float | None] = []
        """Of the trials, in order."""
        self.started: list[tuple[str, str, dict[str, Any]]] = []
        """Kind, label and settings of every launch."""

    def guard(self, label: str, settings: Settings, *, records: bool = False) -> LaunchResult:
        self.started.append(("record" if records else "guard", label, dict(settings)))
        problem = self._problem(settings, {**self.fails, **self.unguarded})
        if problem:
            return LaunchResult(None, problem=problem)
        added = sum(self.learns.get(item, 0.0) for item in settings.items())
        losses = [loss + added * (step > 0) for step, loss in enumerate(LOSSES)]
        trajectory = {"losses": losses, "grad_norms": [2.0] * len(losses), "rl": {}}
        return LaunchResult(altered(example(), "exact", to={"trajectory": trajectory}))

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> LaunchResult:
        self.started.append(("trial", label, dict(settings)))
        self.limits.append(limit_s)
        return self._ran(settings)

    def timed(self, label: str, settings: Settings) -> LaunchResult:
        self.started.append(("timed", label, dict(settings)))
        return self._ran(settings)

    def labels(self, kind: str) -> list[str]:
        """Of the launches of a kind, in order."""
        return [label for what, label, _ in self.started if what == kind]

    def _problem(
        self, settings: Settings, fails: Mapping[tuple[str, Any], str] | None = None
    ) -> str:
        told = self.fails if fails is None else fails
        return next((told[item] for item in settings.items() if item in told), "")

    def _ran(self, settings: Settings) -> LaunchResult:
        problem = self._problem(settings)
        if problem:
            return LaunchResult(None, problem=problem)
        factor = 1.0
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
    config: CanaryConfig,
    launch: Workshop,
    machine: Machine = CPU,
    folder: Path = Path("/runs"),
    rounds: int = 2,
    known: Sequence[Switch] = SWITCHES,
) -> Site:
    """The launches as those of a prepared job, without a disk."""
    launch.job, launch.folder, launch.rounds = Job(config, machine, known), folder, rounds
    launch.say, launch.created = silent, "2026-11-21T12:00:00+00:00"
    return launch


def silent(line: str) -> None:
    """Nobody listens."""
