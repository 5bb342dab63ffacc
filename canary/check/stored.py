"""Reads the answer of a check from its file, `check.json`. A stranger may have written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from canary.check.run import Checked
from canary.check.schema import LARGEST, StoredCheck
from canary.errors import InputError, RecordError
from canary.record import jsonio
from canary.relations.relation import outcome


def read_check(file: Path) -> Checked:
    """Read the answer of a check.

    Raises:
        InputError: there is no such file.
        RecordError: it is no such answer, too large, or cannot be read.
    """
    try:
        document = jsonio.loads(jsonio.content_of(file, LARGEST))
    except FileNotFoundError as error:
        raise InputError(f"no answer of a check at {file}", "run canary check") from error
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{file} is not the answer of a check: {error}") from error
    return parsed_check(document, file)


def parsed_check(document: Any, file: Path) -> Checked:
    """Validate a parsed answer.

    Raises:
        RecordError: it is wrong; names the first wrong key.
    """
    try:
        jsonio.check_bounds(document)
        found = StoredCheck.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))[:200] or "the file"
        message = f"{file} is not the answer of a check: {key}: {first['msg']}"
        raise RecordError(message, "run canary check again") from error
    except ValueError as error:
        raise RecordError(f"{file} is not the answer of a check: {error}") from error
    ids = [one.relation for one in found.relations]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise RecordError(f"{file} is not the answer of a check: {twice} is there twice")
    return Checked(
        found.name,
        tuple(
            outcome(one.relation, one.status, one.message, one.place, one.values, one.tolerance)
            for one in found.relations
        ),
        file.parent,
        found.launches,
        found.seconds,
        tuple(found.notes),
        {one.relation: one.described() for one in found.relations},
    )
