"""The page of a comparison: the answers first, then causes, stages, charts and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from canary.compare.exact.lane import NO_SIGNALS
from canary.compare.exact.stages import STAGES
from canary.compare.place_words import SHOWN
from canary.compare.report import Comparison
from canary.errors import counted
from canary.record.types import RunRecord
from canary.report.charts.chart import Chart
from canary.report.charts.curves import cost_charts, learning_charts
from canary.report.charts.phases import phase_charts
from canary.report.charts.sides import ShownSides
from canary.report.numbers import amount
from canary.report.page import Page, StageRow, joined_text
from canary.report.place_rows import compared
from canary.report.render import COLUMNS, HEADINGS, LEGEND
from canary.report.view import STATUS_WORDS, CheckRow, View, figures_of, view_of

SPEED_WORDS = {
    "fail": "Yes",
    "changed": "Yes",
    "inconclusive": "Not decided",
    "warn": "A little",
    "pass": "No",
}
"""Answers by status, the one that decides first."""
OF_MEMORY = ("max_memory",)
COUNTS = ("nan_steps", "inf_steps")
"""Figures of the summary that are not in the first line of a run's page."""
OF_ONE_RUN = ("name", "current", "threshold", "status")
"""Columns of the checks that need no baseline."""


def charts_of(sides: ShownSides) -> Iterator[Chart]:
    """Yield the charts of the runs, those of learning first."""
    if not sides.current:
        return
    if sides.found is not None and not compared(sides.found):
        sides = replace(sides, baseline=())
    yield from learning_charts(sides)
    yield from phase_charts(sides)
    yield from cost_charts(sides)


Part = tuple[str, ShownSides]
"""The canary's name, and a comparison with its runs."""


def comparisons_page(parts: Sequence[Part]) -> str:
    """Return one page of comparisons, in their order."""
    pages = []
    for name, sides in parts:
        assert sides.found is not None
        newest = sides.newest.record if sides.current else None
        pages.append((page_of(name, sides.found, newest), charts_of(sides)))
    title = pages[0][0].title if len(pages) == 1 else f"{len(pages)} canaries"
    return joined_text(title, pages)


def page_of(
    name: str,
    found: Comparison,
    newest: RunRecord | None = None,
) -> Page:
    """Return what the page of a comparison shows beside its charts.

    Args:
        name: of the canary; empty: as its records say.
        found: the comparison.
        newest: the newest current run, if it is at hand.
    """
    view = view_of(found)
    if not found.baseline.run_ids and newest is not None:
        return _run_page(newest, found, view)
    stages, order = tuple(_stages(found)), list(STATUS_WORDS.values())
    said = (
        f"canary {view.name}" if view.name else "",
        f"limits {view.tier}" if view.tier else "",
        f"baseline {view.baseline}",
        f"current {view.current}",
    )
    rows = sorted((*view.rows, *view.skipped), key=lambda row: order.index(row.status))
    return Page(
        title=f"{view.verdict}: {name or view.name or 'canary'}",
        first_line=view.first_line,
        subtitle=" · ".join(filter(None, said)),
        verdict=view.verdict,
        mark=view.mark,
        answers=tuple(_answers(found, view)),
        places=found.places.code[:SHOWN],
        stages_finding=_stages_finding(stages),
        stages=stages,
        view=view,
        headings=HEADINGS,
        checks=tuple(_cells(row, COLUMNS) for row in rows),
        legend="; ".join(LEGEND.values()),
        alerts=view.alerts,
        notes=view.notes,
    )


def _run_page(record: RunRecord, found: Comparison, view: View) -> Page:
    """Return the page of a run that is not compared."""
    figures = figures_of(found.current, found.current)
    shown = [
        f"{label} {amount(value, unit)}"
        for key, label, unit, _, value in figures
        if key not in COUNTS
    ]
    said = (record.status.capitalize(), record.reason, "; ".join(shown))
    broken = found.verdict == "regression"  # of a rule, which needs no baseline
    verdict = found.verdict if broken else record.status
    return Page(
        title=f"{verdict}: {record.name or 'canary'}",
        first_line=view.first_line if broken else ": ".join(filter(None, said)),
        subtitle=f"canary {record.name} · run {view.current}",
        verdict=verdict,
        mark=view.mark if broken else "",
        headings=tuple(COLUMNS[column] for column in OF_ONE_RUN),
        checks=tuple(_cells(row, OF_ONE_RUN) for row in view.rows),
        legend="; ".join(LEGEND[name] for name in ("limit", "status")),
        alerts=view.alerts,
        notes=tuple(record.notes),
    )


def _cells(row: CheckRow, columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(getattr(row, column) for column in columns)


def _answers(found: Comparison, view: View) -> Iterator[tuple[str, str]]:
    """Yield what a reviewer asks after the first line, each with its answer in one sentence."""
    if not compared(found):
        return
    yield "Where?", _where(view)
    if not found.places.failed:  # A crash needs no statistics.
        yield "How sure?", _how_sure(found, view)
        yield "Is it slower?", _slower(found)
    if view.not_run:
        yield "What was not compared?", view.not_run
    if view.do:
        yield "What to do?", view.do


def _where(view: View) -> str:
    rows = [
        f"{row.where} {row.note}{f': {row.text}' if row.is_error else ''}".rstrip()
        for row in view.places
    ]
    if rows:
        more = f" and {view.more_places} more" if view.more_places else ""
        return f"{'; '.join(rows)}{more}"
    if view.first_difference:
        return f"First difference: {view.first_difference}"
    if view.suspects:
        return view.suspects[0].description
    return "No recorded fact differs."


def _how_sure(found: Comparison, view: View) -> str:
    lanes = {check.lane for check in found.checks if check.failed}
    undecided = [check for check in found.checks if check.status == "inconclusive"]
    learned = [check for check in found.checks if check.lane == "exact" and check.status == "pass"]
    said = []
    if lanes & {"exact", "rule"}:
        said.append("Certain that it differs: exact signals have no noise.")
    elif learned and not found.differences:
        said.append("Learning: certain, exact signals are equal.")
    if "timing" in lanes:
        slower = next(check for check in found.checks if check.failed and check.lane == "timing")
        said.append(f"Outside the noise: {slower.message}.")
    elif beyond := [check for check in found.checks if check.failed and check.noise]:
        said.append(f"Outside the noise: {beyond[0].message}.")
    elif any(check.lane == "timing" for check in undecided):
        said.append("Speed: undecided, too noisy or too few runs.")
    elif any(check.lane == "timing" and check.status == "pass" for check in found.checks):
        said.append("Speed: the noise excludes a change above the limits.")
    else:
        said.append("Speed: not judged.")
    if view.suspects and view.suspects[0].confidence:
        said.append(f"Cause: {view.suspects[0].category}, {view.suspects[0].confidence}.")
    return " ".join(said)


def _slower(found: Comparison) -> str:
    """Answer with the check of speed that decides: one that failed, else one that is undecided."""
    judged = [c for c in found.checks if c.lane == "timing" and c.name not in OF_MEMORY]
    for status, words in SPEED_WORDS.items():
        # The first of them is the one that the first line is about.
        check = next((check for check in judged if check.status == status), None)
        if check is not None:
            return f"{words}: {check.message}."
    return "Speed was not judged." if judged else "Speed was not measured."


def _stages(found: Comparison) -> Iterator[StageRow]:
    """Yield the stages of the exact lane that were compared; a crash can only show differences."""
    if not compared(found) or (found.places.failed and not found.differences):
        return
    first = found.first_difference.stage if found.first_difference else ""
    checks = {check.name: check for check in found.checks if check.lane == "exact"}
    imported = any(NO_SIGNALS in check.message for check in checks.values())
    for stage in STAGES:
        differences = [each for each in found.differences if each.stage == stage.name]
        check, name = checks.get(stage.name), stage.name.replace("_", " ")
        if differences:
            text = differences[0].sentence().removeprefix(f"{stage.name}: ")
            is_first = stage.name == first
            words = ("first", "first difference") if is_first else ("differs", "differs")
            yield StageRow(name, *words, text)
        elif check is not None and check.status == "skip":
            yield StageRow(name, "untold", "not compared", check.message)
        elif imported and stage.kind == "setting":
            text = f"{stage.words}, as far as an import records them"
            yield StageRow(name, "untold", "no difference", text)
        elif check is not None or stage.kind == "setting":
            yield StageRow(name, "equal", "equal", stage.words)


def _stages_finding(stages: tuple[StageRow, ...]) -> str:
    first = next((stage for stage in stages if stage.state == "first"), None)
    equal = sum(stage.state == "equal" for stage in stages)
    if first is None and not equal:
        return "No stage was compared."
    if first is None:
        untold = len(stages) - equal
        rest = f"; {untold} {'was' if untold == 1 else 'were'} not compared" if untold else ""
        return f"{equal} of {len(stages)} stages are equal, none differs{rest}."
    later = sum(stage.state == "differs" for stage in stages)
    differ = f"{counted(later, 'later stage')} {'differs' if later == 1 else 'differ'} too"
    follows = f"; {differ}" if later else ""
    return f"The first stage that differs is {first.name}{follows}."
