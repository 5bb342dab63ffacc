"""The answer of a bisect over packages, as text, Markdown and JSON."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.bisect.answer import (
    DOCUMENT_VERSION,
    Answered,
    Status,
    View,
    answer_document,
    did,
    first_line,
    rendered,
    view_of_answer,
)
from canary.bisect.packages.changes import shown
from canary.bisect.packages.search import Culprit
from canary.campaign.pairs import duration
from canary.errors import EXIT_INCONCLUSIVE, EXIT_OK
from canary.report.document import json_lines
from canary.report.render import FORMATS, check_format, write_text


@dataclass(frozen=True)
class PackagesAnswered:
    """The result of all stages."""

    folder: Path
    stages: tuple[tuple[str, Answered], ...]
    """Title and result of each search, in their order."""
    culprits: tuple[Culprit, ...]
    commit: Answered | None = None
    """The search for a commit, if the code did it."""
    others: bool = False
    """More packages show it, which were not searched."""
    notes: tuple[str, ...] = ()
    complete: bool = True
    """Whether each axis that did it was searched to its end."""
    together: bool = False
    """It takes all culprits."""

    @property
    def page(self) -> str:
        """A line that names the page with charts of the last stage."""
        return self.stages[-1][1].page


def status_of(answered: PackagesAnswered) -> Status:
    """Return `found` if each package has its version and each axis its answer, `range` if some are
    left, else `undecided`."""
    parts = [culprit.versions for culprit in answered.culprits]
    parts += [answered.commit] if answered.commit is not None else []
    if parts and all(part is not None and part.status == "found" for part in parts):
        return "found" if answered.complete else "range"
    if answered.culprits or any(stage.status != "undecided" for _, stage in answered.stages):
        return "range"
    return "undecided"


def exit_code_of(answered: PackagesAnswered) -> int:
    """Return 0 if each package has its version, else 3."""
    return EXIT_OK if status_of(answered) == "found" else EXIT_INCONCLUSIVE


def sentence_of(answered: PackagesAnswered) -> str:
    """Return the answer as a sentence."""
    names = [_name(culprit) for culprit in answered.culprits]
    if answered.commit is not None and answered.commit.status == "found":
        names.insert(0, _title(answered.commit))
    if not names:
        return first_line(answered.stages[-1][1])
    check = answered.stages[0][1].found.check
    who = names[0]
    if len(names) > 1:
        who = (
            f"{', '.join(names[:-1])} and {names[-1]} {'together' if answered.together else 'each'}"
        )
    begins = "Found:" if status_of(answered) == "found" else "Not decided in full:"
    return f"{begins} {who} {did(check)}."


def _title(stage: Answered) -> str:
    return stage.ground.describe(stage.found.answer.suspects[0], stage.found).title


def _name(culprit: Culprit) -> str:
    versions = culprit.versions
    if versions is None or versions.status != "found":
        return str(culprit.change)
    return _title(versions)


def view_of_packages(answered: PackagesAnswered) -> View:
    """Return the strings for text and Markdown."""
    lines = [line for culprit in answered.culprits for line in _lines(culprit)]
    if answered.commit is not None and answered.commit.status == "found":
        lines = [*view_of_answer(answered.commit).lines, *lines]
    if answered.others:
        lines.append("More packages show it, which were not searched.")
    first = answered.stages[0][1].found
    evidence = [("ends", f"{first.check}: {first.ends_words}")] if first.check else []
    suspects: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    for title, stage in answered.stages:
        view = view_of_answer(stage)
        evidence.append((title, _evidence(stage, dict(view.evidence))))
        suspects += () if stage.found.answer.together else view.suspects
        skipped += view.skipped
    runs = sum(stage.found.launches for _, stage in answered.stages)
    seconds = sum(stage.found.seconds for _, stage in answered.stages)
    evidence.append(("cost", f"{runs} runs in {duration(seconds)}"))
    folder = answered.folder
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    return View(
        sentence_of(answered),
        (*lines, *(f"note: {note}" for note in answered.notes)),
        tuple(evidence),
        tuple(suspects),
        tuple(skipped),
        str(folder),
    )


def _evidence(stage: Answered, of_stage: dict[str, str]) -> str:
    """Return what one search showed, in one line."""
    many = len(stage.found.posterior)
    if stage.status != "found":
        return first_line(stage)
    last, probability = of_stage.get("last step", ""), of_stage.get("probability", "")
    return f"{_title(stage)}, one of {many}; last step {last}; probability {probability}"


def _lines(culprit: Culprit) -> list[str]:
    change, versions = culprit.change, culprit.versions
    lines: list[str] = []
    if versions is not None and versions.status == "found":
        lines += versions.ground.describe(versions.found.answer.suspects[0], None).lines
    elif culprit.why_not:
        lines.append(f"{change.name}: {culprit.why_not}")
    if culprit.together:
        lines.append(f"{change.name} shows it only together with {', '.join(culprit.together)}")
    return lines


def packages_text(answered: PackagesAnswered, form: str, width: int | None = None) -> str:
    """Render the answer in one of the formats, ending with a line break.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return json_lines(packages_document(answered))
    return rendered(view_of_packages(answered), form, width)


def packages_document(answered: PackagesAnswered) -> dict[str, Any]:
    """Return the answer as plain data."""
    return {
        "schema_version": DOCUMENT_VERSION,
        "kind": "package",
        "status": status_of(answered),
        "first_line": sentence_of(answered),
        "check": answered.stages[0][1].found.check,
        "culprit": _document(answered.culprits[0]) if len(answered.culprits) == 1 else None,
        "commit": None if answered.commit is None else answer_document(answered.commit)["culprit"],
        "together": answered.together,
        "culprits": [_document(culprit) for culprit in answered.culprits],
        "candidates": _candidates(answered),
        "others": answered.others,
        "notes": list(answered.notes),
        "stages": [{"title": title, **answer_document(stage)} for title, stage in answered.stages],
        "seconds": sum(stage.found.seconds for _, stage in answered.stages),
        "launches": sum(stage.found.launches for _, stage in answered.stages),
    }


def _document(culprit: Culprit) -> dict[str, Any]:
    change, versions = culprit.change, culprit.versions
    facts: dict[str, Any] = {
        "first_bad": None,
        "last_good": None,
        "release_notes": None,
    }
    if versions is not None and versions.status == "found":
        described = versions.ground.describe(versions.found.answer.suspects[0], None)
        facts |= described.facts
    return {
        **facts,
        "package": change.name,
        "good": None if change.good is None else shown(change.good),
        "bad": None if change.bad is None else shown(change.bad),
        "together": list(culprit.together),
        "reason": culprit.why_not or _reason(versions),
    }


def _candidates(answered: PackagesAnswered) -> list[dict[str, Any]]:
    """Return all releases or packages that may have done it."""
    found: list[dict[str, Any]] = []
    for culprit in answered.culprits:
        versions = culprit.versions
        if versions is not None and versions.status == "range":
            found += answer_document(versions)["candidates"]
        else:
            found.append(_document(culprit))
    return found or answer_document(answered.stages[-1][1])["candidates"]


def _reason(versions: Answered | None) -> str:
    return "" if versions is None else versions.found.answer.reason


def packages_left_behind(answered: PackagesAnswered) -> None:
    """Write the answer into the output folder.

    Raises:
        MachineError: a file cannot be written.
    """
    for form, suffix in zip(FORMATS, ("txt", "md", "json"), strict=True):
        write_text(answered.folder / f"bisect.{suffix}", packages_text(answered, form))
