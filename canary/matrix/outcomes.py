"""What a cell left, and how bad it is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from canary.baseline.history import drawer, entries, is_history, save
from canary.compare.paths import Request, compared_paths
from canary.compare.report import Comparison
from canary.compare.rules import answers
from canary.compare.stats import compare_to_baseline
from canary.compare.verdict import MIN_HISTORY
from canary.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    EXIT_REGRESSION,
    EXIT_USAGE,
    CanaryError,
    InputError,
    MachineError,
    printable,
)
from canary.imports.readers.console import COLOURS
from canary.matrix.attempt import CHECK, KILLED, LOG, RUNS, TIMED_OUT, Attempt
from canary.matrix.cells import NAME, Cell
from canary.record import jsonio
from canary.record.strangers import refuse_links, seen_record
from canary.record.types import RunRecord
from canary.report.document import json_text
from canary.report.escape import on_lines, without_commands
from canary.report.pages import COMPARISON
from canary.report.render import write_text
from canary.report.rules import exit_code, first_line

Verdict = Literal[
    "error", "invalid", "regression", "changed", "inconclusive", "no-baseline", "pass"
]
"""The worst first. `invalid`: config or input cannot be used; `error`: nothing can be said. People
see the same words."""
WORST_FIRST: tuple[Verdict, ...] = get_args(Verdict)
CODES = dict(zip(WORST_FIRST, (4, 2, 1, 1, 3, 0, 0), strict=True))
OF_CODE: dict[int, Verdict] = {
    EXIT_OK: "pass",
    EXIT_REGRESSION: "regression",
    EXIT_USAGE: "invalid",
    EXIT_INCONCLUSIVE: "inconclusive",
}
"""All other codes are errors."""
STORED: tuple[Verdict, ...] = ("pass", "no-baseline", "inconclusive")
"""Runs that enter the history with `save: true`."""
LONGEST_S = 1e7
OURS = "canary: "
LAST_BYTES = 4096
"""Of a log, that are read for its last line."""


@dataclass(frozen=True)
class Outcome:
    """The answer of a cell."""

    verdict: Verdict
    words: str
    """One sentence, of a moderate length."""
    folder: Path | None = None
    """Of the record or answer."""
    seconds: float = 0.0
    """What the try took."""
    code: int | None = None
    """The exit code, if it is not that of the verdict."""

    @property
    def exit_code(self) -> int:
        """The exit code that the verb itself has for this answer."""
        return CODES[self.verdict] if self.code is None else self.code


def outcome_of(cell: Cell, attempt: Attempt, history: Path | None, *, save_to: bool) -> Outcome:
    """Return what an ended try says. `save_to`: store a run that is not worse in the history."""
    try:
        found = _outcome(cell, attempt, history, save_to=save_to)
    except Exception as error:  # noqa: BLE001 - a stranger may have written it
        words = str(error) if isinstance(error, CanaryError) else f"unreadable: {error!r}"
        found = Outcome("error", jsonio.shown(words), attempt.folder)
    # Printed as text, as JSON and as progress, maybe in a job's log.
    starts, words = attempt.starts(), without_commands(on_lines(found.words))
    words = words if starts < 2 else f"{words} (started {starts} times)"
    return replace(found, words=words, seconds=attempt.took() or found.seconds)


def _outcome(cell: Cell, attempt: Attempt, history: Path | None, *, save_to: bool) -> Outcome:
    code, folder = attempt.ended(), attempt.folder
    if code is None:
        return Outcome("error", attempt.gave_up() or "it left no exit code", folder)
    run = run_folder(folder, CHECK if cell.verb == "check" else RUNS)
    if code == TIMED_OUT:
        minutes = attempt.limit_s / 60
        words = f"it took longer than {minutes:g} minute{'' if minutes == 1 else 's'}"
        return Outcome("error", words, folder)
    if code == KILLED and not (cell.verb == "run" and run is not None):
        return Outcome("error", "it was killed by signal 9: was memory short?", folder)
    if run is not None and cell.verb == "check":
        return _of_check(run, code, attempt)
    if run is None and code == EXIT_OK:
        return Outcome("error", "it left no record", folder)
    # A command of the user may end with any code.
    wrong = code == EXIT_USAGE and (cell.verb != "exec" or run is None)
    if run is None or wrong:
        verdict: Verdict = "invalid" if wrong else "error"
        return Outcome(verdict, _last_line(attempt, code), run or folder)
    return _of_run(run, code, attempt, history, save_to=save_to)


def _of_check(folder: Path, code: int, attempt: Attempt) -> Outcome:
    """Ask the rules about a run."""
    record = seen_record(folder)
    if record.status != "completed":
        return Outcome("error", _last_line(attempt, code), folder)
    found = answers(record)
    if code != exit_code(found):
        raise MachineError(f"its exit code is {code}, but its answer has {exit_code(found)}")
    return Outcome(
        OF_CODE.get(code, "error"), first_line(found), folder, float(record.duration_seconds)
    )


def _of_run(
    folder: Path, code: int, attempt: Attempt, history: Path | None, *, save_to: bool
) -> Outcome:
    """Compare a run with its history. The comparison is left in the folder of the try."""
    with contextlib.suppress(OSError):
        (attempt.folder / COMPARISON).unlink()  # The cell itself may have left one.
    record = seen_record(folder)
    seconds = float(record.duration_seconds)
    if record.name != attempt.cell:
        hint = "name the cell like it" if NAME.fullmatch(record.name or "") else None
        raise MachineError(f"its record is of the canary {record.name!r}", hint)
    if not 0 <= seconds < LONGEST_S:
        raise MachineError(f"its record says that it took {seconds} s")
    if record.status != "completed":
        why = "" if record.status == "failed" else f"{record.status}: "
        return Outcome("error", f"{why}{record.reason}", folder, seconds)
    if code:
        return Outcome("error", _last_line(attempt, code), folder, seconds)
    outcome, said = Outcome("pass", "completed", folder, seconds), ""
    if history is not None and is_history(history):
        found = compared_paths(Request((folder,), (history,), load=seen_record)).found
        outcome = of_comparison(found, folder, seconds)
    else:
        # Rules need no baseline.
        found = compare_to_baseline(record, (), history=True)
        if found.exit_code():
            outcome = of_comparison(found, folder, seconds)
        elif history is not None:
            outcome = replace(outcome, verdict="no-baseline")
    if history is not None or outcome.code:
        number, said = len(found.baseline.run_ids) + 1, _left(found, attempt)
        if outcome.verdict == "no-baseline" and (save_to or number == 1):
            words = f"No baseline yet: this is run {number} of the {MIN_HISTORY} that it needs."
            outcome = replace(outcome, words=words)
        if save_to and history is not None and outcome.verdict in STORED:
            said += _saved(history, record)
    return replace(outcome, words=f"{outcome.words}{said}")


def of_comparison(found: Comparison, folder: Path, seconds: float = 0.0) -> Outcome:
    """Return the outcome of a comparison. An inconclusive one is no failure, as everywhere."""
    code = found.exit_code()
    verdict: Verdict = "pass" if found.verdict == "changed" and not code else found.verdict
    return Outcome(verdict, found.first_line, folder, seconds, code)


def _left(found: Comparison, attempt: Attempt) -> str:
    """Leave a comparison for the report; return why that is not possible."""
    try:
        write_text(attempt.folder / COMPARISON, json_text(found))
    except MachineError as error:
        return f" Not in the report: {error.message}."
    return ""


def _saved(history: Path, record: RunRecord) -> str:
    """Store a run in a history; return why that is not possible. A matrix that goes on after a
    kill may have stored it."""
    stored = {entry.run_id for entry in entries(drawer(history, record))}
    if record.run_id in stored:
        return ""
    try:
        save(history, record)
    except InputError as error:
        return f" Not saved: {error.message}."
    return ""


def run_folder(place: Path, folder: str) -> Path | None:
    """Return the folder of the one record in the folder of a try; None without one.

    Raises:
        MachineError: there are several.
        RecordError: the way to it leads through a link.
    """
    refuse_links(place / folder, place)
    found = sorted((place / folder).glob("*/metrics.json"))
    for one in found:
        refuse_links(one, place)
    if len(found) > 1:
        raise MachineError(f"{place / folder} holds {len(found)} records")
    return found[0].parent if found else None


def _last_line(attempt: Attempt, code: int) -> str:
    """Return the last line that the command printed; of several, that of the canary itself."""
    lines = last_lines(attempt.folder / LOG, LAST_BYTES)
    if not lines:
        return f"exit code {code}, and it printed nothing"
    ours = [line for line in lines if line.startswith(OURS)]
    said = (ours or lines)[-1].strip().removeprefix(OURS).removeprefix("failed: ")
    return jsonio.shown(printable(said))


def last_lines(log: Path, most_bytes: int) -> list[str]:
    """Return the lines at the end of a log, without colours and empty lines; none if it cannot be
    read."""
    try:
        with jsonio.open_regular(log, sys.maxsize, follow=False) as stream:
            stream.seek(max(0, stream.seek(0, 2) - most_bytes))
            text = stream.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return []
    lines = (COLOURS.sub("", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line]


def worst_code(outcomes: Sequence[Outcome]) -> int:
    """Return the exit code that decides for all; that of a failure if there is none."""
    order = [CODES[verdict] for verdict in WORST_FIRST]
    return min((one.exit_code for one in outcomes), key=order.index, default=CODES["error"])
