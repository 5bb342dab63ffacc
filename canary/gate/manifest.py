"""`gate.json`: what the untrusted half says of its records folder.

    gate.json
    <folder>/current/<run id>/metrics.json ...                 compare: baseline
    <folder>/base/<run id>/..., <folder>/head/<run id>/...     compare: ab

Everything in it was written next to code of the pull request and is believed of no more than where
the records lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from canary.errors import MachineError
from canary.record.jsonio import replace_file

MANIFEST = "gate.json"
MANIFEST_VERSION: Literal[1] = 1

Text = Annotated[str, Field(max_length=2_000)]
Mode = Literal["baseline", "ab"]


class Part(BaseModel):
    """One config and where its records lie."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    config: Annotated[str, Field(max_length=500)]
    """Path in the repository, as the input names it."""
    name: Annotated[str, Field(max_length=64)] = ""
    """Name of the canary, by the pull request's own config."""
    folder: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
    compare: Mode = "baseline"
    error: Text = ""
    """Why there are no records, or not enough."""
    notes: list[Text] = Field(default_factory=list, max_length=20)


class Manifest(BaseModel):
    """The whole of `gate.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    manifest_version: Literal[1] = MANIFEST_VERSION
    error: Text = ""
    """Why nothing could run at all: no GPU, no docker, a driver too old."""
    parts: list[Part] = Field(default_factory=list, max_length=100)


def write_manifest(records: Path, manifest: Manifest) -> None:
    """Leaves the manifest in the records folder, which is made where it is missing."""
    try:
        records.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"cannot write the records folder {records}: {error.strerror or error}",
            "mount a folder there that this user may write",
        ) from error
    replace_file(records / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
