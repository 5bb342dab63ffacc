"""Comparing what lies on the disk: run folders, record files, histories, folders of runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from canary.baseline.comparability import machine_key
from canary.baseline.history import WINDOW, is_history, rows, select
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import Thresholds, from_config, load_thresholds, tier_thresholds
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.config.threshold_keys import ThresholdsConfig
from canary.errors import ConfigError, InputError, RecordError, UsageError
from canary.record.folder import NAME_A_RUN, load_record
from canary.record.types import RunRecord


@dataclass(frozen=True)
class Request:
    """What `canary compare` was asked."""

    current: tuple[Path, ...]
    baseline: tuple[Path, ...]
    tier: str | None = None
    threshold_file: Path | None = None
    noise_file: Path | None = None
    accept: str | None = None
    source: Callable[[RunRecord, RunRecord], SourceChanges] | None = None
    """Asks what the commits of (baseline, current) changed."""


@dataclass(frozen=True)
class Compared:
    """A comparison and the records that it is of."""

    found: Comparison
    current: tuple[RunRecord, ...] = ()
    baseline: tuple[RunRecord, ...] = ()


@dataclass(frozen=True)
class _Baseline:
    records: tuple[RunRecord, ...]
    anchor: tuple[RunRecord, ...] = ()
    noise_file: Path | None = None
    history: bool = False
    notes: tuple[str, ...] = ()


def sides(
    paths: Sequence[Path], baseline: Sequence[Path]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Current and baseline paths, patterns such as `out/*/metrics.json` filled in; without
    `--baseline`, the last of the positional ones is it.

    Raises:
        UsageError: it does not say which are which.
        InputError: a pattern that nothing matches.
    """
    named = _matches(paths)
    if baseline:
        if not named:
            raise UsageError("no current run named", "canary compare RUN --baseline BASELINE")
        return named, _matches(baseline)
    if len(paths) < 2:
        raise UsageError("no baseline named", "canary compare RUN BASELINE")
    *current, last = named
    others = tuple(path for path in current if path.resolve() != last.resolve())
    return (others if len(current) > 1 and others else tuple(current)), (last,)


def _matches(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Each path, or what it matches where it is a pattern that the shell left as it is."""
    found: list[Path] = []
    for path in paths:
        if path.exists() or not set("*?[") & set(str(path)):
            found.append(path)
            continue
        matched = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not matched:
            raise InputError(f"nothing matches {path}", NAME_A_RUN)
        found += matched
    return tuple(found)


@dataclass(frozen=True)
class Newest:
    """The run that is taken of several."""

    path: Path
    run_id: str
    canary: str
    """Empty where any canary's was looked for."""
    incomplete: tuple[str, ...]
    """Newer runs that were passed over, with how they ended ..."""
    of_others: tuple[str, ...]
    """... and those of other canaries, with their names."""


def newest_of(paths: Sequence[Path], baseline: Sequence[Path]) -> Newest:
    """The newest completed run of several, or the newest where none completed: of the canary of the
    baseline, where that is a run which names one that some of them are of.

    Raises:
        InputError, RecordError: one that is not there, or cannot be read.
    """
    records = {path: load_record(path) for path in paths}
    canary = _canary_of(baseline)
    if canary not in {record.name for record in records.values()}:
        canary = ""
    ordered = sorted(paths, key=lambda path: (records[path].timestamp, records[path].run_id))
    own = [path for path in ordered if canary in ("", records[path].name)]
    newest = next((path for path in reversed(own) if records[path].status == "completed"), own[-1])
    newer = [(path in own, records[path]) for path in ordered[ordered.index(newest) + 1 :]]
    return Newest(
        newest,
        records[newest].run_id,
        canary,
        tuple(f"{record.run_id} ({record.status})" for is_own, record in newer if is_own),
        tuple(f"{record.run_id} ({record.name!r})" for is_own, record in newer if not is_own),
    )


def _canary_of(baseline: Sequence[Path]) -> str:
    """The canary that a baseline is of; empty where it is no run that says so."""
    for path in baseline:
        # A run that cannot be read is told where both sides are loaded.
        with contextlib.suppress(InputError, RecordError):
            return load_record(path).name
    return ""


def compare_paths(request: Request) -> Comparison:
    """As `compared_paths`, the comparison alone."""
    return compared_paths(request).found


def compared_paths(request: Request) -> Compared:
    """Loads both sides and compares them; a record that cannot be read is verdict `error`.

    Raises:
        InputError: a path that is not there, or one run on both sides.
        ConfigError: thresholds that are not.
    """
    if request.accept is not None and not request.accept.strip():
        raise UsageError("--accept needs a reason", "it is shown with the verdict")
    try:
        current = [load_record(path) for path in request.current]
        baseline = _load_baseline(request.baseline, current[-1])
    except RecordError as error:
        return Compared(Comparison("error", f"Error: {error}."))
    thresholds, tier = thresholds_for(request, (*baseline.records, *current))
    noise_file = request.noise_file or baseline.noise_file
    noise: NoiseModel | None = load_noise(noise_file) if noise_file else None
    if noise is not None:
        require_same_machine(noise, current[-1])
    source = None
    if request.source is not None and baseline.records:
        source = request.source(baseline.records[-1], current[-1])
    found = compare_to_baseline(
        current,
        baseline.records,
        thresholds,
        noise=noise,
        history=baseline.history,
        anchor=baseline.anchor,
        accept=request.accept,
        source=source,
    )
    found = replace(found, tier=tier, notes=(*found.notes, *baseline.notes))
    return Compared(found, tuple(current), baseline.records)


def require_same_machine(noise: NoiseModel, record: RunRecord) -> None:
    """Refuses the noise of another canary or machine.

    Raises:
        InputError: the model was measured on another canary or class of runner.
    """
    here = machine_key(record)
    if record.name and noise.canary and noise.canary != record.name:
        raise InputError(
            f"the noise model is of canary {noise.canary!r}, the runs are of {record.name!r}",
            "canary calibrate measures each canary",
        )
    if noise.machine_key != here:
        raise InputError(
            f"the noise model is of {noise.machine_key}, the runs are of {here}",
            "canary calibrate measures it here",
        )


def thresholds_for(request: Request, records: Sequence[RunRecord]) -> tuple[Thresholds, str]:
    """Thresholds and the name of their tier: as asked, or else from the baseline's own config, so
    that a change cannot loosen the gate that it must pass."""
    if request.threshold_file is not None:
        name = request.tier or request.threshold_file.name
        return load_thresholds(request.threshold_file, request.tier), name
    if request.tier is not None:
        return tier_thresholds(request.tier), request.tier
    section = records[0].config.get("thresholds") or {}
    try:
        config = ThresholdsConfig.model_validate(section)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"thresholds.{key} in the config of run {records[0].run_id}: {first['msg']}",
            "give --threshold-tier or --threshold-file",
        ) from error
    own = {key for key in section if key != "base_tier" and section[key] is not None}
    return from_config(config), config.base_tier + (" with the config's own" if own else "")


def _load_baseline(paths: Sequence[Path], current: RunRecord) -> _Baseline:
    if len(paths) == 1 and paths[0].is_dir() and not (paths[0] / "metrics.json").exists():
        if is_history(paths[0]):
            chosen = select(paths[0], current)
            notes = () if chosen.records else _what_else(paths[0], current)
            return _Baseline(chosen.records, chosen.anchor, chosen.noise_file, True, notes)
        return _Baseline(_folder_of_runs(paths[0], current), history=True)
    for path in paths:
        if path.is_dir() and not (path / "metrics.json").exists():
            raise InputError(
                f"{path} is not a run: name a history or a folder of runs alone",
                f"--baseline {path}, and no other",
            )
    return _Baseline(tuple(load_record(path) for path in paths))


def _what_else(root: Path, current: RunRecord) -> tuple[str, ...]:
    """Says that a history has runs, though none of this canary on this machine: a new name or
    dtype begins an empty one."""
    found = [f"{canary} on {machine}" for canary, machine, *_ in rows(root)]
    if not found:
        return ()
    wanted = f"{current.name or 'canary'} on {machine_key(current)}"
    return (f"the history has no run of {wanted}; it has {', '.join(found[:5])}",)


def _folder_of_runs(folder: Path, current: RunRecord) -> tuple[RunRecord, ...]:
    """The newest completed runs of the same canary among run folders, without the run itself."""
    if not any(folder.glob("*/metrics.json")):
        raise InputError(
            f"{folder} holds neither a record, nor runs, nor a baseline history",
            "name a run's folder, its metrics.json, or a folder that save-baseline filled",
        )
    found: list[RunRecord] = []
    name = f"-{current.name or 'canary'}-"
    for path in sorted(folder.iterdir(), key=lambda path: path.name, reverse=True):
        if name not in path.name or path.name == current.run_id:
            continue
        if not (path / "metrics.json").exists():
            continue
        record = load_record(path)
        if record.status == "completed" and record.name == current.name:
            found.append(record)
        if len(found) == WINDOW:
            break
    return tuple(reversed(found))
