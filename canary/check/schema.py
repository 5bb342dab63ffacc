"""The shape of `check.json`, the answer of a check. A stranger may have written it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from canary.record import jsonio
from canary.relations import RELATIONS
from canary.relations.relation import Group, Relation, RelationStatus

FILE = "check.json"
VERSION = 1
LARGEST = 1 << 20
"""Bytes of the file; ours have some 20,000."""
LONGEST = 2_000
"""Characters of one text; longer ones are cut when they are written."""

MOST_RELATIONS = 200
RelationId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
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
