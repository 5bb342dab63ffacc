"""The page of a history: each canary on each machine, its metrics over the runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from canary.baseline.entry import Entry
from canary.baseline.history import NOISE_FILE, drawers, entries, periods
from canary.compare.timing.noise import load_noise
from canary.errors import InputError
from canary.record import jsonio
from canary.report.charts.chart import Chart
from canary.report.charts.history import METRICS, StoredRun, history_charts
from canary.report.charts.theme import darkened
from canary.report.page import Page, page_text

MOST_DRAWERS = 6
"""Canaries and machines on one page; those with the newest runs."""
NOISE_OF = {"step_time": "step_time_median", "memory": "max_memory"}
"""A metric of the page, and its name in a noise model."""


def history_page(root: Path, shown: str, canary: str | None = None) -> str:
    """Return the page of a history; `shown` names it.

    Raises:
        InputError: it holds no runs, or none of this canary.
        RecordError: an entry cannot be read.
    """
    found = [
        (folder, stored)
        for folder in drawers(root)
        if canary in (None, folder.parent.name) and (stored := entries(folder))
    ]
    if not found:
        known = ", ".join(sorted({folder.parent.name for folder in drawers(root)}))
        raise InputError(
            f"{shown} holds no runs{f' of canary {canary!r}' if canary else ''}",
            f"it has: {known or 'none'}",
        )
    found.sort(key=lambda pair: pair[1][-1].start, reverse=True)
    charts: list[Chart] = []
    notes = []
    for number, (folder, stored) in enumerate(found[:MOST_DRAWERS], start=1):
        made = list(history_charts(list(_runs(stored)), f"history{number}", _noise(folder)))
        prefix = f"{folder.parent.name} on {folder.name}: "
        charts += [chart.titled(f"{prefix}{chart.title.lower()}") for chart in made]
    if len(found) > MOST_DRAWERS:
        left = ", ".join(
            f"{folder.parent.name} on {folder.name}" for folder, _ in found[MOST_DRAWERS:]
        )
        notes.append(f"left out, name one with --canary: {left}")
    total = sum(len(stored) for _, stored in found)
    page = Page(
        title=f"history: {shown}",
        first_line=f"{_counted(total, 'run')} of {_counted(len(found), 'canary', 'canaries')}"
        f"{' and machines' if len(found) > 1 else ''}.",
        subtitle=shown,
        verdict="history",
        notes=tuple(notes),
    )
    return page_text(page, charts)


def pictures(drawer: Path) -> str:
    """Return a drawer's step times as JSON: a light and a dark SVG; empty without runs."""
    found = list(history_charts(list(_runs(entries(drawer))), "history", _noise(drawer)))
    if not found:
        return ""
    svg = found[0].svg()
    return jsonio.dumps([svg, darkened(svg)])


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _runs(stored: list[Entry]) -> Iterator[StoredRun]:
    kept = [entry for entry in stored if not entry.red]
    numbers = dict(zip(kept, periods(kept), strict=True))
    for entry in stored:
        record, context = entry.record(), entry.context()
        commit = (context.commit if context else "") or record.git.get("sha") or ""
        verdict = context.verdict if context else ""
        yield StoredRun(record, commit[:9], verdict, numbers.get(entry), entry.accepted)


def _noise(folder: Path) -> dict[str, float]:
    """Return the measured noise of the drawer's canary, by the page's metrics."""
    try:
        model = load_noise(folder / NOISE_FILE)
    except InputError:
        return {}
    known = {name: model.metrics.get(NOISE_OF.get(name, "")) for name in (m.name for m in METRICS)}
    return {name: noise.run_sd for name, noise in known.items() if noise is not None}
