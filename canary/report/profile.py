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

    def path(self, given: str | None) -> str:
        """Return the path of a profile's file from the current folder."""
        return "" if given is None else str(self.folder / given)


@dataclass(frozen=True)
class ProfileView:
    """Everything that a template shows, as strings."""

    title: str
    bottlenecks: tuple[str, ...]
    totals: tuple[tuple[str, str], ...]
    operators: tuple[Cells, ...]
    operators_title: str
    files: tuple[tuple[str, str], ...]
    against: AgainstView | None = None


@dataclass(frozen=True)
class AgainstView:
    """The differences from another run."""

    title: str
    note: str
    rows: tuple[Cells, ...]
    left_out: int


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
    the width, if there is one.

    Raises:
        UsageError: unknown format.
        InputError: a run has no profile.
    """
    check_format(form)
    current, found = profiled_pair(run, against)
    if form == "json":
        return json_lines(_document(current, found))
    return filled(
        "profile",
        form,
        width,
        view=view_of_profile(current, found, against, top),
        aligned=partial(figures, width=width and width - len(INDENT)),
        operator_headings=OPERATOR_HEADINGS,
        difference_headings=DIFFERENCE_HEADINGS,
    )


def profiled_pair(
    run: Path, against: Path | None
) -> tuple[ProfiledRun, OperatorDifferences | None]:
    """Load a run with its profile, and its differences from another run.

    Raises:
        InputError: a run has no profile, or is missing.
        RecordError: one cannot be read.
    """
    current = load_profiled(run)
    if against is not None:
        found = differences(current, load_profiled(against))
        if found.source is None:
            raise InputError(f"nothing to compare: {found.reason}", HOW)
        return current, found
    if not current.profiler.steps:
        why = current.record.unmeasured.get("profiler", "profiling was off")
        raise InputError(f"{current.record.run_id} has no profile: {why}", HOW)
    return current, None


def differences(current: ProfiledRun, baseline: ProfiledRun) -> OperatorDifferences:
    """Compare all operators if both runs have their files, else those in the records."""
    if not (current.operators and baseline.operators):
        return operator_differences(current.record, baseline.record)
    both = has_device(current.profiler) and has_device(baseline.profiler)
    clock: Clock = "device" if both else "host"
    tables = [
        of_rows(side.operators, len(side.profiler.steps), clock) for side in (current, baseline)
    ]
    return table_differences(*tables)


def view_of_profile(
    run: ProfiledRun, found: OperatorDifferences | None, against: Path | None, top: int
) -> ProfileView:
    """Return the view, with `top` operators in each table."""
    profiler = run.profiler
    against_view = None if found is None else _against(found, str(against), top)
    if not profiler.steps:
        title = f"{run.record.run_id}: not profiled"
        return ProfileView(title, (), (), (), "", (), against_view)
    steps = len(profiler.steps)
    first, last = profiler.steps[0], profiler.steps[-1]
    which = f"step {first}" if steps == 1 else f"steps {first} to {last}"
    kinds = "" if profiler.operator_kinds is None else f" of {profiler.operator_kinds}"
    device = has_device(profiler)
    where = "device" if device else "host"
    shown = _top(run)[:top]
    total = profiler.self_cuda_time_total_ms if device else profiler.cpu_time_total_ms
    return ProfileView(
        title=f"Profile of {run.record.run_id}: {which}",
        bottlenecks=tuple(map(one_line, find_bottlenecks(run.record))),
        totals=tuple(_totals(run)),
        operators=tuple(
            (
                row.name,
                significant(row.count / steps, 3),
                significant(self_ms(profiler, row) / steps, 3),
                f"{100 * self_ms(profiler, row) / total:.1f}%" if total else "-",
            )
            for row in shown
        ),
        operators_title=f"Operators by self time on the {where} ({len(shown)}{kinds})",
        files=tuple(_files(run)),
        against=against_view,
    )


def has_device(profiler: Profiler) -> bool:
    """Return whether the device was traced and did any work."""
    return bool(profiler.cuda_time_total_ms)


def self_ms(profiler: Profiler, row: OperatorRow) -> float:
    """Return an operator's self time on the device if it was traced, else on the host."""
    return row.self_cuda_time_ms if has_device(profiler) else row.self_cpu_time_ms


def _top(run: ProfiledRun) -> list[OperatorRow]:
    """Return operators, longest first: all of them if known, else those in the record."""
    profiler = run.profiler
    listed = profiler.top_cuda_ops if has_device(profiler) else profiler.top_cpu_ops
    rows = [row for row in run.operators if self_ms(profiler, row) > 0] or listed
    return sorted(rows, key=lambda row: (-self_ms(profiler, row), row.name))


def _totals(run: ProfiledRun) -> list[tuple[str, str]]:
    profiler = run.profiler
    steps = len(profiler.steps)

    def ms(value: float | None) -> str:
        return "-" if value is None else f"{significant(value, 3)} ms"

    rows = [("wall time", ms(profiler.wall_ms))]
    if profiler.wall_ms is not None:
        rows[0] = ("wall time", f"{ms(profiler.wall_ms)}, {ms(profiler.wall_ms / steps)} per step")
    rows.append(("host in operators", ms(profiler.cpu_time_total_ms)))
    why = run.record.unmeasured.get("profiler.cuda_time_total_ms")
    if why is not None or profiler.cuda_time_total_ms is None:
        rows.append(("device", f"not traced: {why}" if why else "not traced"))
        return rows
    rows += [
        ("waiting for device", ms(profiler.host_waits_ms)),
        ("device", ms(profiler.cuda_time_total_ms)),
        ("device idle", _idle(profiler)),
    ]
    if profiler.kernel_launches is not None:
        rows.append(
            ("kernel launches", f"{significant(profiler.kernel_launches / steps)} per step")
        )
    return rows


def _idle(profiler: Profiler) -> str:
    idle = profiler.device_idle_pct
    return "-" if idle is None else f"{significant(idle, 3)}% of the wall time"


def _files(run: ProfiledRun) -> list[tuple[str, str]]:
    profiler = run.profiler
    found = []
    if profiler.trace_path is not None:
        place = run.path(profiler.trace_path)
        gone = "" if Path(place).exists() else " (not found)"
        found.append(("trace", f"{place}{gone}"))
    elif why := run.record.unmeasured.get("profiler.trace_path"):
        found.append(("trace", why))
    if run.operators:
        found.append(("operators", run.path(profiler.operators_path)))
    return found


def _against(found: OperatorDifferences, name: str, top: int) -> AgainstView:
    if found.source == "profiler":
        before, after = found.baseline_total_ms or 0.0, found.current_total_ms or 0.0
        note = (
            f"self time on the {found.clock}, per step: "
            f"{significant(before)} -> {significant(after)} ms"
        )
        if before:
            note += f" ({signed(100 * (after / before - 1))})"
    else:
        note = f"calls in one step of each look, without times: {found.reason}"
    rows = tuple(_difference_row(row) for row in found.rows[:top])
    return AgainstView(f"Operators against {name}", note, rows, len(found.rows) - len(rows))


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
        "operators": [row.model_dump() for row in _top(run)],
        "against": None if found is None else asdict(found),
    }
