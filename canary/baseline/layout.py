"""The files allowed on a baseline branch: only `v2/<canary>/<machine key>/<entry>.json`.

Noise models and pictures have fixed names there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from canary.baseline.entry import LARGEST, NAME, parse_entry
from canary.baseline.history import NOISE_FILE, VERSION
from canary.errors import RecordError
from canary.record import jsonio

PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")
DEPTH = 4
REGULAR = "100644"
LARGEST_ALL = 256 << 20
MOST_FILES = 20_000


@dataclass(frozen=True)
class Found:
    """One object on the branch, as git lists it."""

    mode: str
    kind: str
    sha: str
    size: int
    path: str


def parse_listing(listing: bytes) -> list[Found]:
    """Parse the output of `git ls-tree -r -l -z`."""
    found = []
    for line in listing.split(b"\0"):
        if line:
            facts, _, path = line.decode("utf-8", errors="replace").partition("\t")
            mode, kind, sha, size = facts.split()
            found.append(Found(mode, kind, sha, int(size) if size.isdigit() else 0, path))
    return found


def check_listing(found: Iterable[Found]) -> None:
    """Refuse a listing that is not a history.

    Raises:
        RecordError: names the first file that does not belong there.
    """
    count = total = 0
    for one in found:
        count, total = count + 1, total + one.size
        if one.mode != REGULAR or one.kind != "blob":
            raise RecordError(f"{one.path!r} has mode {one.mode}, so it is not a plain file")
        _check_path(one.path)
        if one.size > LARGEST:
            raise RecordError(f"{one.path} has {one.size:,} bytes; the limit is {LARGEST:,}")
    if count > MOST_FILES or total > LARGEST_ALL:
        raise RecordError(f"it is too large: {count:,} files of {total:,} bytes")
    if not count:
        raise RecordError(f"it has no {VERSION}/")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(parts) != DEPTH or parts[0] != VERSION or not path.endswith(".json"):
        raise RecordError(f"{path!r} does not belong in a baseline history")
    if not all(PART.fullmatch(part) for part in parts):
        raise RecordError(f"{path!r} has a name that a baseline history cannot have")
    if parts[-1] != NOISE_FILE and not NAME.fullmatch(parts[-1]):
        raise RecordError(f"{path!r} is not named like an entry")


def check_content(path: str, content: bytes) -> None:
    """Refuse a file that is neither a noise model nor an entry, as its name says.

    Raises:
        RecordError: names the file.
    """
    if path.endswith(f"/{NOISE_FILE}"):
        try:
            jsonio.loads(content)
        except ValueError as error:
            raise RecordError(f"{path} cannot be read: {error}") from error
        return
    parse_entry(content, path)
