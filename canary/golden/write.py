"""Make a golden file of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from canary.errors import InputError, UsageError, nearest
from canary.golden.check import compare_metric, counted_steps
from canary.golden.formats.schema import Schema, statistic_of
from canary.golden.measured import MeasuredRun, measured_run, require_metric
from canary.golden.model import Entry, Golden, GoldenMetric, Series, as_filed
from canary.golden.schemas import schema_named, write_golden
from canary.golden.tolerance import Tolerance
from canary.golden.worse import statistics_of
from canary.record.types import RunRecord

NO_PLACE = ("output_dir", "save_model", "command")
"""Settings that a file for others must not hold: paths of a machine."""


def chosen(run: MeasuredRun, schema: Schema, wanted: Sequence[str]) -> dict[str, str]:
    """Return the metrics to write: the canary's name -> the file's.

    `wanted` has `NAME` or `NAME=TAG`; empty: the schema's metrics that the run has.

    Raises:
        UsageError: the schema cannot hold a metric.
        InputError: the run lacks a metric.
    """
    pairs = [text.partition("=") for text in wanted]
    names = {name.strip(): tag.strip() for name, _, tag in pairs}
    if not names:
        has = [name for name in schema.metrics if run.series(name).steps]
        names = dict.fromkeys((*has, *schema.required), "")
    if schema.only and (extra := [one for one in names if one not in schema.metrics]):
        raise UsageError(
            f"the {schema.name} format cannot hold {extra[0]!r}",
            f"it holds {' and '.join(schema.metrics)}",
        )
    for name in (*names, *schema.required):
        require_metric(run, name)
    if not names:
        raise InputError(f"run {run.run_id} has neither {' nor '.join(schema.metrics)}")
    found = {name: tag or tag_of(run.record, schema, name) for name, tag in names.items()}
    if len(set(found.values())) < len(found):
        raise UsageError("two metrics would have one name in the file", "name one as NAME=TAG")
    return found


def tag_of(record: RunRecord, schema: Schema, name: str) -> str:
    """Return the file's name of a metric: the source's own, then the schema's."""
    if schema.any_tolerance:
        return name  # The canary's file has the canary's names.
    of_source = {} if record.source is None or schema.only else record.source.names
    return of_source.get(name) or schema.tags.get(name, name)


def golden_of(
    run: MeasuredRun,
    schema: Schema,
    wanted: Sequence[str] = (),
    tolerances: Mapping[str, Tolerance] | None = None,
) -> Golden:
    """Return the golden values of a run.

    Raises:
        UsageError: the file cannot keep a tolerance, or its metric is not written.
        InputError: a value is not finite, a metric is missing, or launches of the run disagree.
    """
    given = dict(tolerances or {})
    names = chosen(run, schema, wanted)
    if given and not schema.any_tolerance:
        raise UsageError(
            f"the {schema.name} format keeps no tolerances", "give --tolerance to `golden check`"
        )
    if unknown := [name for name in given if name not in names]:
        near = nearest(unknown[0], names)
        hint = f"did you mean {near!r}?" if near else f"written are {', '.join(names)}"
        raise UsageError(f"--tolerance names {unknown[0]!r}, which is not written", hint)
    metrics = {}
    for name, tag in names.items():
        tolerance = given.get(name) or schema.tolerance(tag, name)
        series = finite(run, name)
        one = GoldenMetric(
            _as_filed(series, schema),
            tolerance,
            statistic_of(name),
            decimals=schema.decimals,
            single=schema.single,
        )
        _launches_agree(run, name, one)
        metrics[tag] = one
    return Golden(schema.name, metrics, run.record, facts=facts_of(run.record))


def _as_filed(series: Series, schema: Schema) -> Series:
    values = (as_filed(value, schema.decimals, schema.single) for value in series.values)
    return Series(series.steps, tuple(values))


def finite(run: MeasuredRun, name: str) -> Series:
    """Return a metric's series.

    Raises:
        InputError: it is missing, or a value of any launch is not finite.
    """
    for series in run.repeats(name):
        if bad := series.not_finite():
            step, value = bad
            raise InputError(
                f"{name} is {value} at step {step} of run {run.run_id}",
                "a golden file holds finite values only: repair the training first",
            )
    return require_metric(run, name)


def _launches_agree(run: MeasuredRun, name: str, golden: GoldenMetric) -> None:
    for number, series in enumerate(run.repeats(name)[1:], 2):
        found = compare_metric(name, name, golden, series)
        if not found.equal:
            raise InputError(
                f"launch {number} of run {run.run_id} disagrees with its first launch: "
                f"{found.sentence()}",
                "write a tolerance that fits, or seed the training",
            )


def write(
    path: Path, file: Path, form: str, wanted: Sequence[str], tolerances: Mapping[str, Tolerance]
) -> str:
    """Write a new golden file, and return a message.

    Raises:
        UsageError: the format or an option is unknown.
        InputError: the file exists, or the run cannot become golden.
        RecordError: the run cannot be read.
        MachineError: the file cannot be written.
    """
    schema = schema_named(form)
    if file.exists() or file.is_symlink():
        raise InputError(
            f"{file} exists", "change it with: canary golden refresh RUN... FILE --reason TEXT"
        )
    run = measured_run(path)
    golden = golden_of(run, schema, wanted, tolerances)
    entry = first_entry(run.record, golden, datetime.now(UTC))
    golden = Golden(golden.schema, golden.metrics, golden.record, (entry,), golden.facts)
    write_golden(file, schema.write(golden))
    counts = ", ".join(
        f"{tag} at {counted_steps(len(one.series.steps))}" for tag, one in golden.metrics.items()
    )
    dirty = "; note: the run had uncommitted changes" if run.record.git.get("dirty") else ""
    return f"wrote {file} ({schema.name} format) from {run.run_id}: {counts}{dirty}"


def first_entry(record: RunRecord, golden: Golden, now: datetime) -> Entry:
    """Return the history's entry of a new file."""
    return Entry(
        date=f"{now:%Y-%m-%d}",
        reason="written",
        runs=[record.run_id],
        commit=record.git.get("sha"),
        dirty=record.git.get("dirty"),
        statistics={tag: statistics_of(tag, one.series) for tag, one in golden.metrics.items()},
    )


def facts_of(record: RunRecord) -> dict[str, Any]:
    """Return what trl's schema says about the run."""
    packages = record.env.get("packages") or {}
    gpus = record.env.get("gpus") or []
    config = {
        key: str(value)
        for key, value in record.config.items()
        if isinstance(value, str | int | float) and key not in NO_PLACE
    }
    return {
        "config": {
            "name": record.name,
            "method": str(record.config.get("training_type", "")),
            "args": config,
        },
        "env": {
            **{name: packages.get(name) for name in ("accelerate", "torch", "transformers", "trl")},
            "python": record.env.get("python"),
            "gpu": gpus[0].get("name") if gpus else "cpu",
        },
    }
