"""Write golden values anew from repeats that agree, and say what moved and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from canary.compare.exact.changes import config_changes
from canary.compare.paths import Request, thresholds_for
from canary.compare.thresholds import Thresholds
from canary.errors import EXIT_OK, EXIT_REGRESSION, InputError, UsageError
from canary.golden.cause import Cause, cause_of, package_changes
from canary.golden.check import MetricCheck, compare_metric, counted_metrics, name_of, require_known
from canary.golden.formats.schema import Schema
from canary.golden.measured import MeasuredRun, measured_run
from canary.golden.model import Entry, Golden, GoldenMetric, Moved, Series
from canary.golden.repeats import Agreement, agreement
from canary.golden.schemas import SCHEMAS, inside_its_folder, read_golden, write_golden
from canary.golden.tolerance import EXACT, Tolerance
from canary.golden.worse import Judged, judged, statistics_of
from canary.golden.write import facts_of
from canary.record.folder import load_record
from canary.record.types import RunRecord


@dataclass(frozen=True)
class Ask:
    """The arguments of `canary golden refresh`."""

    runs: tuple[Path, ...]
    file: Path
    reason: str
    accept: str | None = None
    tolerances: Mapping[str, Tolerance] | None = None
    limits: Mapping[str, Tolerance] | None = None
    """Limits of a worse metric in percent, by the file's or the run's name."""
    baseline: Path | None = None
    """The run behind the present values, if the file does not hold its record."""
    repository: Path = Path()


@dataclass(frozen=True)
class MetricRefresh:
    """One metric of the file."""

    tag: str
    name: str
    golden: GoldenMetric
    agreed: Agreement
    moved: MetricCheck
    """The new values against the old ones, exactly."""
    judged: tuple[Judged, ...] = ()

    @property
    def beyond(self) -> Judged | None:
        """The statistic that is furthest beyond its limit; None if all are within it."""
        return max((one for one in self.judged if one.beyond), key=_used, default=None)

    @property
    def nearest(self) -> Judged:
        """The statistic that used most of its limit."""
        return max(self.judged, key=_used)

    def words(self) -> str:
        """Return what moved. Why it was refused stands in `Refreshed.refused`."""
        if self.agreed.problem:
            return "refused"
        return "did not move" if self.moved.equal else self.moved.movement()


def _used(one: Judged) -> float:
    return one.used


@dataclass(frozen=True)
class Refreshed:
    """The answer of `canary golden refresh`."""

    file: str
    schema: str
    reason: str
    runs: tuple[str, ...]
    metrics: tuple[MetricRefresh, ...]
    cause: Cause
    refused: tuple[str, ...]
    """Why the file was not written; empty: it was, or nothing moved."""
    accept: str | None = None
    """The user's reason to accept what got worse, even if nothing did."""
    uncommitted: tuple[str, ...] = ()
    """The runs with uncommitted changes."""

    @property
    def worse(self) -> tuple[str, ...]:
        """The metrics that got worse beyond their limit."""
        return tuple(one.tag for one in self.metrics if one.beyond)

    @property
    def accepted(self) -> str | None:
        """Why what got worse was accepted; None if nothing had to be, or the file is refused."""
        return self.accept if self.worse and not self.refused else None

    @property
    def moved(self) -> tuple[MetricRefresh, ...]:
        """The metrics that moved."""
        return tuple(one for one in self.metrics if not one.moved.equal)

    @property
    def exit_code(self) -> int:
        """The exit code of the process."""
        return EXIT_REGRESSION if self.refused else EXIT_OK

    @property
    def first_line(self) -> str:
        """The answer in one sentence."""
        if self.refused:
            return f"Golden: {self.file} is not refreshed: {self.refused[0]}."
        if not self.moved:
            return f"Golden: nothing moved, {self.file} stays as it is."
        moved = f"{len(self.moved)} of {counted_metrics(len(self.metrics))} moved"
        worse = f"; {', '.join(self.worse)} got worse, accepted" if self.accepted else ""
        return f"Golden: {self.file} is refreshed, {moved}{worse}."


def refresh(ask: Ask, now: datetime | None = None) -> Refreshed:
    """Judge the repeats, and replace the file if nothing speaks against it.

    Raises:
        UsageError: an option is wrong.
        InputError: a run cannot become golden, or the runs are no repeats of each other.
        RecordError: a run or the file cannot be read.
        MachineError: the file cannot be written.
    """
    _require_reasons(ask)
    golden = read_golden(ask.file)
    inside_its_folder(ask.file)
    schema = SCHEMAS[golden.schema]
    if ask.tolerances and schema.any_tolerance:
        raise UsageError(
            "--tolerance does not change the tolerances of a canary file",
            "edit them in the file, where a review sees it",
        )
    runs = _repeats(ask.runs)
    names = {tag: name_of(runs[0], golden.schema, tag) for tag in golden.metrics}
    for given in (ask.tolerances, ask.limits):
        require_known(given or {}, names)
    before = load_record(ask.baseline) if ask.baseline else golden.record
    limits = thresholds_for(Request((), ()), (before or runs[0].record,))[0]
    metrics = tuple(_metric(ask, golden, runs, tag, limits) for tag in golden.metrics)
    uncommitted = [run for run in runs if run.record.git.get("dirty")]
    newest = (uncommitted or runs)[-1]  # The one whose commit does not say what ran, if any.
    found = Refreshed(
        str(ask.file),
        golden.schema,
        ask.reason.strip(),
        tuple(run.run_id for run in runs),
        metrics,
        cause_of(before, newest.record, ask.repository),
        _refusals(metrics, ask.accept),
        ask.accept,
        tuple(run.run_id for run in uncommitted),
    )
    if not found.refused and found.moved:
        entry = _entry(found, before, newest.record, now or datetime.now(UTC))
        write_golden(ask.file, schema.write(_renewed(golden, schema, found, newest, entry)))
    return found


def _require_reasons(ask: Ask) -> None:
    if not ask.reason.strip():
        raise UsageError("--reason is empty", "say why the values may change: it is kept")
    if ask.accept is not None and not ask.accept.strip():
        raise UsageError("--accept needs a reason", "it is kept in the file's history")


def _repeats(paths: Sequence[Path]) -> list[MeasuredRun]:
    """Load the runs.

    Raises:
        InputError: one is named twice, or they are not of one commit, config and environment.
    """
    runs = [measured_run(path) for path in paths]
    first = runs[0].record
    seen: set[str] = set()
    for run in runs:
        if run.run_id in seen:
            raise InputError(f"run {run.run_id} is named twice", "a repeat is another run")
        seen.add(run.run_id)
        if why := _not_a_repeat(first, run.record):
            raise InputError(f"{first.run_id} and {run.run_id} are no repeats: {why}")
    return runs


def _not_a_repeat(first: RunRecord, other: RunRecord) -> str:
    if first.git.get("sha") != other.git.get("sha"):
        shas = (str(one.git.get("sha") or "no commit")[:9] for one in (first, other))
        return f"their commits are {' and '.join(shas)}"
    changed = [change.key for change in config_changes(first, other) if not change.cosmetic]
    changed += package_changes(first, other)
    return f"they differ in {', '.join(changed[:5])}" if changed else ""


def _metric(
    ask: Ask, golden: Golden, runs: Sequence[MeasuredRun], tag: str, limits: Thresholds
) -> MetricRefresh:
    one = golden.metrics[tag]
    name = name_of(runs[0], golden.schema, tag)
    given = ask.tolerances or {}
    one = replace(one, tolerance=given.get(tag) or given.get(name) or one.tolerance)
    repeats = [_as_filed(one, series) for run in runs for series in run.repeats(name)]
    agreed = agreement(one, repeats)
    moved = compare_metric(tag, name, replace(one, tolerance=EXACT, statistic="step"), repeats[0])
    if agreed.problem:
        return MetricRefresh(tag, name, one, agreed, moved)
    moved = compare_metric(tag, name, _exactly(one), agreed.series)
    asked = ask.limits or {}
    limit = asked.get(tag) or asked.get(name)
    was, new = (statistics_of(name, series) for series in (one.series, agreed.series))
    worse = judged(name, was, new, limits, limit)
    if (anchor := _anchor(golden)) is not None:
        then = anchor.statistics.get(tag, {})
        worse += judged(name, then, new, limits, limit, f" since {anchor.date}")
    return MetricRefresh(tag, name, one, agreed, moved, tuple(worse))


def _anchor(golden: Golden) -> Entry | None:
    """Return the entry of the last accepted change, or the first one."""
    entries = [entry for entry in golden.history if entry.accepted]
    return entries[-1] if entries else next(iter(golden.history), None)


def _exactly(golden: GoldenMetric) -> GoldenMetric:
    """Return the metric to be compared exactly; distances keep the tolerance's unit."""
    tolerance = golden.tolerance
    return replace(golden, tolerance=replace(tolerance, size=0.0, mean=None))


def _as_filed(golden: GoldenMetric, series: Series) -> Series:
    """Return the steps and digits of a series that the file keeps."""
    kept = {s: golden.rounded(v) for s, v in series.at().items() if golden.asks_for(s)}
    return Series(tuple(kept), tuple(kept.values()))


def _refusals(metrics: Sequence[MetricRefresh], accept: str | None) -> tuple[str, ...]:
    """Return why the file must not be written. One refused metric refuses the whole file."""
    problems: dict[str, list[str]] = {}
    for one in metrics:
        if one.agreed.problem:
            problems.setdefault(one.agreed.problem, []).append(one.tag)
    found = [
        why if len(tags) == len(metrics) > 1 else f"{', '.join(tags)}: {why}"
        for why, tags in problems.items()
    ]
    if accept is None:
        found += [
            f"{one.tag} got worse beyond its limit ({worse.sentence()}); "
            "--accept REASON would accept it"
            for one in metrics
            if (worse := one.beyond) is not None
        ]
    return tuple(found)


def _entry(found: Refreshed, before: RunRecord | None, after: RunRecord, now: datetime) -> Entry:
    return Entry(
        date=f"{now:%Y-%m-%d}",
        reason=found.reason,
        runs=list(found.runs),
        commit=after.git.get("sha"),
        dirty=after.git.get("dirty"),
        packages=package_changes(before, after),
        moved={one.tag: _moved(one.moved) for one in found.moved},
        accepted=found.accepted,
        statistics={one.tag: statistics_of(one.name, one.agreed.series) for one in found.metrics},
    )


def _moved(one: MetricCheck) -> Moved:
    units = {"ulp": "ulp", "percent": "%"}
    return Moved(
        first_step=one.first.step if one.first else None,
        steps=one.differing + len(one.missing) + len(one.extra),
        largest=one.largest.distance if one.largest else 0.0,
        unit=units.get(one.tolerance.kind, ""),
    )


def _renewed(
    golden: Golden, schema: Schema, found: Refreshed, run: MeasuredRun, entry: Entry
) -> Golden:
    metrics = {
        one.tag: replace(golden.metrics[one.tag], series=one.agreed.series, numberless=())
        for one in found.metrics
    }
    facts = {**golden.facts, "env": facts_of(run.record)["env"]} if golden.facts else {}
    return Golden(schema.name, metrics, run.record, (*golden.history, entry), facts)
