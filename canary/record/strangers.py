"""Read runs from a folder that strangers may have filled: links are refused, sizes are limited, and
nothing is written."""

from __future__ import annotations

import stat
from collections.abc import Iterable
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

MOST_BYTES = 64 << 20
"""Of the steps of all ranks: a stranger's file must not hold its reader up."""
MOST_VALUES = 5_000_000
"""In the steps of all ranks. Three bytes may hold a value that takes 64 in memory."""
FEW_BYTES = 8 << 20
"""Steps whose values need no count."""
LARGEST_RECORD = 8 << 20
"""Bytes of a record; that of 10,000 steps has less than one MiB."""
Stamp = tuple[int, int]
"""Time of the last change in ns, and bytes."""


def link_in(path: Path, below: Path) -> Path | None:
    """Return the first link on the way from a folder to a path below it; None without one. What
    leads to the folder itself may be a link: it is the reader's own."""
    place = below
    for part in path.relative_to(below).parts:
        place /= part
        if place.is_symlink():
            return place
    return None


def refuse_links(path: Path, below: Path) -> None:
    """Raise RecordError if a part of a path below a stranger's folder is a link."""
    link = link_in(path, below)
    if link is not None:
        raise RecordError(f"{link} is a link", "copy what it leads to")


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
    if stamp(file) is None:
        raise InputError(f"no record at {file}", NAME_A_RUN)
    document = read_document(file, "record", NAME_A_RUN, LARGEST_RECORD)
    try:
        jsonio.check_bounds(document)
    except ValueError as error:
        raise RecordError(f"{file} is not a record: it {error}") from error
    return parse_record(document, file)


def goes_on(record: RunRecord) -> bool:
    """Return whether the run is still going."""
    return record.status == "running" and (record.owner is None or is_alive(record.owner))


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


def can_read(files: Iterable[Path]) -> bool:
    """Return whether all files are regular, and together not too large for this machine's memory.

    Raises:
        OSError: a file is missing.
    """
    named = [*files]
    found = [file.lstat() for file in named]
    # A pipe would wait for ever, and a link may lead to an endless device.
    size = sum(file.st_size for file in found)
    if size > MOST_BYTES or not all(stat.S_ISREG(file.st_mode) for file in found):
        return False
    return size <= FEW_BYTES or sum(map(_values_in, named)) <= MOST_VALUES


def _values_in(file: Path) -> int:
    """Return at most how many values a file of JSON lines holds: something comes before each."""
    count = 0
    with jsonio.open_regular(file, MOST_BYTES, follow=False) as stream:
        while part := stream.read(1 << 20):
            count += sum(map(part.count, (b",", b"[", b"{", b"\n")))
    return count


def require_plain(steps: Path) -> None:
    """Raise RecordError unless the files of all ranks are regular and not too large."""
    try:
        readable = can_read(rank_files(steps).values())
    except OSError as error:
        raise RecordError(f"cannot read {steps}: {error.strerror}") from error
    if not readable:
        limit = f"{MOST_BYTES >> 20} MiB or {MOST_VALUES:,} values"
        raise RecordError(f"{steps} is not a regular file, or its ranks have more than {limit}")
