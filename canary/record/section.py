"""The base of the record's parts."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from canary.record.jsonio import number

Number = Annotated[float, BeforeValidator(number)]
"""A float; non-finite values are strings in JSON."""


class Section(BaseModel):
    """A part of the record; it refuses unknown keys."""

    model_config = ConfigDict(extra="forbid")
