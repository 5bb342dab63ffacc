"""The untrusted half: runs each canary and leaves the records folder, whatever happens.

It has no token, and nothing that it writes is believed beyond where the records lie.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from canary.baseline.comparability import slug
from canary.campaign.ab import AbRequest, run_ab
from canary.campaign.side import run_child
from canary.collect.folder import load_record
from canary.config.load import LoadedConfig, load_config
from canary.errors import EXIT_ERROR, EXIT_OK, EXIT_USAGE, CanaryError, MachineError, UsageError
from canary.gate.base_config import (
    git_reader,
    held_keys,
    held_settings,
    load_base_config,
    repository_path,
)
from canary.gate.manifest import Manifest, Part, write_manifest
from canary.gate.place import Place, Say, prepare
from canary.gate.preflight import gpu_problem
from canary.gate.settings import TrainSettings

KEPT = (
    "metrics.json",
    "steps.jsonl",
    "probe_steps.jsonl",
    "alerts.jsonl",
    "config.yaml",
    "log.txt",
    "comparison.txt",
)
"""What of a run's folder goes into the records."""
LONGEST_LOG = 4 << 20
LONGEST_ERROR = 1_000
ATTEMPTS = 2
"""A run that fails is run once more: a candidate that fails twice has failed."""


def train(settings: TrainSettings, environ: Mapping[str, str], say: Say) -> int:
    """Runs every config and writes the records folder. Returns the exit code of the job: 0 where
    there is something to judge, 4 where the machine could not train, 2 for wrong usage."""
    settings.records.mkdir(parents=True, exist_ok=True)
    try:
        if settings.command:
            raise UsageError(
                "input command: this version has no `canary exec` yet",
                "name a config with the built-in trainers instead",
            )
        place = prepare(settings, environ)
        problem = gpu_problem(place.python, environ) if settings.wants_gpu else ""
        if problem:
            raise MachineError(problem)
        parts = [_part(settings, place, number, say) for number in range(len(settings.configs))]
    except CanaryError as error:
        write_manifest(settings.records, Manifest(error=str(error)[:LONGEST_ERROR]))
        say(f"error: {error}")
        return error.exit_code
    write_manifest(settings.records, Manifest(parts=parts))
    return EXIT_OK if any(not part.error for part in parts) else EXIT_ERROR


def _part(settings: TrainSettings, place: Place, number: int, say: Say) -> Part:
    """One config, run as asked; what cannot be run says why."""
    config = settings.configs[number]
    folder = f"{number:02d}-{slug(Path(config).stem)}"[:80]
    name = ""
    try:
        overrides, notes = _held(settings, place, config)
        loaded = load_config(place.folder / config, overrides)
        name = loaded.config.name
        say(f"{config}: canary {name}")
        if settings.compare == "ab" and settings.base_sha:
            _run_ab(settings, place, config, overrides, folder, say)
            mode = "ab"
        else:
            _run_alone(settings, place, config, overrides, folder, say)
            mode = "baseline"
    except CanaryError as error:
        say(f"error: {config}: {error}")
        return Part(config=config, name=name, folder=folder, error=str(error)[:LONGEST_ERROR])
    return Part(
        config=config,
        name=name,
        folder=folder,
        compare="ab" if mode == "ab" else "baseline",
        notes=notes,
    )


def _held(settings: TrainSettings, place: Place, config: str) -> tuple[list[str], list[str]]:
    """Settings of the base branch's config that hold here, and what they override, in words."""
    repeats = [f"repeats={settings.repeats}"] if settings.repeats else []
    if not settings.base_sha:
        return repeats, []
    path = repository_path(settings.folder, config)
    base = load_base_config(git_reader(place.checkout, settings.base_sha), path)
    if base is None:
        note = f"{config} is not at {settings.base_sha[:9]} (new, or a shallow checkout)"
        return repeats, [f"{note}: the steps are this change's own"]
    notes = _overridden(base, load_config(place.folder / config))
    return held_settings(base, repeats=settings.repeats), notes


def _overridden(base: LoadedConfig, own: LoadedConfig) -> list[str]:
    notes = []
    for key in held_keys(base):
        was, now = getattr(base.config, key), getattr(own.config, key)
        if was != now:
            notes.append(f"{key}: {now} in this change holds after the merge; {was} was run")
    return notes


def _run_alone(
    settings: TrainSettings, place: Place, config: str, overrides: list[str], folder: str, say: Say
) -> None:
    """One run; a failed one once more, so that an accident is told from a regression."""
    words = [str(place.python), "-m", "canary.cli", "run", str(place.folder / config), "--quiet"]
    words += ["--output-dir", str(place.output)]
    for setting in overrides:
        words += ["--set", setting]
    for attempt in range(ATTEMPTS):
        code, out, err = run_child(words, place.folder, place.environment)
        said = (err.strip().splitlines() or [f"exit code {code}"])[-1].removeprefix("canary: ")
        printed = out.strip().splitlines()
        if code == EXIT_USAGE:
            raise UsageError(said)
        if not printed or not (Path(printed[-1]) / "metrics.json").exists():
            raise MachineError(f"no record was left: {said}")
        run = Path(printed[-1])
        keep(run, settings.records / folder / "current")
        record = load_record(run)
        say(f"{config}: {record.status}" + (f": {record.reason}" if record.reason else ""))
        if record.status == "completed":
            _set_aside_all_but(run.name, settings.records / folder)
            return
        if attempt + 1 < ATTEMPTS:
            say(f"{config}: run once more")


def _set_aside_all_but(completed: str, folder: Path) -> None:
    """Failed runs beside a completed one are kept, and judged no more."""
    for run in sorted((folder / "current").iterdir()):
        if run.name != completed:
            (folder / "failed").mkdir(exist_ok=True)
            run.rename(folder / "failed" / run.name)


def _run_ab(
    settings: TrainSettings, place: Place, config: str, overrides: list[str], folder: str, say: Say
) -> None:
    here = Path.cwd()
    try:
        os.chdir(place.folder)
        found, runs = run_ab(
            AbRequest(
                config=Path(config),
                base=settings.base_sha,
                head="HEAD",
                budget_minutes=settings.budget_minutes,
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
            keep(run.parent, settings.records / folder / role)
    say(f"{config}: {found.first_line}")


def keep(run: Path, into: Path) -> None:
    """Copies what belongs to a record; a long log keeps its end."""
    target = into / run.name
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        source = run / name
        if not source.is_file() or source.is_symlink():
            continue
        data = source.read_bytes()
        if name == "log.txt" and len(data) > LONGEST_LOG:
            data = data[-LONGEST_LOG:]
        (target / name).write_bytes(data)
