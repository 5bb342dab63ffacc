"""Compares paths: run folders, record files, histories, folders of runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from canary.baseline.comparability import machine_key
from canary.baseline.history import WINDOW, drawers, entries, is_history, select
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.report import Comparison, Records
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import (
    Thresholds,
    limits_of,
    load_metric_gates,
    load_thresholds,
    tier_thresholds,
)
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.config.load import gates_in
from canary.config.metric_gates import MetricGate
from canary.errors import InputError, RecordError, UsageError
from canary.record.folder import NAME_A_RUN, load_record
from canary.record.types import RunRecord


@dataclass(frozen=True)
class Request:
    """The arguments of `canary compare`."""

    current: tuple[Path, ...]
    baseline: tuple[Path, ...]
    tier: str | None = None
    threshold_file: Path | None = None
    noise_file: Path | None = None
    accept: str | None = None
    source: Callable[[RunRecord, RunRecord], SourceChanges] | None = None
    """Returns what changed between the commits of (baseline, current)."""
    load: Callable[[Path], RunRecord] = load_record
    """Reads a run's record."""


@dataclass(frozen=True)
class Compared:
    """A comparison and the compared records."""

    found: Comparison
    current: tuple[RunRecord, ...] = ()
    baseline: tuple[RunRecord, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the runs that are at hand, by run id; a history keeps only records."""


@dataclass(frozen=True)
class _Baseline:
    records: tuple[RunRecord, ...]
    anchor: tuple[RunRecord, ...] = ()
    noise_file: Path | None = None
    history: bool = False
    notes: tuple[str, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)


def sides(
    paths: Sequence[Path], baseline: Sequence[Path]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return (current paths, baseline paths) with patterns such as `out/*/metrics.json` expanded.

    Without `--baseline`, the last positional path is the baseline.

    Raises:
        UsageError: a side is not named.
        InputError: nothing matches a pattern.
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
    """Expand the patterns that the shell did not expand."""
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


def newest_of(paths: Sequence[Path], baseline: Sequence[Path]) -> tuple[Path, str]:
    """Return (path, run id) of the newest run; completed runs of the baseline's canary come first.

    Raises:
        InputError, RecordError: a run is missing or unreadable.
    """
    names = set()
    for path in baseline:
        # Loading both sides reports an unreadable run.
        with contextlib.suppress(InputError, RecordError):
            names.add(load_record(path).name)
    records = {path: load_record(path) for path in paths}

    def order(path: Path) -> tuple[bool, bool, str, str]:
        one = records[path]
        return one.name in names, one.status == "completed", one.timestamp, one.run_id

    newest = max(paths, key=order)
    return newest, records[newest].run_id


def compared_paths(request: Request) -> Compared:
    """Load both sides and compare them; an unreadable record gives the verdict `error`.

    Raises:
        InputError: a path is missing, or a run is on both sides.
        ConfigError: the thresholds are invalid.
    """
    try:
        return compared_records(request)
    except RecordError as error:
        return Compared(Comparison("error", f"Error: {error}."))


def compared_records(request: Request) -> Compared:
    """Load both sides and compare them.

    Raises:
        InputError: a path is missing, or a run is on both sides.
        RecordError: a record cannot be read.
        ConfigError: the thresholds are invalid.
    """
    if request.accept is not None and not request.accept.strip():
        raise UsageError("--accept needs a reason", "it is shown with the verdict")
    current = [request.load(path) for path in request.current]
    baseline = _load_baseline(request.baseline, current[-1], request.load)
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
        metrics=metric_gates_for(request, baseline.records or current),
        accept=request.accept,
        source=source,
    )
    found = replace(found, tier=tier, notes=(*found.notes, *baseline.notes))
    folders = {**baseline.folders, **_folders(current, request.current)}
    return Compared(found, tuple(current), baseline.records, folders)


def require_same_machine(noise: NoiseModel, record: RunRecord) -> None:
    """Raise InputError if the noise was measured on another canary or machine type."""
    here = machine_key(record)
    if record.name and noise.canary and noise.canary != record.name:
        raise InputError(
            f"the noise model is for canary {noise.canary!r}, the runs are of {record.name!r}",
            "run canary calibrate for this canary",
        )
    if noise.machine_key != here:
        raise InputError(
            f"the noise model is for {noise.machine_key}, the runs are from {here}",
            "run canary calibrate on this machine type",
        )


def thresholds_for(request: Request, records: Records) -> tuple[Thresholds, str]:
    """Return the thresholds and the name of their tier.

    By default they come from the baseline's config: a change must not loosen its own gate."""
    if request.threshold_file is not None:
        name = request.tier or request.threshold_file.name
        return load_thresholds(request.threshold_file, request.tier), name
    if request.tier is not None:
        return tier_thresholds(request.tier), request.tier
    source = f"the config of run {records[0].run_id}"
    section = records[0].config.get("thresholds") or {}
    limits = limits_of(section, source)
    changed = any(key != "base_tier" and section[key] is not None for key in section)
    extra = ", some overridden in the config" if changed else ""
    return limits, f"{section.get('base_tier') or 'default'}{extra}"


def metric_gates_for(request: Request, records: Records) -> tuple[MetricGate, ...]:
    """Return the gates on metrics: those of the file of limits, if it has `metrics`, else those of
    the newest record's config.

    `records`: the baseline, or the current side if there is none."""
    if request.threshold_file is not None:
        found = load_metric_gates(request.threshold_file)
        if found is not None:
            return found
    if not records:
        return ()
    newest = records[-1]
    return gates_in(newest.config.get("metrics"), f"the config of run {newest.run_id}")


def _load_baseline(
    paths: Sequence[Path], current: RunRecord, load: Callable[[Path], RunRecord]
) -> _Baseline:
    if len(paths) == 1 and paths[0].is_dir() and not (paths[0] / "metrics.json").exists():
        if is_history(paths[0]):
            chosen = select(paths[0], current)
            notes = () if chosen.records else _what_else(paths[0], current)
            return _Baseline(chosen.records, chosen.anchor, chosen.noise_file, True, notes)
        found = _folder_of_runs(paths[0], current, load)
        folders = {record.run_id: paths[0] / record.run_id for record in found}
        return _Baseline(found, history=True, folders=folders)
    for path in paths:
        if path.is_dir() and not (path / "metrics.json").exists():
            raise InputError(
                f"{path} is not a run: a history or a folder of runs must be the only baseline",
                f"use only --baseline {path}",
            )
    records = tuple(map(load, paths))
    return _Baseline(records, folders=_folders(records, paths))


def _folders(records: Records, paths: Sequence[Path]) -> dict[str, Path]:
    """Return the folder of each run, given its folder or record file."""
    named = zip(records, paths, strict=True)
    return {record.run_id: path if path.is_dir() else path.parent for record, path in named}


def _what_else(root: Path, current: RunRecord) -> tuple[str, ...]:
    """Return a note naming the history's runs, since none is of this canary on this machine type.

    A new name or dtype starts an empty history."""
    found = [f"{one.parent.name} on {one.name}" for one in drawers(root) if entries(one)]
    if not found:
        return ()
    wanted = f"{current.name or 'canary'} on {machine_key(current)}"
    return (f"the history has no run of {wanted}; it has {', '.join(found[:5])}",)


def _folder_of_runs(
    folder: Path, current: RunRecord, load: Callable[[Path], RunRecord]
) -> tuple[RunRecord, ...]:
    """Return the newest completed runs of the same canary in a folder, without the run itself."""
    if not any(folder.glob("*/metrics.json")):
        raise InputError(
            f"{folder} contains no record, no runs and no baseline history",
            "name a run's folder, its metrics.json, or a folder that save-baseline filled",
        )
    name = f"-{current.name or 'canary'}-"
    others = (
        path for path in folder.iterdir() if name in path.name and path.name != current.run_id
    )
    newest = sorted((path for path in others if (path / "metrics.json").exists()), reverse=True)
    runs = (one for one in map(load, newest) if one.status == "completed")
    found = islice((one for one in runs if one.name == current.name), WINDOW)
    return tuple(reversed([*found]))
