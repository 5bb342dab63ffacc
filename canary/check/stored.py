"""The answer of a check in its file, `check.json`. A stranger may have written it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from canary.baseline.entry import MOST_RELATIONS, RelationId
from canary.check.run import Checked
from canary.errors import InputError, RecordError
from canary.record import jsonio
from canary.relations import RELATIONS
from canary.relations.relation import Group, Relation, RelationStatus, outcome

FILE = "check.json"
VERSION = 1
LARGEST = 1 << 20
"""Bytes of the file; ours have some 20,000."""
LONGEST = 2_000
"""Characters of one text; longer ones are cut when they are written."""

Number = Annotated[float, BeforeValidator(jsonio.number)]
Text = Annotated[str, Field(max_length=LONGEST)]


class _Strict(BaseModel):
    # Further keys are those of a newer canary: they are not read.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class StoredRelation(_Strict):
    """One relation: what it showed, and what it is."""

    relation: RelationId
    status: RelationStatus
    message: Text = ""
    place: Text = ""
    values: list[Number] = Field([], max_length=8)
    tolerance: Number | None = None
    group: Group = "same work"
    holds_if: Text = ""
    likely: Text = ""
    source: Text = ""

    def described(self) -> Relation:
        """Return what the relation is: for one of ours as this program says, not the file."""
        known = RELATIONS.get(self.relation)
        if known is not None:
            return known
        return Relation(self.relation, self.group, self.holds_if, self.likely, self.source)


class StoredCheck(_Strict):
    """The whole answer."""

    schema_version: Literal[1]
    name: Text = ""
    relations: list[StoredRelation] = Field(max_length=MOST_RELATIONS)
    launches: int = Field(0, ge=0, le=1_000_000)
    seconds: Number = Field(0.0, ge=0, le=1e9)
    notes: list[Text] = Field([], max_length=1_000)


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
