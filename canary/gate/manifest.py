"""`gate.json`: what the training job says about its records folder.

    gate.json
    <folder>/current/<run id>/metrics.json ...                 compare: baseline
    <folder>/base/<run id>/..., <folder>/head/<run id>/...     compare: ab

The pull request's code could have written it, so it is trusted only to locate records.
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
    """One config and the folder of its records."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    config: Annotated[str, Field(max_length=500)]
    """Its path, as in the input."""
    name: Annotated[str, Field(max_length=64)] = ""
    """The canary's name in the pull request's config."""
    folder: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
    compare: Mode = "baseline"
    error: Text = ""
    """Why records are missing."""
    notes: list[Text] = Field(default_factory=list, max_length=20)


class Manifest(BaseModel):
    """The content of `gate.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    manifest_version: Literal[1] = MANIFEST_VERSION
    error: Text = ""
    """Why the training job could not run or finish."""
    parts: list[Part] = Field(default_factory=list, max_length=100)


def write_manifest(records: Path, manifest: Manifest) -> None:
    """Write the manifest into the records folder; create the folder if it is missing."""
    try:
        records.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"cannot write the records folder {records}: {error.strerror or error}",
            "mount a folder there that this user can write to",
        ) from error
    replace_file(records / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
