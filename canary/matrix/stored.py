"""Reads the answer of a matrix from its file, `matrix.json`, and writes its page. A stranger may
have written the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from canary.errors import InputError, RecordError, did_you_mean, nearest
from canary.matrix.document import MOST_CELLS, Verb
from canary.matrix.outcomes import UNREADABLE, Verdict
from canary.matrix.running import CELLS
from canary.record import jsonio
from canary.record.folder import read_document
from canary.record.strangers import refuse_links
from canary.report.pages import leave_page, require_charts
from canary.report.render import write_text

FILE = "matrix.json"
LONGEST_NAME = 200
LARGEST = 16 << 20
"""Bytes of an answer; each cell has some hundred."""
Number = Annotated[float, BeforeValidator(jsonio.number)]


def _is_folder_name(name: str) -> str:
    if Path(name).name != name or name in ("", "..") or not name.isprintable():
        raise ValueError("is no name of a folder")
    return name


class _Strict(BaseModel):
    # Further keys are those of a newer canary: they are not read.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class StoredCell(_Strict):
    """A cell and its answer."""

    cell: Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_is_folder_name)]
    verb: Verb
    verdict: Verdict
    message: str = ""
    tries: int = Field(0, ge=0, le=1_000_000)
    """The number of the newest try is the name of its folder."""
    seconds: Number = Field(0.0, ge=0, le=1e9)


class StoredMatrix(_Strict):
    """The whole answer."""

    schema_version: Literal[1]
    name: str = ""
    answer: str = ""
    cells: list[StoredCell] = Field(max_length=MOST_CELLS)

    def named(self, name: str) -> StoredCell:
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


def matrix_of(folder: Path) -> Path | None:
    """Return the file with the answer of a matrix that a folder holds; None without one."""
    file = folder / FILE
    return file if file.is_file() else None


def read_answer(file: Path) -> StoredMatrix:
    """Read the answer of a matrix.

    Raises:
        InputError: there is no such file.
        RecordError: it is no such answer, or cannot be read.
    """
    document = read_document(file, "matrix", "run canary matrix", LARGEST)
    try:
        jsonio.check_bounds(document)
        return StoredMatrix.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))[:200] or "the file"
        message = f"{file} is not the answer of a matrix: {key}: {first['msg']}"
        raise RecordError(message, "run canary matrix again") from error
    except ValueError as error:
        raise RecordError(f"{file} is not the answer of a matrix: {error}") from error


def write_page(
    folder: Path,
    path: Path,
    repository: Path,
    cell: str | None = None,
    history: Path | None = None,
) -> None:
    """Write the HTML page of the matrix in a folder, or of one of its cells. `history`: with the
    runs that its runs were compared with.

    Raises:
        InputError, RecordError: as `read_answer` and `named`, or the cell's folder is a link.
        MachineError: the extra is missing, or the file cannot be written.
    """
    require_charts()
    from canary.matrix.page import Around, cell_page, matrix_page

    matrix, around = read_answer(folder / FILE), Around(folder, repository, history)
    if cell is None:
        text = matrix_page(matrix, around)
    else:
        refuse_links(folder / CELLS / cell, folder)  # The page may be written there.
        text = cell_page(matrix.named(cell), around)
    write_text(path, text)


def left_page(folder: Path, repository: Path, history: Path | None = None) -> str:
    """Write `report.html` beside the cells, if charts can be drawn. Return a line that says so:
    the exit code of a matrix is that of its cells."""
    try:
        return leave_page(
            folder, lambda path: write_page(folder, path, repository, history=history)
        )
    except UNREADABLE as error:
        return f"no report with charts: {error}"
