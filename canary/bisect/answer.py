"""The answer of a bisect, as text, Markdown and JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from canary.bisect.finding import Found, Ground
from canary.bisect.journal import Journal
from canary.bisect.question import CRASH, check_in
from canary.campaign.pairs import duration
from canary.compare.checks import CHECKS
from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.paths import Compared
from canary.compare.report import Check
from canary.errors import EXIT_INCONCLUSIVE, EXIT_OK, InputError, RecordError
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.report.document import document as comparison_document
from canary.report.document import json_lines
from canary.report.escape import on_lines
from canary.report.lines import wrapped
from canary.report.numbers import significant
from canary.report.pages import leave_report
from canary.report.render import FORMATS, check_format, environment, tidy, write_text, written
from canary.report.view import row_of

DOCUMENT_VERSION = 1
MOST_NAMED = 5
"""Suspects that an undecided answer names."""
LEAST = 0.01
"""An undecided answer names suspects that are at least so probable."""

Status = Literal["found", "range", "undecided"]


@dataclass(frozen=True)
class Answered:
    """A result, and what it takes to show it."""

    found: Found
    ground: Ground
    journal: Journal
    names: Mapping[str, str]
    """The ends as the user named them: `good`, `bad`."""
    config: str
    page: str = ""
    """A line that names the page with charts, or how to get it."""

    @property
    def folder(self) -> Path:
        """The output folder."""
        return self.journal.folder

    @property
    def status(self) -> Status:
        """`found`: one suspect, confirmed. `range`: several that no state divides."""
        if self.found.decided:
            return "found"
        answer = self.found.answer
        return "range" if answer.decided and len(answer.suspects) > 1 else "undecided"

    @property
    def exit_code(self) -> int:
        """0 if one suspect was found, else 3."""
        return EXIT_OK if self.status == "found" else EXIT_INCONCLUSIVE


@dataclass(frozen=True)
class View:
    """The answer as strings."""

    answer: str
    lines: tuple[str, ...]
    """What is known of the culprit."""
    evidence: tuple[tuple[str, str], ...]
    """Label and sentence."""
    suspects: tuple[tuple[str, str], ...]
    """Probability and name of those left, if it is not decided."""
    skipped: tuple[tuple[str, str], ...]
    """Label and reason."""
    folder: str


def view_of_answer(answered: Answered) -> View:
    """Return the strings for text and Markdown."""
    found, ground = answered.found, answered.ground
    lines: tuple[str, ...] = ()
    if answered.status == "found":
        described = ground.describe(found.answer.suspects[0], found)
        note = () if found.step is None or not found.step.note else (found.step.note,)
        lines = (*described.lines, *note)
    folder = answered.folder
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    return View(
        first_line(answered),
        lines,
        tuple(_evidence(answered)),
        () if answered.status == "found" else _suspects(answered),
        _skipped(found),
        str(folder),
    )


def first_line(answered: Answered) -> str:
    """Return the answer as a sentence."""
    found, ground = answered.found, answered.ground
    if answered.status == "found":
        title = ground.describe(found.answer.suspects[0], found).title
        return f"Found: {title} {did(found.check)}."
    reason = found.answer.reason.rstrip(".")
    if found.answer.together:
        titles = [ground.describe(one, None).title for one in found.answer.suspects]
        return f"Found in part: only {', '.join(titles[:-1])} and {titles[-1]} together show it."
    if answered.status == "range":
        count = len(found.answer.suspects)
        more = f" {reason}." if reason else ""
        return f"Not decided: it is one of {count} {ground.noun}s.{more}"
    return f"Not decided: {reason or 'the search ended early'}."


def did(check: str) -> str:
    """Return what a culprit did to a check, as the rest of a sentence."""
    if check == CRASH:
        return "made it crash"
    known = CHECKS.get(check)
    if check in LEARNED_STAGES:
        return f"changed {check} ({LEARNED_STAGES[check]})"
    if known is not None and known.lane == "rule":
        return f"broke {check} ({known.title})"
    return f"made {check} worse"


def _evidence(answered: Answered) -> list[tuple[str, str]]:
    found, rows = answered.found, []
    if found.check and found.ends_words:
        rows.append(("ends", f"{found.check}: {found.ends_words}"))
    last = None if found.last is None else check_in(found.last, found.check)
    if last is not None:
        rows.append(("last step", _check_words(last)))
    elif found.last_words:
        rows.append(("last step", found.last_words))
    if found.answer.suspects and answered.status != "range":
        rows.append(("probability", _percent(found.answer.probability)))
    minutes = duration(found.seconds)
    rows.append(("cost", f"{found.launches} runs in {minutes}"))
    return rows


def _check_words(check: Check) -> str:
    row = row_of(check)
    both = check.baseline is not None and check.current is not None
    values = f"{row.baseline} -> {row.current}" if both else ""
    hashes = isinstance(check.current, str)
    words = f"{values} ({row.change})" if values and row.change and not hashes else values
    interval = f", interval {row.interval}" if row.interval else ""
    return f"{words}{interval}" if words else check.message.rstrip(".")


def _suspects(answered: Answered) -> tuple[tuple[str, str], ...]:
    found, ground = answered.found, answered.ground
    if answered.status == "range":
        # In the order of history; all of them, because the answer is the range.
        left = sorted(found.answer.suspects)
        described = {i: ground.describe(i, None).lines[:1] for i in left}
    else:
        described = {}
        order = sorted(range(len(found.posterior)), key=lambda i: -found.posterior[i])
        left = [place for place in order[:MOST_NAMED] if found.posterior[place] >= LEAST]
        left = left if found.shown else []
    return tuple(
        (_percent(found.posterior[i]), "  ".join((ground.bench.name(i), *described.get(i, ()))))
        for i in left
    )


def _skipped(found: Found) -> tuple[tuple[str, str], ...]:
    return tuple((one.label, one.words) for one in found.shown if one.seen.outcome == "skip")


def _percent(share: float) -> str:
    return f"{significant(100 * share, 3)}%" if share < 0.9995 else "100%"


def answer_text(answered: Answered, form: str, width: int | None = None) -> str:
    """Render the answer in one of the formats, ending with a line break.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return json_lines(answer_document(answered))
    return rendered(view_of_answer(answered), form, width)


def rendered(view: View, form: str, width: int | None = None) -> str:
    """Render the strings of an answer as text or Markdown."""
    template = environment().get_template(f"bisect.{'md' if form == 'markdown' else 'txt'}.jinja")
    text = tidy(template.render(view=on_lines(view)))
    return text if form == "markdown" else wrapped(text, width)


def answer_document(answered: Answered) -> dict[str, Any]:
    """Return the answer as plain data."""
    found, ground = answered.found, answered.ground
    place, bench = {one.seen.state: one for one in found.shown}, ground.bench
    last = None if found.last is None else check_in(found.last, found.check)
    ends = check_in(found.ends, found.check)
    return {
        "schema_version": DOCUMENT_VERSION,
        "status": answered.status,
        "first_line": first_line(answered),
        "kind": ground.noun,
        "config": answered.config,
        "good": {"name": answered.names["good"], "label": bench.label(0)},
        "bad": {"name": answered.names["bad"], "label": bench.label(ground.bad)},
        "check": found.check,
        "signal": found.signal,
        "culprit": _suspect(answered, found.answer.suspects[0])
        if answered.status == "found"
        else None,
        "candidates": [_suspect(answered, i) for i in found.answer.suspects],
        "searched": len(found.posterior),
        "probability": found.answer.probability,
        "reason": found.answer.reason,
        "ends": {"words": found.ends_words, "check": _check(ends)},
        "last_step": {
            "ran": bool(found.last_words),
            "confirmed": found.confirmed,
            "words": found.last_words,
            "note": found.step.note if found.step else "",
            "without": bench.label(found.step.without) if found.step else None,
            "check": _check(last),
        },
        "search": [
            {
                "label": one.label,
                "outcome": one.seen.outcome,
                "value": one.seen.value,
                "words": one.words,
            }
            for one in found.shown
        ],
        "skipped": [
            {"label": one.label, "reason": one.words}
            for one in place.values()
            if one.seen.outcome == "skip"
        ],
        "runs": [row.model_dump() for row in answered.journal.rows],
        "launches": found.launches,
        "seconds": found.seconds,
        "comparison": comparison_document(found.last or found.ends),
    }


def _suspect(answered: Answered, place: int) -> dict[str, Any]:
    found = answered.found
    mine = answered.status == "found" and place == found.answer.suspects[0]
    described = answered.ground.describe(place, found if mine else None)
    return {
        "name": described.title,
        "probability": found.posterior[place],
        **described.facts,
    }


def _check(check: Check | None) -> dict[str, Any] | None:
    if check is None:
        return None
    return {
        "baseline": check.baseline,
        "current": check.current,
        "unit": check.unit,
        "delta_pct": check.delta_pct,
        "interval": check.interval,
        "message": check.message,
    }


def left_behind(answered: Answered, repository: Path) -> str:
    """Write the answer, and the comparison behind it with its page, into the output folder. Return
    a line that names the page, or how to get it.

    Raises:
        MachineError: a file cannot be written.
    """
    for form, suffix in zip(FORMATS, ("txt", "md", "json"), strict=True):
        write_text(answered.folder / f"bisect.{suffix}", answer_text(answered, form))
    shown = answered.found.last or answered.found.ends
    written(shown, answered.folder)
    folders = {
        Path(row.run).name: answered.folder / row.run
        for row in answered.journal.rows
        if row.run is not None
    }
    current = _records(shown.current.run_ids, folders)
    baseline = _records(shown.baseline.run_ids, folders)
    return leave_report(Compared(shown, current, baseline, folders), answered.folder)


def _records(ids: tuple[str, ...], folders: Mapping[str, Path]) -> tuple[RunRecord, ...]:
    found = []
    for name in ids:
        with contextlib.suppress(InputError, RecordError, KeyError):
            found.append(load_record(folders[name]))
    return tuple(found)
