"""The answer of a bisect as plain data, and that as text, Markdown and JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from canary.bisect.candidates import Candidates
from canary.bisect.finding import Found
from canary.bisect.journal import Row
from canary.bisect.question import CRASH
from canary.campaign.pairs import duration
from canary.compare.checks import CHECKS
from canary.compare.exact.stages import LEARNED_STAGES
from canary.errors import EXIT_INCONCLUSIVE, EXIT_OK
from canary.report.document import document as comparison_document
from canary.report.document import json_lines
from canary.report.numbers import significant
from canary.report.place_rows import place_rows
from canary.report.render import check_format, filled
from canary.report.view import row_of

MOST_NAMED, LEAST = 5, 0.01
"""Suspects that an undecided answer names, and how probable they are at least."""
OTHERS = "without it the bad end still shows it, so another one shows it too"

Status = Literal["found", "range", "undecided"]


@dataclass(frozen=True)
class Stage:
    """One search and its result."""

    title: str
    folder: Path
    candidates: Candidates
    found: Found
    rows: tuple[Row, ...]
    """All of its runs."""

    @property
    def status(self) -> Status:
        """`found`: confirmed, or several that are needed together. `range`: several that no state
        divides."""
        answer = self.found.answer
        if self.found.decided or answer.together:
            return "found"
        return "range" if answer.decided and len(answer.suspects) > 1 else "undecided"


@dataclass(frozen=True)
class Answered:
    """The result of a bisect."""

    folder: Path
    document: Mapping[str, Any]
    page: str
    """A line that names the page with charts, or how to get it."""

    @property
    def exit_code(self) -> int:
        """0 if it is found, else 3."""
        return EXIT_OK if self.document["status"] == "found" else EXIT_INCONCLUSIVE


def document_of(stages: list[Stage], parts: list[Stage], head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer as plain data.

    Args:
        stages: all searches, in their order.
        parts: those whose culprits are the answer; more than one if it takes all of them.
        head: what was asked.
    """
    first, rows = stages[0].found, [row for stage in stages for row in stage.rows]
    status: Status = "undecided"
    if all(stage.status == "found" for stage in parts):
        status = "found"
    elif len(stages) > 1 or parts[0].status == "range":
        status = "range"
    culprits = [one for stage in parts if stage.status == "found" for one in _suspects(stage)]
    documents = [_stage_document(stage) for stage in stages]
    evidence = []
    if first.question is not None:
        evidence.append(("ends", f"{first.question.check}: {first.words}"))
    for stage in stages:
        words = [("last step", _last_words(stage.found))]
        if stage.status == "found":
            words.append(("probability", _percent(stage.found.answer.probability)))
        whole = "; ".join(text for _, text in words if text)
        evidence += words if len(stages) == 1 else [(stage.title, whole)]
    runs = sum(row.run is not None for row in rows)
    evidence.append(("cost", f"{runs} runs in {duration(sum(row.seconds for row in rows))}"))
    return {
        "schema_version": 2,
        "status": status,
        "first_line": _first_line(stages, culprits, status),
        **head,
        "lines": [
            *(line for stage in parts for line in _lines(stage)),
            *(OTHERS for stage in stages if stage.found.answer.others),
            *(f"note: {note}" for note in head["notes"]),
        ],
        "evidence": [row for row in evidence if row[1]],
        "check": first.question.check if first.question is not None else None,
        "culprit": culprits[0] if len(culprits) == 1 and status == "found" else None,
        "candidates": culprits or list(_suspects(stages[-1])),
        "left": [] if status == "found" else list(_left(stages[-1])),
        "skipped": [
            {"label": one.label, "reason": one.words}
            for stage in stages
            for one in stage.found.shown
            if one.outcome == "skip"
        ],
        "stages": documents,
    }


def _stage_document(stage: Stage) -> dict[str, Any]:
    found = stage.found
    check = found.last.check if found.last is not None else None
    keys = ("baseline", "current", "unit", "delta_pct", "interval", "message")
    return {
        "title": stage.title,
        "kind": stage.candidates.noun,
        "status": stage.status,
        "ends_words": found.words if found.question else "",
        "searched": stage.candidates.count,
        "probability": found.answer.probability,
        "reason": found.answer.reason,
        "last_step": {
            "confirmed": found.decided,
            "words": found.last.words if found.last is not None else "",
            "note": found.step.note if found.step is not None else "",
            "check": {key: getattr(check, key) for key in keys} if check is not None else None,
        },
        "search": [{**vars(one), "state": hex(one.state)} for one in found.shown],
        "runs": [row.model_dump() for row in stage.rows],
        "comparison": comparison_document(found.shows),
    }


def _suspects(stage: Stage) -> Iterator[dict[str, Any]]:
    for one in stage.found.answer.suspects:
        described = stage.candidates.describe(one)
        yield {"name": described.title, **described.facts}


def _left(stage: Stage) -> Iterator[tuple[str, str]]:
    """Yield the suspects that are left: a range in its order, else the likeliest."""
    shares, chosen = stage.found.posterior, sorted(stage.found.answer.suspects)
    if stage.status == "undecided":
        chosen = sorted(range(len(shares)), key=lambda one: -shares[one])[:MOST_NAMED]
    for one in chosen:
        if shares[one] >= LEAST or stage.status == "range":
            yield _percent(shares[one]), stage.candidates.describe(one).title


def _first_line(stages: list[Stage], culprits: list[dict[str, Any]], status: Status) -> str:
    names, question = [one["name"] for one in culprits], stages[0].found.question
    if status == "found" and question is not None:
        who = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} together"
        return f"Found: {who} {_did(question.check)}."
    stage = next(stage for stage in stages if stage.status != "found")
    answer = stage.found.answer
    where = f"{stage.title}: " if len(stages) > 1 else ""
    if stage.status == "range":
        many = f"it is one of {len(answer.suspects)} {stage.candidates.noun}s"
        return f"Not decided: {where}{many}, {answer.reason}."
    return f"Not decided: {where}{answer.reason.rstrip('.')}."


def _did(check: str) -> str:
    """Return what a culprit did to a check, as the rest of a sentence."""
    if check == CRASH:
        return "made it crash"
    if check in LEARNED_STAGES:
        return f"changed {check} ({LEARNED_STAGES[check]})"
    known = CHECKS.get(check)
    if known is not None and known.lane == "rule":
        return f"broke {check} ({known.title})"
    return f"made {check} worse"


def _lines(stage: Stage) -> Iterator[str]:
    """Yield what is known of a culprit."""
    found = stage.found
    if stage.status == "found":
        for one in found.answer.suspects:
            yield from stage.candidates.describe(one).lines
        for row in place_rows(found.last.found) if found.last and found.last.found else ():
            yield ": ".join(filter(None, (row.where, row.text or row.note)))
    if found.step is not None and found.step.note:
        yield found.step.note


def _last_words(found: Found) -> str:
    if found.last is None:
        return ""
    check = found.last.check
    if check is None or check.baseline is None or check.current is None:
        return found.last.words
    row = row_of(check)
    change = f" ({row.change})" if row.change and not isinstance(check.current, str) else ""
    interval = f", interval {row.interval}" if row.interval else ""
    return f"{row.baseline} -> {row.current}{change}{interval}"


def _percent(share: float) -> str:
    return f"{significant(100 * share, 3)}%" if share < 0.9995 else "100%"


def answer_text(answered: Answered, form: str, width: int | None = None) -> str:
    """Render the answer in one of the formats, ending with a line break.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return json_lines(answered.document)
    folder = answered.folder
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    return filled("bisect", form, width, view={**answered.document, "folder": str(folder)})
