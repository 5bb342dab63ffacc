"""The answer of a matrix: a line per cell, in a file beside the cells and for people.

A stranger may have written the file, `matrix.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from canary.campaign.pairs import duration
from canary.errors import InputError, RecordError, did_you_mean, nearest, printable
from canary.matrix.document import MOST_CELLS, Verb
from canary.matrix.outcomes import CODES, WORST_FIRST, Verdict, worst_code
from canary.matrix.running import Entry
from canary.record import jsonio
from canary.record.folder import read_document
from canary.report.escape import markdown_cell, markdown_code
from canary.report.lines import aligned, wrapped
from canary.report.pages import leave_page, require_charts
from canary.report.render import write_text
from canary.report.view import counted

FILE = "matrix.json"
LONGEST_NAME = 200
LARGEST = 16 << 20
"""Bytes of an answer; each cell has some hundred."""
HEADINGS = ("cell", "result", "time", "answer")


def _is_folder_name(name: str) -> str:
    if Path(name).name != name or name in ("", "..") or not name.isprintable():
        raise ValueError("is no name of a folder")
    return name


class _Strict(BaseModel):
    # Further keys are those of a newer canary: they are not read.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class CellAnswer(_Strict):
    """A cell and its answer."""

    cell: Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_is_folder_name)]
    verb: Verb
    verdict: Verdict
    message: str = ""
    tries: int = Field(0, ge=0, le=1_000_000)
    """The number of the newest try is the name of its folder."""
    seconds: Annotated[float, BeforeValidator(jsonio.number)] = Field(0.0, ge=0, le=1e9)
    folder: str | None = None
    """Of the record or comparison."""
    history: str | None = None
    """What a run was compared with."""


class Answer(_Strict):
    """The whole answer."""

    schema_version: Literal[1] = 1
    name: str = ""
    answer: str = ""
    exit_code: int = CODES["error"]
    """Of the worst cell."""
    cells: list[CellAnswer] = Field(max_length=MOST_CELLS)

    def named(self, name: str) -> CellAnswer:
        """Return one of the cells.

        Raises:
            InputError: there is no such cell.
        """
        found = next((one for one in self.cells if one.cell == name), None)
        if found is None:
            near = nearest(name, [one.cell for one in self.cells])
            hint = did_you_mean(near, f"{FILE} lists the cells")
            raise InputError(f"the matrix has no cell {name!r}", hint)
        return found

    @property
    def worst_first(self) -> list[CellAnswer]:
        """The cells in the order of their verdicts."""
        return sorted(self.cells, key=lambda one: WORST_FIRST.index(one.verdict))


def answer_of(entries: Sequence[Entry], name: str) -> Answer:
    """Return the answer of cells that are done. A record may say anything, so what it says becomes
    one harmless line."""
    done = [(one, one.outcome) for one in entries if one.outcome is not None]
    counts = Counter(outcome.verdict for _, outcome in done)
    parts = [counted(one, counts[one]) for one in WORST_FIRST if counts[one]]
    cells = "1 cell" if len(done) == 1 else f"{len(done)} cells"
    return Answer(
        name=name,
        answer=f"{cells}: {', '.join(parts)}.",
        exit_code=worst_code([outcome for _, outcome in done]),
        cells=[
            CellAnswer(
                cell=one.cell.name,
                verb=one.cell.verb,
                verdict=outcome.verdict,
                message=printable(outcome.words),
                tries=one.number,
                seconds=outcome.seconds,
                folder=str(outcome.folder) if outcome.folder else None,
                history=str(outcome.history) if outcome.history else None,
            )
            for one, outcome in done
        ],
    )


def answer_text(answer: Answer, form: str, folder: Path, width: int | None = None) -> str:
    """Return an answer as `text`, `markdown` or `json`."""
    if form == "json":
        return jsonio.dumps(answer.model_dump(), indent=1) + "\n"
    rows = [
        (
            one.cell,
            one.verdict,
            duration(one.seconds) if one.seconds else "",
            one.message + (f" (try {one.tries})" if one.tries > 1 else ""),
        )
        for one in answer.worst_first
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


def read_answer(file: Path) -> Answer:
    """Read the answer of a matrix.

    Raises:
        InputError: there is no such file.
        RecordError: it is no such answer, or cannot be read.
    """
    document = read_document(file, "matrix", "run canary matrix", LARGEST)
    try:
        jsonio.check_bounds(document)
        return Answer.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))[:200] or "the file"
        message = f"{file} is not the answer of a matrix: {key}: {first['msg']}"
        raise RecordError(message, "run canary matrix again") from error
    except ValueError as error:
        raise RecordError(f"{file} is not the answer of a matrix: {error}") from error


def write_page(
    folder: Path, path: Path, cell: str | None = None, history: Path | None = None
) -> None:
    """Write the HTML page of the matrix in a folder, or of one of its cells; see `page_of_answer`.

    Raises:
        InputError, RecordError: as `read_answer` and `page_of_answer`.
        MachineError: the extra is missing, or the file cannot be written.
    """
    require_charts()
    from canary.matrix.page import page_of_answer

    write_text(path, page_of_answer(read_answer(folder / FILE), folder, cell, history))


def left_page(folder: Path, history: Path | None = None) -> str:
    """Write `report.html` beside the cells, if charts can be drawn. Return a line that says so:
    the exit code of a matrix is that of its cells."""
    try:
        return leave_page(folder, lambda path: write_page(folder, path, history=history))
    except Exception as error:  # noqa: BLE001 - a stranger may have written what it shows
        return f"no report with charts: {error}"
