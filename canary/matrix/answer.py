"""How a matrix goes, and its answer: a line per cell, in a file beside the cells and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from canary.campaign.pairs import duration
from canary.errors import counted, printable
from canary.matrix.document import Verb
from canary.matrix.outcomes import WORST_FIRST, Verdict, worst_code
from canary.matrix.running import Entry, Matrix
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
    cells = [
        CellAnswer(
            one.cell.name,
            one.cell.verb,
            outcome.verdict,
            printable(outcome.words),
            outcome.seconds,
            str(outcome.folder) if outcome.folder else None,
        )
        for one, outcome in done
    ]
    code = worst_code([outcome for _, outcome in done])
    return Answer(1, name, f"{counted(len(done), 'cell')}: {', '.join(parts)}.", code, cells)


def answer_text(answer: Answer, form: str, folder: Path, width: int | None = None) -> str:
    """Return an answer as `text`, `markdown` or `json`."""
    if form == "json":
        return jsonio.dumps(asdict(answer), indent=1) + "\n"
    rows = [
        (one.cell, one.verdict, duration(one.seconds) if one.seconds else "", one.message)
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


EVERY_S = 60.0
"""Between two lines of state."""
LONGEST_REASON = 80


def state_line(matrix: Matrix) -> str:
    """Return the state on one line."""
    done = [one.outcome for one in matrix.entries if one.outcome]
    queued = matrix.launcher.queued()
    running = [one for one in matrix.running if one.cell.name not in queued]
    waiting = len(matrix.entries) - len(done) - len(running) - len(queued)
    parts = [f"{len(done)} of {len(matrix.entries)} done"]
    counts = Counter(one.verdict for one in done)
    parts += [
        verdict_count(one, counts[one]) for one in WORST_FIRST if one != "pass" and counts[one]
    ]
    parts.append(f"{len(running)} run" if len(running) != 1 else f"{running[0].cell.name} runs")
    if waiting:
        parts.append(f"{waiting} wait")
    if queued:
        reason = printable(Counter(queued.values()).most_common(1)[0][0])[:LONGEST_REASON]
        parts.append(f"{len(queued)} in the queue: {reason}")
    return " · ".join(parts)


@dataclass
class View:
    """Tells each cell once as it ends; and the state, at first and once a minute."""

    say: Callable[[str], None]
    """Prints a line for people."""
    clock: Callable[[], float]
    _said: set[str] = field(default_factory=set)
    _when: float | None = None

    def told(self, matrix: Matrix) -> None:
        """Show what is new."""
        for one in matrix.entries:
            if one.outcome is not None and one.cell.name not in self._said:
                self._said.add(one.cell.name)
                words, verdict = one.outcome.words, one.outcome.verdict
                if not words.lower().startswith(verdict):
                    words = f"{verdict}: {words}"
                self.say(f"{len(self._said)}/{len(matrix.entries)} {one.cell.name}: {words}")
        now = self.clock()
        is_time = self._when is None or now - self._when >= EVERY_S
        if is_time and len(self._said) < len(matrix.entries):
            self.say(state_line(matrix))
            self._when = now
