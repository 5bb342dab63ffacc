"""The training job (untrusted): run each canary and always leave a records folder.

It has no token. The reporting job checks everything that it writes.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from pydantic import BaseModel

from canary.baseline.comparability import slug
from canary.campaign.ab import AbRequest, run_ab
from canary.campaign.side import folder_left, run_child
from canary.config.load import FROM_STEPS, LoadedConfig, load_config
from canary.errors import EXIT_OK, CanaryError, MachineError, UsageError
from canary.gate.base_config import (
    HELD,
    fork_point,
    git_reader,
    held_settings,
    load_base_config,
    repository_path,
)
from canary.gate.inputs import TrainSettings, with_nightly
from canary.gate.records import Manifest, Mode, Part, write_manifest
from canary.gate.workspace import (
    LONGEST_ERROR,
    Place,
    Say,
    gpu_problem,
    prepare,
    refused,
    without_places,
)
from canary.machine.program import program
from canary.record import jsonio
from canary.record.folder import load_record
from canary.record.strangers import link_in

METRICS = "metrics.json"
KEPT: dict[str, float] = {
    METRICS: inf,
    "steps.jsonl": 24 << 20,
    "alerts.jsonl": inf,
    "config.yaml": inf,
    "log.txt": inf,
    "comparison.txt": inf,
    "profiler/operators.json": 8 << 20,
    "profiler/trace.json": 8 << 20,
}
"""Files of a run's folder that go into the records, with the bytes above which one is dropped: no
verdict needs it, and all pairs must fit into the records."""
LONGEST_LOG = 4 << 20
UNFINISHED = "the training job stopped before this config was done"
ATTEMPTS = 2
"""A failed run is repeated once: only a config that fails twice counts as failed."""


def settings_of(environ: MutableMapping[str, str]) -> TrainSettings:
    """Return the inputs; an invalid one's error goes into the manifest, so that the answer shows
    it."""
    try:
        return TrainSettings.read(environ)
    except UsageError as error:
        records = Path(environ.get("CANARY_RECORDS") or "/records")
        write_manifest(records, Manifest(error=str(error)[:LONGEST_ERROR]))
        raise


def train(
    settings: TrainSettings,
    environ: Mapping[str, str],
    say: Say,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run every config, write the records folder and return the job's exit code: 0 if there is
    something to judge, 4 if the machine could not train, 2 for wrong usage."""
    ends = clock() + 60.0 * settings.timeout_minutes
    try:
        place = prepare(settings, environ)
        problem = gpu_problem(place.python, environ) if settings.gpus != "none" else ""
        if problem:
            raise MachineError(problem)
    except CanaryError as error:
        return refused(settings, error, say)
    configs = settings.configs
    if settings.nightly:
        configs = with_nightly(configs, lambda config: (place.folder / config).is_file())
    parts: list[Part] = []
    codes = []
    for number, config in enumerate(configs):
        # If this process dies, the finished configs can still be judged.
        write_manifest(settings.records, Manifest(error=UNFINISHED, parts=parts))
        folder = f"{number:02d}-{slug(Path(config).stem)}"[:80]
        part, code = _Canary(settings, place, config, folder, say).trained(ends - clock())
        parts.append(part)
        codes.append(code)
    write_manifest(settings.records, Manifest(parts=parts))
    return EXIT_OK if EXIT_OK in codes else max(codes)


@dataclass(frozen=True)
class _Canary:
    """One config, and where it is trained."""

    settings: TrainSettings
    place: Place
    config: str
    folder: str
    """Of its records."""
    say: Say

    def trained(self, left_s: float) -> tuple[Part, int]:
        """Run it and return its part, with the reason if it could not run, and exit code."""
        settings, config, say = self.settings, self.config, self.say
        in_pairs = settings.compare == "ab" and bool(settings.base_sha)
        try:
            if left_s <= 0:
                spent = f"all {settings.timeout_minutes:g} minutes are used up"
                raise MachineError(spent, "raise timeout-minutes")
            repository_path(settings.folder, config)
            overrides, notes = self._overrides()
            if settings.compare == "ab" and not in_pairs:
                say(f"{config}: without a base commit, the run is compared with the stored runs")
            loaded = load_config(self.place.folder / config, overrides)
            if left_s / settings.runs < loaded.config.timeout:
                overrides.append(f"timeout={left_s / settings.runs:.1f}")
            say(f"{config}: canary {loaded.config.name}")
            if in_pairs:
                self.run_pairs(overrides, left_s)
            else:
                self.run_alone(overrides)
        except CanaryError as error:
            said = without_places(str(error), settings)
            say(f"error: {config}: {said}")
            part = Part(config=config, folder=self.folder, error=said[:LONGEST_ERROR])
            return part, error.exit_code
        mode: Mode = "ab" if in_pairs else "baseline"
        return Part(config=config, folder=self.folder, compare=mode, notes=notes), EXIT_OK

    def _overrides(self) -> tuple[list[str], list[str]]:
        """Return the settings of this run, the base branch's first, and notes on what those
        override."""
        settings, config = self.settings, self.config
        command = []
        if settings.command:  # bash runs it, like `run` in a workflow
            command = [f"command={json.dumps(['bash', '-c', settings.command])}"]
        if not settings.base_sha:
            return command, []
        read = git_reader(self.place.checkout, settings.base_sha)
        base = load_base_config(read, repository_path(settings.folder, config))
        if base is None:
            note = f"{config} is missing at {settings.base_sha[:9]} (new, or a shallow checkout)"
            return command, [f"{note}; the number of steps comes from this change"]
        notes = _overridden(base, load_config(self.place.folder / config, command))
        return held_settings(base) + command, notes

    def run_alone(self, overrides: list[str]) -> None:
        """Run as often as asked, each again if it fails: a regression fails twice, an accident does
        not. Failed runs stay beside completed ones, but not where they are judged."""
        words = [*program(self.place.python), "run", str(self.place.folder / self.config)]
        words += ["--quiet", "--output-dir", str(self.place.output)]
        for setting in overrides:
            words += ["--set", setting]
        ended: dict[str, bool] = {}
        for _ in range(self.settings.runs):
            for _ in range(ATTEMPTS):
                run = folder_left(*run_child(words, self.place.folder, self.place.environment))
                self._keep(run, "current")
                record = load_record(run)
                why = f": {record.reason}" if record.reason else ""
                self.say(f"{self.config}: {record.status}{why}")
                ended[run.name] = record.status == "completed"
                if ended[run.name]:
                    break
        folder = self.settings.records / self.folder
        for failed in [run for run in ended if not ended[run]] if any(ended.values()) else ():
            (folder / "failed").mkdir(exist_ok=True)
            (folder / "current" / failed).rename(folder / "failed" / failed)

    def run_pairs(self, overrides: list[str], left_s: float) -> None:
        """Run base and head in turn."""
        settings, place = self.settings, self.place
        request = AbRequest(
            config=Path(self.config),
            base=fork_point(place.checkout, settings.base_sha),
            head="HEAD",
            budget_minutes=min(settings.timeout_minutes / 2, left_s / 60.0),
            prepared=place.sides,
            output_dir=place.output,
            settings=tuple(item for item in overrides if not item.startswith("repeats=")),
        )
        with contextlib.chdir(place.folder):
            found, runs = run_ab(request, self.say)
        for role in ("base", "head"):
            for run in sorted((runs / role).glob("*/metrics.json")):
                self._keep(run.parent, role)
        self.say(f"{self.config}: {found.first_line}")

    def _keep(self, run: Path, role: str) -> None:
        keep(run, self.settings.records / self.folder / role, self.settings)


def _overridden(base: LoadedConfig, head: LoadedConfig) -> list[str]:
    notes = []
    for key in HELD:
        was, now = getattr(base.config, key), getattr(head.config, key)
        if was != now and head.origins.get(key) != FROM_STEPS:
            used, later = (_words(value) for value in (was, now))
            notes.append(
                f"{key}: this run used the base branch's {used}; {later} counts once merged"
            )
    return notes


def _words(value: object) -> str:
    """Return a key's value for a note."""
    if isinstance(value, BaseModel):
        return json.dumps(value.model_dump(exclude_none=True))
    return "default" if value is None else str(value)


def keep(run: Path, into: Path, settings: TrainSettings) -> None:
    """Copy a record's files: of a long log only the end, of large files of rows or of the profiler
    nothing. The reason of a failure loses this machine's folders."""
    target = into / run.name
    target.mkdir(parents=True, exist_ok=True)
    for name, most in KEPT.items():
        source = run / name
        if link_in(source, run) or not source.is_file() or source.stat().st_size > most:
            continue
        data = source.read_bytes()
        if name == "log.txt" and len(data) > LONGEST_LOG:
            data = data[-LONGEST_LOG:]
        if name == METRICS:
            data = _published(data, settings)
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_bytes(data)


def _published(record: bytes, settings: TrainSettings) -> bytes:
    """Return a record whose reason has no folder of this machine."""
    try:
        document = jsonio.loads(record)
    except ValueError:
        return record  # whoever reads it says what is wrong
    reason = document.get("reason") if isinstance(document, dict) else None
    if not isinstance(reason, str) or (shown := without_places(reason, settings)) == reason:
        return record
    return f"{jsonio.dumps(document | {'reason': shown}, indent=1)}\n".encode()
