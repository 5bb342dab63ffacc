"""One stored run: the facts in its file's name, its record, and its context.

A name is `<start>_<run id>[+g<12 hex of the commit>][+red][+accepted].json`. Names of earlier
versions lack commit and verdict, and are read too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canary.errors import InputError, RecordError
from canary.record import jsonio
from canary.record.folder import parse_record
from canary.record.types import RunRecord

LARGEST = 8 << 20
"""Bytes of one file; an entry has about 30 to 300 KB."""

LATEST = timedelta(days=1)
"""A start after now: clocks differ. A later one would stay the newest run for ever."""

COMMIT_DIGITS = 12
"""Hex digits of a commit in a name: 48 bits, more than git's abbreviations."""

Judgement = Literal["", "pass", "regression", "changed", "inconclusive", "no-baseline", "error"]
RED: tuple[Judgement, ...] = ("regression", "changed", "error")
"""Verdicts of runs that are kept but never compared with."""

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
NAME = re.compile(
    r"(?P<start>[^_]*)_(?P<run_id>.+?)(?:\+g(?P<commit>[0-9a-f]{12}))?(?P<red>\+red)?"
    r"(?P<accepted>\+accepted)?\.json"
)


class Accepted(BaseModel):
    """A person's statement that a change is intended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str
    """The person's login."""
    label: str = ""
    head_sha: str = ""
    """The accepted commit; for a squashed pull request it differs from the entry's."""
    reason: str = ""


class Context(BaseModel):
    """Facts of a stored run that do not come from its record, which untrusted code wrote."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str = Field("", pattern=r"^([0-9a-f]{40,64})?$")
    """Full sha of the commit that ran; empty if unknown."""
    ref: str = ""
    verdict: Judgement = ""
    """Empty: not judged."""
    run_url: str = ""
    pull_request: int | None = None
    accepted: Accepted | None = None
    stored: str = ""
    """When it was stored, ISO 8601."""


class Stored(BaseModel):
    """What an entry's file holds."""

    model_config = ConfigDict(frozen=True)

    entry_version: Literal[1]
    accepted: str | None = None
    """Why a person accepted the change."""
    context: Context | None = None
    """None if it was saved without one."""
    record: dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One stored run, identified by its file."""

    path: Path

    def _part(self, name: str) -> str:
        found = NAME.fullmatch(self.path.name)
        return (found[name] or "") if found else ""

    @property
    def start(self) -> str:
        """Start of the run, to the second, UTC."""
        return self._part("start")

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._part("run_id")

    @property
    def commit(self) -> str:
        """The first 12 hex digits of its commit; empty if the name has none."""
        return self._part("commit")

    @property
    def red(self) -> bool:
        """Whether its verdict forbids a comparison with it."""
        return bool(self._part("red"))

    @property
    def accepted(self) -> bool:
        """Whether a person accepted this run's change."""
        return bool(self._part("accepted"))

    def stored(self) -> Stored:
        """Return what the file holds.

        Raises:
            RecordError: it cannot be read; it never counts as an empty history.
        """
        try:
            content = jsonio.content_of(self.path, LARGEST)
        except OSError as error:
            raise RecordError(f"{self.path} cannot be read: {error}") from error
        return parse_entry(content, self.path)

    def record(self) -> RunRecord:
        """Return the stored record."""
        return parse_record(self.stored().record, self.path)


def parse_entry(content: bytes, shown: Path | str) -> Stored:
    """Parse an entry's document; its record is not checked.

    Raises:
        RecordError: it is not an entry; names `shown` and the first wrong key.
    """
    try:
        document = jsonio.loads(content)
    except ValueError as error:
        raise RecordError(f"{shown} cannot be read: {error}") from error
    try:
        return Stored.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        why = f": {key}: {first['msg']}" if key else ""
        raise RecordError(f"{shown} is not an entry of a baseline history{why}") from error


def entry_name(record: RunRecord, context: Context | None, *, accepted: bool) -> str:
    """Return the file name of a run's entry.

    Raises:
        InputError: the start lies in the future; start and run id cannot name a file, or would be
            read back as another commit or verdict.
    """
    if not RUN_ID.fullmatch(record.run_id):
        raise InputError(
            f"run_id {record.run_id!r} cannot name a file",
            "use only letters, digits, '.', '_', '+' and '-'",
        )
    try:
        start = datetime.fromisoformat(record.timestamp)
    except ValueError as error:
        raise InputError(
            f"timestamp {record.timestamp!r} of run {record.run_id} is not an ISO 8601 time"
        ) from error
    start = start.astimezone(UTC) if start.tzinfo else start.replace(tzinfo=UTC)
    if start - datetime.now(UTC) > LATEST:
        raise InputError(
            f"run {record.run_id} starts more than a day from now, at {record.timestamp}",
            "set the clock of the machine that ran it",
        )
    commit = context.commit[:COMMIT_DIGITS] if context else ""
    red = context is not None and context.verdict in RED and not accepted
    marks = (
        f"+g{commit}" if commit else "",
        "+red" if red else "",
        "+accepted" if accepted else "",
    )
    entry = Entry(Path(f"{start:%Y%m%dT%H%M%S}_{record.run_id}{''.join(marks)}.json"))
    read_back = (entry.run_id, entry.commit, entry.red, entry.accepted)
    if read_back != (record.run_id, commit, red, accepted):
        raise InputError(
            f"run_id {record.run_id!r} ends with a suffix that is reserved for stored runs",
            "give the run another id",
        )
    return entry.path.name
