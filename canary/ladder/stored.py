"""Reads the result that a ladder or an advice left in its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from canary.errors import InputError, RecordError
from canary.ladder.results import RESULTS, Advice, Ladder
from canary.record.folder import read_document


def result_of(folder: Path) -> Path | None:
    """Return the file with the result of a ladder or an advice; None without one."""
    return next((file for name in RESULTS if (file := folder / name).is_file()), None)


def load_result(folder: Path | str) -> Ladder | Advice:
    """Return what `canary ladder` left in a folder.

    Raises:
        InputError: the folder has no result.
        RecordError: it cannot be read.
    """
    file = result_of(Path(folder))
    if file is None:
        hint = "name a folder such as canary_output/ladder-DATE-TIME"
        raise InputError(f"{folder} has no result of canary ladder", hint)
    return read_result(file)


def read_result(file: Path) -> Ladder | Advice:
    """Return the result in one of `RESULTS`.

    Raises:
        RecordError: it cannot be read.
    """
    document = read_document(file, "ladder", "run canary ladder again")
    kind: type[Ladder] | type[Advice] = Ladder if file.name == RESULTS[0] else Advice
    try:
        return TypeAdapter[Ladder | Advice](kind).validate_python(document)
    except (ValidationError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise damaged(file) from error


def damaged(file: Path) -> RecordError:
    """Return the error about a file that is no result."""
    return RecordError(f"{file} is not the result of a ladder", "run it again")
