"""Read a run's record as it is on disk. A folder may hold strangers' files; nothing is written."""

from __future__ import annotations

import stat
from pathlib import Path

from canary.errors import InputError, RecordError
from canary.record import jsonio
from canary.record.folder import (
    NAME_A_RUN,
    RunFolder,
    is_alive,
    load_record,
    parse_record,
    read_document,
)
from canary.record.ranks import rank_files
from canary.record.types import RunRecord
from canary.report.charts.sides import MOST_BYTES, can_read

LARGEST_RECORD = 8 << 20
"""Bytes of a record; that of 10,000 steps has less than one MiB."""
Stamp = tuple[int, int]
"""Time of the last change in ns, and bytes."""


def stamp(file: Path) -> Stamp | None:
    """Return the stamp of a regular file; None for anything else, such as a link or a pipe."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def stored_record(folder: Path) -> RunRecord:
    """Return the record in a run's folder as it is.

    Raises:
        InputError: it is missing.
        RecordError: it cannot be read, is too large, or is not a regular file.
    """
    file = RunFolder(folder).metrics
    found = stamp(file)
    if found is None:
        raise InputError(f"no record at {file}", NAME_A_RUN)
    if found[1] > LARGEST_RECORD:
        raise RecordError(f"{file} is larger than {LARGEST_RECORD >> 20} MiB")
    document = read_document(file, "record", NAME_A_RUN)
    try:
        jsonio.check_bounds(document)
    except ValueError as error:
        raise RecordError(f"{file} is not a record: it {error}") from error
    return parse_record(document, file)


def goes_on(record: RunRecord) -> bool:
    """Return whether the run is still going.

    Raises:
        RecordError: the record names an impossible process.
    """
    if record.status != "running":
        return False
    try:
        return record.owner is None or is_alive(record.owner)
    except (OverflowError, TypeError, ValueError) as error:
        raise RecordError(f"the record names an impossible process: {error}") from error


def seen_record(folder: Path) -> RunRecord:
    """Return the record in a run's folder; that of a dead process is summarised from its steps.

    Raises:
        InputError, RecordError: as `stored_record`, or the steps cannot be read.
    """
    record = stored_record(folder)
    if record.status != "running" or goes_on(record):
        return record
    require_plain(RunFolder(folder).steps)
    return load_record(folder, write_back=False)


def require_plain(steps: Path) -> None:
    """Raise RecordError unless the files of all ranks are regular and not too large."""
    try:
        readable = can_read(rank_files(steps).values())
    except OSError as error:
        raise RecordError(f"cannot read {steps}: {error.strerror}") from error
    if not readable:
        limit = f"{MOST_BYTES >> 20} MiB"
        raise RecordError(f"{steps} is not a regular file, or its ranks have more than {limit}")
