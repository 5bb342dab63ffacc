"""The training job (untrusted): run each canary and always leave a records folder.

It has no token. The reporting job checks everything that it writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from canary.gate.preflight import gpu_problem
from canary.gate.records import Manifest, Mode, Part, write_manifest
from canary.gate.workspace import Place, Say, prepare, without_places
from canary.machine.program import program
from canary.record import jsonio
from canary.record.folder import load_record

METRICS = "metrics.json"
KEPT = (
    METRICS,
    "steps.jsonl",
    "alerts.jsonl",
    "config.yaml",
    "log.txt",
    "comparison.txt",
    "profiler/operators.json",
    "profiler/trace.json",
)
"""Files of a run's folder that go into the records."""
LONGEST_PROFILE = 8 << 20
"""Bytes of a profiler file; larger ones are dropped, so that all pairs fit into the records."""
ROWS, LARGEST_ROWS = ("steps.jsonl",), 24 << 20
"""Files of rows, and the bytes from which on they are dropped: no verdict needs them."""
LONGEST_LOG = 4 << 20
LONGEST_ERROR = 1_000
UNFINISHED = "the training job stopped before this config was done"
ATTEMPTS = 2
"""A failed run is repeated once: only a config that fails twice counts as failed."""


@contextlib.contextmanager
def told(environ: Mapping[str, str]) -> Iterator[None]:
    """Write an invalid input's error into the manifest, so that the answer shows it."""
    try:
        yield
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
        said = without_places(str(error), settings)
        write_manifest(settings.records, Manifest(error=said[:LONGEST_ERROR]))
        say(f"error: {error}")
        return error.exit_code
    configs = settings.configs
    if settings.nightly:
        configs = with_nightly(configs, lambda config: (place.folder / config).is_file())
    parts: list[Part] = []
    codes = []
    for number, config in enumerate(configs):
        # If this process dies, the finished configs can still be judged.
        write_manifest(settings.records, Manifest(error=UNFINISHED, parts=parts))
        part, code = _part(settings, place, config, number, ends - clock(), say)
        parts.append(part)
        codes.append(code)
    write_manifest(settings.records, Manifest(parts=parts))
    return EXIT_OK if EXIT_OK in codes else max(codes)


def _part(
    settings: TrainSettings, place: Place, config: str, number: int, left_s: float, say: Say
) -> tuple[Part, int]:
    """Run one canary and return its part, with the reason if it could not run, and exit code."""
    folder = f"{number:02d}-{slug(Path(config).stem)}"[:80]
    name = ""
    in_pairs = settings.compare == "ab" and bool(settings.base_sha)
    try:
        if left_s <= 0:
            spent = f"all {settings.timeout_minutes:g} minutes are used up"
            raise MachineError(spent, "raise timeout-minutes")
        repository_path(settings.folder, config)
        overrides, notes = _base_settings(settings, place, config)
        if settings.compare == "ab" and not in_pairs:
            say(f"{config}: without a base commit, the run is compared with the stored runs")
        loaded = load_config(place.folder / config, overrides)
        if left_s / settings.runs < loaded.config.timeout:
            overrides.append(f"timeout={left_s / settings.runs:.1f}")
        name = loaded.config.name
        say(f"{config}: canary {name}")
        if in_pairs:
            _run_ab(settings, place, config, overrides, folder, left_s, say)
        else:
            _run_alone(settings, place, config, overrides, folder, say)
    except CanaryError as error:
        said = without_places(str(error), settings)
        say(f"error: {config}: {said}")
        part = Part(config=config, name=name, folder=folder, error=said[:LONGEST_ERROR])
        return part, error.exit_code
    mode: Mode = "ab" if in_pairs else "baseline"
    return Part(config=config, name=name, folder=folder, compare=mode, notes=notes), EXIT_OK


def _base_settings(
    settings: TrainSettings, place: Place, config: str
) -> tuple[list[str], list[str]]:
    """Return the settings of this run, the base branch's first, and notes on what those
    override."""
    command = []
    if settings.command:  # bash runs it, like `run` in a workflow
        command = [f"command={json.dumps(['bash', '-c', settings.command])}"]
    if not settings.base_sha:
        return command, []
    read = git_reader(place.checkout, settings.base_sha)
    base = load_base_config(read, repository_path(settings.folder, config))
    if base is None:
        note = f"{config} is missing at {settings.base_sha[:9]} (new, or a shallow checkout)"
        return command, [f"{note}; the number of steps comes from this change"]
    notes = _overridden(base, load_config(place.folder / config, command))
    return held_settings(base) + command, notes


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


def _run_alone(
    settings: TrainSettings,
    place: Place,
    config: str,
    overrides: list[str],
    folder: str,
    say: Say,
) -> None:
    """Run as often as asked, each again if it fails: a regression fails twice, an accident does
    not."""
    words = [*program(place.python), "run", str(place.folder / config), "--quiet"]
    words += ["--output-dir", str(place.output)]
    for setting in overrides:
        words += ["--set", setting]
    ended: dict[str, bool] = {}
    for _ in range(settings.runs):
        for _ in range(ATTEMPTS):
            run = folder_left(*run_child(words, place.folder, place.environment))
            keep(run, settings.records / folder / "current", settings)
            record = load_record(run)
            say(f"{config}: {record.status}" + (f": {record.reason}" if record.reason else ""))
            ended[run.name] = record.status == "completed"
            if ended[run.name]:
                break
    if any(ended.values()):
        _set_aside([run for run in ended if not ended[run]], settings.records / folder)


def _set_aside(failed: Sequence[str], folder: Path) -> None:
    """Keep failed runs beside completed ones, but not where they are judged."""
    for run in failed:
        (folder / "failed").mkdir(exist_ok=True)
        (folder / "current" / run).rename(folder / "failed" / run)


def _run_ab(
    settings: TrainSettings,
    place: Place,
    config: str,
    overrides: list[str],
    folder: str,
    left_s: float,
    say: Say,
) -> None:
    here = Path.cwd()
    try:
        os.chdir(place.folder)
        found, runs = run_ab(
            AbRequest(
                config=Path(config),
                base=fork_point(place.checkout, settings.base_sha),
                head="HEAD",
                budget_minutes=min(settings.timeout_minutes / 2, left_s / 60.0),
                prepared=place.sides,
                output_dir=place.output,
                settings=tuple(item for item in overrides if not item.startswith("repeats=")),
            ),
            say,
        )
    finally:
        os.chdir(here)
    for role in ("base", "head"):
        for run in sorted((runs / role).glob("*/metrics.json")):
            keep(run.parent, settings.records / folder / role, settings)
    say(f"{config}: {found.first_line}")


def keep(run: Path, into: Path, settings: TrainSettings) -> None:
    """Copy a record's files: of a long log only the end, of large files of rows or of the profiler
    nothing. The reason of a failure loses this machine's folders."""
    target = into / run.name
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        source = run / name
        if not source.is_file() or source.is_symlink():
            continue
        if name in ROWS and source.stat().st_size > LARGEST_ROWS:
            continue
        profile = source.parent != run
        if profile and (source.parent.is_symlink() or source.stat().st_size > LONGEST_PROFILE):
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
