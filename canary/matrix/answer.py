"""The answer of a matrix: a line per cell, in a file beside the cells and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from canary.campaign.pairs import duration
from canary.errors import printable
from canary.matrix.document import Verb
from canary.matrix.outcomes import WORST_FIRST, Verdict, worst_code
from canary.matrix.running import Entry
from canary.record import jsonio
from canary.report.escape import markdown_cell, markdown_code
from canary.report.lines import aligned, wrapped
from canary.report.render import write_text
from canary.report.view import verdict_count

FILE = "matrix.json"
HEADINGS = ("cell", "result", "time", "answer")


@dataclass(frozen=True)
class CellAnswer:
    """A cell and its answer."""

    cell: str
    verb: Verb
    verdict: Verdict
    message: str
    tries: int
    """The number of the newest try is the name of its folder."""
    seconds: float
    folder: str | None
    """Of the record or comparison."""


@dataclass(frozen=True)
class Answer:
    """The whole answer."""

    schema_version: int
    name: str
    answer: str
    exit_code: int
    """Of the worst cell."""
    cells: list[CellAnswer]


def answer_of(entries: Sequence[Entry], name: str) -> Answer:
    """Return the answer of cells that are done. A record may say anything, so what it says becomes
    one harmless line."""
    done = [(one, one.outcome) for one in entries if one.outcome is not None]
    counts = Counter(outcome.verdict for _, outcome in done)
    parts = [verdict_count(one, counts[one]) for one in WORST_FIRST if counts[one]]
    total = "1 cell" if len(done) == 1 else f"{len(done)} cells"
    cells = [
        CellAnswer(
            one.cell.name,
            one.cell.verb,
            outcome.verdict,
            printable(outcome.words),
            one.number,
            outcome.seconds,
            str(outcome.folder) if outcome.folder else None,
        )
        for one, outcome in done
    ]
    code = worst_code([outcome for _, outcome in done])
    return Answer(1, name, f"{total}: {', '.join(parts)}.", code, cells)


def answer_text(answer: Answer, form: str, folder: Path, width: int | None = None) -> str:
    """Return an answer as `text`, `markdown` or `json`."""
    if form == "json":
        return jsonio.dumps(asdict(answer), indent=1) + "\n"
    rows = [
        (
            one.cell,
            one.verdict,
            duration(one.seconds) if one.seconds else "",
            one.message + (f" (try {one.tries})" if one.tries > 1 else ""),
        )
        for one in sorted(answer.cells, key=lambda one: WORST_FIRST.index(one.verdict))
    ]
    if form == "markdown":
        head = [f"**{answer.answer}**", "", f"| {' | '.join(HEADINGS)} |", "|---|---|---|---|"]
        lines = [f"| {' | '.join(map(markdown_cell, row))} |" for row in rows]
        return "\n".join([*head, *lines, "", f"Folder: {markdown_code(folder)}"]) + "\n"
    lines = [answer.answer, "", *aligned([HEADINGS, *rows]), "", f"Folder: {folder}"]
    return wrapped("\n".join(lines), width) + "\n"


def write_answer(answer: Answer, folder: Path) -> None:
    """Write the answer beside the cells."""
    write_text(folder / FILE, answer_text(answer, "json", folder))
