"""Read the training job's records safely: size limits, no links, strict JSON.

    gate.json                                                  what the training job says of it
    <folder>/current/<run id>/metrics.json ...                 compare: baseline
    <folder>/base/<run id>/..., <folder>/head/<run id>/...     compare: ab

The pull request's code could have written them. No file is opened before its type and size are
checked, and nothing outside the folder is read or written. `gate.json` is trusted only to locate
records.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canary.errors import MachineError, RecordError, not_written
from canary.record import jsonio
from canary.record.folder import parse_record
from canary.record.jsonio import replace_file
from canary.record.types import RunRecord

MOST_FILES = 2_000
MOST_RUNS = 200
"""Records per role and config; each costs time to judge."""
LARGEST_FILE = 32 << 20
LARGEST_RECORD = 8 << 20
LARGEST_FOLDER = 256 << 20
LARGEST_ARCHIVE = 128 << 20
LARGEST_DIRECTORY = 4 << 20
"""Bytes of an archive's table of contents."""
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Allowed compression. With others, Python unpacks a whole chunk at once, of any size."""
END_OF_ARCHIVE = b"PK\5\6"
END_OF_LARGE_ARCHIVE = b"PK\6\7"
DEEPEST = 6
LONGEST_KEY = 200
"""Characters of a key in an error message."""
UNPACKING = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""The standard library's errors for archives that are broken, encrypted, or have odd names."""
REMEDY = "let only the canary write the records folder, then train again"


MANIFEST = "gate.json"
MANIFEST_VERSION: Literal[1] = 1

Text = Annotated[str, Field(max_length=2_000)]
Mode = Literal["baseline", "ab"]


class Part(BaseModel):
    """One config and the folder of its records."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    config: Annotated[str, Field(max_length=500)]
    """Its path, as in the input."""
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


@dataclass(frozen=True)
class Records:
    """A checked records folder."""

    root: Path
    manifest: Manifest

    def runs(self, part: Part, role: str) -> list[RunRecord]:
        """Return the records of one role of a part, sorted by start.

        Raises:
            RecordError: a record is unreadable or invalid, or there are too many.
        """
        paths = sorted((self.root / part.folder / role).glob("*/metrics.json"))
        if len(paths) > MOST_RUNS:
            raise RecordError(f"{part.config} has more than {MOST_RUNS} {role} records", REMEDY)
        found = [read_record(path) for path in paths]
        return sorted(found, key=lambda record: (record.timestamp, record.run_id))

    def folders(self, part: Part) -> dict[str, Path]:
        """Return the folders of a part's runs by their names, which are the run ids."""
        return {
            path.parent.name: path.parent
            for path in self.root.glob(f"{part.folder}/*/*/metrics.json")
        }


def load_records(root: Path) -> Records:
    """Check the whole folder and read its manifest.

    Raises:
        RecordError: it is missing or too large, holds links or odd files, or has no manifest.
    """
    check_folder(root)
    manifest = root / MANIFEST
    if not manifest.is_file():
        raise RecordError("the training job left no record", "read the log of that job")
    return Records(root, _manifest(manifest))


def check_folder(root: Path) -> None:
    """Raise a RecordError for links, devices, and anything over the size limits."""
    if not root.is_dir() or root.is_symlink():
        raise RecordError("the training job left no record", "read the log of that job")
    total = count = 0
    for path, state in _walk(root):
        shown = path.relative_to(root)
        count += 1
        if stat.S_ISDIR(state.st_mode):
            continue
        if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
            raise RecordError(f"{str(shown)!r} in the records is not a plain file", REMEDY)
        total += state.st_size
        if state.st_size > LARGEST_FILE or total > LARGEST_FOLDER or count > MOST_FILES:
            raise RecordError(
                f"the records are too large, at {str(shown)!r}: at most {MOST_FILES:,} files, "
                f"{LARGEST_FILE >> 20} MiB per file, {LARGEST_FOLDER >> 20} MiB in all",
                REMEDY,
            )


def _walk(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield everything below a folder without following links."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if len(folder.relative_to(root).parts) > DEEPEST:
            raise RecordError(f"the records have more than {DEEPEST} levels of folders", REMEDY)
        with os.scandir(folder) as entries:
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                yield Path(entry.path), state
                if stat.S_ISDIR(state.st_mode):
                    waiting.append(Path(entry.path))


def read_record(path: Path) -> RunRecord:
    """Read one record; the status `running` becomes `interrupted`.

    Raises:
        RecordError: the file is too large, not strict JSON, or not a record.
    """
    if path.stat().st_size > LARGEST_RECORD:
        raise RecordError(f"{path.name} of {path.parent.name} is too large to be a record", REMEDY)
    record = parse_record(_json(path), Path(path.parent.name) / path.name)
    if record.status == "running":
        ended = {"status": "interrupted", "reason": "the run ended without finishing its record"}
        record = record.model_copy(update=ended)
    return record


def _json(path: Path) -> object:
    try:
        document: object = jsonio.loads(path.read_bytes())
        jsonio.check_bounds(document)
        return document
    except (OSError, ValueError) as error:
        where = path.name if path.name == MANIFEST else f"{path.parent.name}/{path.name}"
        raise RecordError(
            f"{where} cannot be read: {error}",
            "train again; if it happens again, find what wrote it",
        ) from error


def _manifest(path: Path) -> Manifest:
    if path.stat().st_size > LARGEST_RECORD:
        raise RecordError(f"{path.name} is too large", REMEDY)
    try:
        return Manifest.model_validate(_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])[:LONGEST_KEY]
        raise RecordError(
            f"{path.name} is not valid: {key}: {first['msg']}",
            "use the same version of the action in both jobs",
        ) from error


def extract(archive: Path, into: Path) -> None:
    """Unpack an artifact: only plain files, only inside the folder, within the size limits.

    Counts the unpacked bytes, because an archive can lie about its sizes.

    Raises:
        RecordError: not an archive, a path outside the folder, a link, too many or too large files.
        MachineError: the files cannot be written.
    """
    if archive.stat().st_size > LARGEST_ARCHIVE:
        raise RecordError("the artifact is too large", REMEDY)
    left = LARGEST_FOLDER
    try:
        _check_directory(archive)
        with zipfile.ZipFile(archive) as packed:
            members = [item for item in packed.infolist() if not item.is_dir()]
            if len(members) > MOST_FILES:
                raise RecordError("the artifact holds too many files", REMEDY)
            for member in members:
                left -= _extract_one(packed, member, into, min(left, LARGEST_FILE))
    except UNPACKING as error:
        raise RecordError("the artifact is broken and cannot be unpacked", REMEDY) from error
    except FileExistsError as error:
        raise RecordError("the artifact holds a file twice", REMEDY) from error
    except OSError as error:
        raise not_written("the artifact", error) from error


def _check_directory(archive: Path) -> None:
    """Raise a RecordError if the table of contents is too large: `zipfile` reads all of it.

    The archive's last 64 KiB contain its size (APPNOTE.TXT of the ZIP format, 4.3.16).
    """
    with archive.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - (1 << 16) - 64))
        end = stream.read()
    at = end.rfind(END_OF_ARCHIVE)
    if at < 0 or len(end) < at + 22:
        raise zipfile.BadZipFile
    if int.from_bytes(end[at + 12 : at + 16], "little") > LARGEST_DIRECTORY or (
        END_OF_LARGE_ARCHIVE in end[:at]
    ):
        raise RecordError("the artifact holds too many files", REMEDY)


def _extract_one(packed: zipfile.ZipFile, member: zipfile.ZipInfo, into: Path, most: int) -> int:
    """Write one file and return its size in bytes."""
    name = PurePosixPath(member.filename)
    parts = name.parts
    odd = "\\" in member.filename or "\0" in member.filename or ":" in member.filename
    if name.is_absolute() or ".." in parts or odd or not parts or len(parts) > DEEPEST + 1:
        raise RecordError(f"{member.filename!r} in the artifact leads outside of it", REMEDY)
    if member.compress_type not in PACKED:
        raise RecordError(f"{member.filename!r} in the artifact has an unknown compression", REMEDY)
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise RecordError(f"{member.filename!r} in the artifact is not a plain file", REMEDY)
    target = into.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with packed.open(member) as source, target.open("xb") as sink:
        while chunk := source.read(1 << 16):
            size += len(chunk)
            if size > most:
                raise RecordError(f"{member.filename!r} in the artifact is too large", REMEDY)
            sink.write(chunk)
    return size
