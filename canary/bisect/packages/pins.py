"""The packages of one end: what a run's record says was imported, or what a lock file or `pip
freeze` says is installed.

A stranger may have written the file. Only names and versions leave this module, both validated by
`packaging`: no option, URL or path of the file reaches an installer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from canary.baseline.entry import Entry
from canary.bisect.packages.locks import LockLine, LockProblem, lines_of_lock
from canary.errors import EarlierRecord, InputError, RecordError, printable
from canary.record import jsonio
from canary.record.folder import load_record
from canary.record.runs import named_run
from canary.record.types import RunRecord

LARGEST = 16 << 20
"""Bytes of a lock file; large ones have some MiB of hashes."""
MOST_PACKAGES = 5_000
MOST_TOLD = 5
LONGEST = 80
TOOL = "rlhf-canary"
"""It measures both ends, so it is the same in every environment."""
NEEDS_INSTALLER = ("pip", "uv")

Versions: TypeAlias = Mapping[str, Version]
"""Canonical name to version."""


@dataclass(frozen=True)
class Pins:
    """What is known of one end."""

    source: Path
    versions: Versions
    python: str | None = None
    """`3.11.7`, if the file says it."""
    whole: bool = True
    """It lists every package; a record lists only what its training imported."""
    left_out: tuple[str, ...] = ()
    """A sentence for each kind of line that is not used."""
    record: RunRecord | None = None


def read_pins(name: Path) -> Pins:
    """Read a run's record (folder, `metrics.json`, a run's name, or a history's file), or a lock
    file.

    Raises:
        InputError: it is missing, or holds no pinned package.
        RecordError: it is a record that cannot be read.
    """
    path = named_run(str(name))
    if path.is_dir() or path.suffix == ".json":
        return _of_record(path)
    try:
        text = jsonio.content_of(path, LARGEST).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"no record or lock file at {path}", HOW) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8", HOW) from error
    try:
        lines = lines_of_lock(text, path.name)
    except LockProblem as error:
        raise InputError(f"{path}: {error}", HOW) from error
    return _of_lines(lines, path)


HOW = "name a run's folder, a lock file, or a file with the output of `pip freeze`"


def _of_record(path: Path) -> Pins:
    record = _stored(path) or load_record(path, write_back=False)
    named = record.env.get("packages") or {}
    lines = [LockLine(name, version) for name, version in named.items() if version]
    found = _of_lines(lines, path)
    return replace(found, python=record.env.get("python"), whole=False, record=record)


def _stored(path: Path) -> RunRecord | None:
    """Return the record in a history's entry; None for another file."""
    if path.is_dir():
        return None
    try:
        return Entry(path).record()
    except EarlierRecord:
        raise
    except RecordError:
        return None


def _of_lines(lines: Iterable[LockLine], path: Path) -> Pins:
    versions: dict[str, Version] = {}
    unused: dict[str, list[str]] = {}
    for line in lines:
        name = canonicalize_name(line.name)
        version = _version(line.version)
        if line.unused or version is None:
            unused.setdefault(line.unused or "has no version of PEP 440", []).append(line.name)
        elif name in (TOOL, *NEEDS_INSTALLER):
            continue
        elif versions.setdefault(name, version) != version:
            raise InputError(
                f"{path} pins {name} twice: {versions[name]} and {version}", "keep one of them"
            )
        if len(versions) > MOST_PACKAGES:
            raise InputError(f"{path} pins more than {MOST_PACKAGES} packages")
    if not versions:
        told = f": {_told(unused)[0]}" if unused else ""
        raise InputError(f"{path} pins no package{told}", HOW)
    return Pins(path, versions, left_out=_told(unused))


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text and len(text) <= LONGEST else None
    except InvalidVersion:
        return None


def _told(unused: Mapping[str, list[str]]) -> tuple[str, ...]:
    told = []
    for why, names in unused.items():
        shown = ", ".join(printable(name)[:LONGEST] for name in names[:MOST_TOLD])
        more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
        told.append(f"{shown}{more}: left out, because it {why}")
    return tuple(told)
