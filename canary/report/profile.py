"""The profile of a run as text, Markdown or JSON, alone or against another run's."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from canary.compare.diagnosis.operators import (
    Clock,
    OperatorDifference,
    OperatorDifferences,
    OperatorUse,
    of_rows,
    operator_differences,
    table_differences,
)
from canary.errors import InputError, RecordError
from canary.record.bottlenecks import find_bottlenecks, one_line
from canary.record.folder import load_record
from canary.record.profile import OPERATORS, read_profile
from canary.record.profile_folder import FOLDER
from canary.record.types import OperatorRow, Profiler, RunRecord
from canary.report.document import json_lines
from canary.report.lines import Cells, figures
from canary.report.numbers import signed, significant
from canary.report.render import INDENT, check_format, filled

DOCUMENT_VERSION = 1
HOW = (
    "put `profiler: {enabled: true, start_step: 20, num_steps: 5}` into its config, "
    "or run it with --set profiler.enabled=true"
)
COUNTED = ("operator", "runtime")
OPERATOR_HEADINGS = ("operator", "calls per step", "ms per step", "share")
DIFFERENCE_HEADINGS = ("operator", "change", "calls per step", "ms per step", "growth")

LEAST_SHOWN_MS = 0.001


@dataclass(frozen=True)
class ProfiledRun:
    """A run's record, and all its operators if their file is there."""

    record: RunRecord
    folder: Path
    operators: tuple[OperatorRow, ...] = ()

    @property
    def profiler(self) -> Profiler:
        """The record's summary of the profile."""
        return self.record.profiler

    @property
    def has_device(self) -> bool:
        """Whether the device was traced and did any work."""
        return bool(self.profiler.cuda_time_total_ms)

    def self_ms(self, row: OperatorRow) -> float:
        """Return an operator's self time on the device if it was traced, else on the host."""
        return row.self_cuda_time_ms if self.has_device else row.self_cpu_time_ms

    def longest_first(self) -> list[OperatorRow]:
        """Return operators by self time: all of them if known, else those in the record."""
        listed = self.profiler.top_cuda_ops if self.has_device else self.profiler.top_cpu_ops
        rows = [row for row in self.operators if self.self_ms(row) > 0] or listed
        return sorted(rows, key=lambda row: (-self.self_ms(row), row.name))


def load_profiled(path: Path) -> ProfiledRun:
    """Load a run from its folder or its `metrics.json`.

    Raises:
        InputError: it is missing.
        RecordError: it cannot be read.
    """
    record = load_record(path)
    folder = path if path.is_dir() else path.parent
    document: Any = {}
    if record.profiler.operators_path is not None:
        place = folder / record.profiler.operators_path
        try:
            document = read_profile(place.parent) or {}
        except OSError as error:
            raise RecordError(f"cannot read {place}: {error.strerror}") from error
    try:
        operators = tuple(
            OperatorRow(**{key: row[key] for key in OperatorRow.model_fields})
            for row in document.get("operators", [])
            if row["kind"] in COUNTED
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{folder / FOLDER / OPERATORS} is not a table of operators") from error
    return ProfiledRun(record, folder, operators)


def profile_text(
    run: Path, against: Path | None, form: str, top: int, width: int | None = None
) -> str:
    """Return a run's profile in one of the formats, ending with a line break. Lines of text fit
    the width, if there is one. Each table has `top` operators.

    Raises:
        UsageError: unknown format.
        InputError: a run has no profile.
    """
    check_format(form)
    current = load_profiled(run)
    found = None if against is None else _differences(current, load_profiled(against))
    if found is not None and found.source is None:
        raise InputError(f"nothing to compare: {found.reason}", HOW)
    if found is None and not current.profiler.steps:
        why = current.record.unmeasured.get("profiler", "profiling was off")
        raise InputError(f"{current.record.run_id} has no profile: {why}", HOW)
    if form == "json":
        return json_lines(_document(current, found))
    return filled(
        "profile",
        form,
        width,
        view=_view(current, top) | {"against": found and _against(found, str(against), top)},
        aligned=partial(figures, width=width and width - len(INDENT)),
        operator_headings=OPERATOR_HEADINGS,
        difference_headings=DIFFERENCE_HEADINGS,
    )


def _differences(current: ProfiledRun, baseline: ProfiledRun) -> OperatorDifferences:
    """Compare all operators if both runs have their files, else those in the records."""
    if not (current.operators and baseline.operators):
        return operator_differences(current.record, baseline.record)
    clock: Clock = "device" if current.has_device and baseline.has_device else "host"
    tables = [
        of_rows(side.operators, len(side.profiler.steps), clock) for side in (current, baseline)
    ]
    return table_differences(*tables)


def _view(run: ProfiledRun, top: int) -> dict[str, Any]:
    """Return what the templates show of one run, as strings."""
    profiler, steps = run.profiler, len(run.profiler.steps)
    if not steps:
        nothing = dict.fromkeys(("bottlenecks", "totals", "operators", "files"), ())
        return {"title": f"{run.record.run_id}: not profiled", **nothing}
    first, last = profiler.steps[0], profiler.steps[-1]
    which = f"step {first}" if steps == 1 else f"steps {first} to {last}"
    kinds = "" if profiler.operator_kinds is None else f" of {profiler.operator_kinds}"
    where = "device" if run.has_device else "host"
    shown = run.longest_first()[:top]
    whole = profiler.self_cuda_time_total_ms if run.has_device else profiler.cpu_time_total_ms
    return {
        "title": f"Profile of {run.record.run_id}: {which}",
        "bottlenecks": [*map(one_line, find_bottlenecks(run.record))],
        "totals": _totals(run),
        "operators": [
            (
                row.name,
                significant(row.count / steps, 3),
                significant(run.self_ms(row) / steps, 3),
                f"{100 * run.self_ms(row) / whole:.1f}%" if whole else "-",
            )
            for row in shown
        ],
        "operators_title": f"Operators by self time on the {where} ({len(shown)}{kinds})",
        "files": _files(run),
    }


def _totals(run: ProfiledRun) -> list[tuple[str, str]]:
    profiler, steps = run.profiler, len(run.profiler.steps)

    def ms(value: float | None) -> str:
        return "-" if value is None else f"{significant(value, 3)} ms"

    wall, idle = profiler.wall_ms, profiler.device_idle_pct
    each = "" if wall is None else f", {ms(wall / steps)} per step"
    rows = [
        ("wall time", f"{ms(wall)}{each}"),
        ("host in operators", ms(profiler.cpu_time_total_ms)),
    ]
    why = run.record.unmeasured.get("profiler.cuda_time_total_ms")
    if why is not None or profiler.cuda_time_total_ms is None:
        return [*rows, ("device", f"not traced: {why}" if why else "not traced")]
    rows += [
        ("waiting for device", ms(profiler.host_waits_ms)),
        ("device", ms(profiler.cuda_time_total_ms)),
        ("device idle", "-" if idle is None else f"{significant(idle, 3)}% of the wall time"),
    ]
    if profiler.kernel_launches is not None:
        launches = significant(profiler.kernel_launches / steps)
        rows.append(("kernel launches", f"{launches} per step"))
    return rows


def _files(run: ProfiledRun) -> list[tuple[str, str]]:
    profiler, found = run.profiler, []
    if profiler.trace_path is not None:
        place = run.folder / profiler.trace_path
        found.append(("trace", f"{place}{'' if place.exists() else ' (not found)'}"))
    elif why := run.record.unmeasured.get("profiler.trace_path"):
        found.append(("trace", why))
    if run.operators:
        found.append(("operators", str(run.folder / (profiler.operators_path or ""))))
    return found


def _against(found: OperatorDifferences, name: str, top: int) -> dict[str, Any]:
    """Return what the templates show of the differences from another run."""
    note = f"calls in one step of each look, without times: {found.reason}"
    if found.source == "profiler":
        before, after = found.baseline_total_ms or 0.0, found.current_total_ms or 0.0
        change = f" ({signed(100 * (after / before - 1))})" if before else ""
        note = (
            f"self time on the {found.clock}, per step: "
            f"{significant(before)} -> {significant(after)} ms{change}"
        )
    return {
        "title": f"Operators against {name}",
        "note": note,
        "rows": [*map(_difference_row, found.rows[:top])],
        "left_out": max(0, len(found.rows) - top),
    }


def _difference_row(row: OperatorDifference) -> Cells:
    def calls(use: OperatorUse | None) -> str:
        return "?" if use is None else significant(use.calls, 3)

    def times(use: OperatorUse | None) -> str:
        return "?" if use is None or use.self_ms is None else significant(use.self_ms, 3)

    timed = row.growth_ms is not None
    growth = signed(row.growth_calls or 0.0, "calls")
    if row.growth_ms is not None and (abs(row.growth_ms) >= LEAST_SHOWN_MS or not row.growth_calls):
        growth = signed(row.growth_ms, "ms")
    return (
        row.name,
        row.change,
        f"{calls(row.baseline)} -> {calls(row.current)}",
        f"{times(row.baseline)} -> {times(row.current)}" if timed else "-",
        growth,
    )


def _document(run: ProfiledRun, found: OperatorDifferences | None) -> dict[str, Any]:
    """Return the JSON form: the record's summary, its operators, and the differences."""
    return {
        "schema_version": DOCUMENT_VERSION,
        "run_id": run.record.run_id,
        "profiler": run.profiler.model_dump(),
        "unmeasured": {
            key: why
            for key, why in run.record.unmeasured.items()
            if key.split(".")[0] == "profiler"
        },
        "operators": [row.model_dump() for row in run.longest_first()],
        "against": None if found is None else asdict(found),
    }
