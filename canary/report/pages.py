"""Write pages: of runs, of a comparison's folder. Charts need the extra `[report]`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from canary.compare.paths import Compared, Request, compared_records
from canary.compare.report import Side
from canary.errors import InputError, MachineError, RecordError
from canary.record import jsonio
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.report.document import load_comparison
from canary.report.render import write_text

REPORT = "report.html"
GENERATOR = '<meta name="generator" content="rlhf-canary">'
NEEDED = ("altair", "vl_convert")
HOW = "install what draws it: pip install altair vl-convert-python"
COMPARISON = "comparison.json"
MOST_RUNS = 200
"""Of one side of a comparison, that are looked for."""
MOST_PLACES = 8
"""Where a run of one name is looked for."""


def can_draw() -> bool:
    """Return whether the packages that draw charts are installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def require_charts() -> None:
    """Raise MachineError if charts cannot be drawn."""
    if not can_draw():
        raise MachineError("a report needs the extra `report`", HOW)


def comparisons_text(several: Sequence[tuple[str, Compared]]) -> str:
    """Return one page of one or several comparisons, each with the canary's name.

    Raises:
        MachineError: the extra is missing.
    """
    require_charts()
    from canary.report.charts.sides import sides_of
    from canary.report.comparison_page import comparisons_page

    return comparisons_page([(name, sides_of(one)) for name, one in several])


def write_report(request: Request, path: Path) -> None:
    """Write the page of a run, of its comparison, or of a comparison's folder.

    Raises:
        InputError, RecordError, ConfigError: as `compared_records`.
        MachineError: the extra is missing, or the file cannot be written.
    """
    (folder,) = request.current
    left = []
    if not request.baseline and (folder / COMPARISON).is_file():
        left = [("", compared_in(folder))]
    elif not request.baseline:  # A campaign left several, by the names of their folders.
        found = sorted(file.parent for file in folder.glob(f"*/{COMPARISON}"))
        left = [(place.name, compared_in(place)) for place in found]
    write_text(path, comparisons_text(left or [("", compared_records(request))]))


def write_history(root: Path, shown: str, path: Path, canary: str | None = None) -> None:
    """Write the page of a history; `shown` names it.

    Raises:
        InputError, RecordError: as `history_page`.
        MachineError: as `write_report`.
    """
    require_charts()
    from canary.report.history_page import history_page

    write_text(path, history_page(root, shown, canary))


Load = Callable[[Path], RunRecord]


def compared_in(folder: Path, load: Load = load_record) -> Compared:
    """Return the comparison that `ab`, `demo` or the action left in a folder. Its runs are those
    that are still there.

    Raises:
        InputError, RecordError: there is no readable comparison.
    """
    found, there = load_comparison(folder), _folders_by_name(folder)
    current, baseline = (
        dict(_runs_of(side, there, load)) for side in (found.current, found.baseline)
    )
    return Compared(
        found,
        tuple(current.values()),
        tuple(baseline.values()),
        {record.run_id: place for place, record in (*current.items(), *baseline.items())},
    )


def _runs_of(
    side: Side, there: Mapping[str, Sequence[Path]], load: Load
) -> Iterator[tuple[Path, RunRecord]]:
    """Yield the folder and record of each of a side's newest runs."""
    for run_id in side.run_ids[-MOST_RUNS:]:
        for place in there.get(run_id, ())[:MOST_PLACES]:
            try:
                record = load(place)
            except (InputError, RecordError):
                continue
            if record.run_id == run_id:
                yield place, record
                break


def _folders_by_name(folder: Path) -> dict[str, list[Path]]:
    """Return what lies in a folder, beside it, and one level deeper. Each place is listed once: a
    stranger may have named many runs, and left many folders."""
    found: dict[str, list[Path]] = {}
    for parent in (folder, folder.parent):
        inside = (parent / name for name in _names(parent))
        for place in (*(one for one in inside if not one.is_symlink()), parent):
            for name in _names(place):
                found.setdefault(name, []).append(place / name)
    return found


def _names(folder: Path) -> list[str]:
    """Return what a folder holds; nothing, if it is none or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def leave_report(compared: Compared, folder: Path) -> str:
    """Write `report.html` beside a comparison. Return a line that names it, or how to get it."""
    return leave_page(folder, lambda path: write_text(path, comparisons_text([("", compared)])))


def leave_page(folder: Path, write: Callable[[Path], None]) -> str:
    """Write `report.html` into a folder, if charts can be drawn. Return a line that says so."""
    if not can_draw():
        return f"for a report with charts, {HOW}"
    path = folder / REPORT
    if path.exists() and not is_ours(path):
        return f"no report with charts: {path} is there and is not one of ours"
    write(path)
    return f"report with charts: {path}"


def is_ours(path: Path) -> bool:
    """Return whether a file is a page that the canary made."""
    try:
        with jsonio.open_regular(path) as file:
            return GENERATOR.encode() in file.read(1000)
    except OSError:
        return False
