"""A run's folder: written during the run, and readable however the run ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from canary.config.output import OUTPUT_DIR
from canary.config.redaction import hidden_text
from canary.errors import DISK_FULL, InputError, RecordError, writing
from canary.record import jsonio
from canary.record.consistency import contradictions
from canary.record.ranks import RankSteps, merged_rows
from canary.record.step_row import Row
from canary.record.summary import summarise_ranks
from canary.record.types import SCHEMA_VERSION, Owner, RunRecord, Status

RESERVE_BYTES = 256 * 1024
"""Space reserved in the folder so that the last record fits on a full disk."""

OTHER_VERSION = "read it with the version of rlhf-canary that wrote it"
NAME_A_RUN = "name a run's folder or its metrics.json"


def new_run_id(name: str, now: datetime) -> str:
    """Return an id that sorts by time, names the canary and is unique within a second."""
    return f"{now:%Y%m%d-%H%M%S}-{name or 'canary'}-{secrets.token_hex(2)}"


def this_process() -> Owner:
    """Return the current process as its records name it."""
    return Owner(pid=os.getpid(), started=psutil.Process().create_time(), host=socket.gethostname())


def is_alive(owner: Owner) -> bool:
    """Return whether the owner still runs. An owner on another host is taken as alive."""
    if owner.host != socket.gethostname():
        return True
    try:
        return abs(psutil.Process(owner.pid).create_time() - owner.started) < 1.0
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False  # Also a number that no process has.


class RunFolder:
    """The files of one run. Only the process that made the folder writes `metrics.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.json"
        self.steps = path / "steps.jsonl"
        self.alerts = path / "alerts.jsonl"
        self.config = path / "config.yaml"
        self.log = path / "log.txt"
        self.scratch = path / ".scratch"
        self._reserve = path / ".reserve"
        self._made: list[Path] = []
        """The folders above that `create` made."""

    @classmethod
    def create(cls, output_dir: Path, run_id: str) -> RunFolder:
        """Make `<output_dir>/<run_id>/`.

        Raises:
            MachineError: the folder cannot be made, or has no space for a record.
        """
        folder = cls(output_dir / run_id)
        folder._made = [place for place in folder.path.parents if not place.exists()]
        with folder.or_nothing():
            folder.path.mkdir(parents=True)
            folder.scratch.mkdir()
            folder._reserve.write_bytes(b"\0" * RESERVE_BYTES)
            folder.alerts.touch()
            folder.steps.touch()
            keep_from_git(output_dir)
        return folder

    @contextlib.contextmanager
    def or_nothing(self) -> Iterator[None]:
        """Remove all that `create` made if the block fails and there is no record.

        Raises:
            MachineError: in place of an OSError.
        """
        try:
            with writing(self.path.parent, "choose another folder with -o"):
                yield
        except BaseException:  # Ctrl-C too leaves nothing.
            left = self.scratch if self.metrics.exists() else self.path
            shutil.rmtree(left, ignore_errors=True)
            with contextlib.suppress(OSError):  # Something else may be there.
                self._reserve.unlink(missing_ok=True)
                for place in self._made:
                    if [*place.iterdir()] == [ignored := place / ".gitignore"]:
                        ignored.unlink()
                    place.rmdir()
            raise

    def is_there(self) -> bool:
        """Return whether the folder exists. A command may have cleaned its output folder."""
        return self.path.is_dir()

    def write(self, record: RunRecord) -> None:
        """Replace `metrics.json`; on a full disk, use up the reserved space.

        Raises:
            OSError: the disk is full and the reserved space is used up.
        """
        text = jsonio.dumps(_without_secrets(record).model_dump(), indent=1) + "\n"
        try:
            jsonio.replace_file(self.metrics, text)
        except OSError as error:
            if error.errno not in DISK_FULL or not self._reserve.exists():
                raise
            self._reserve.unlink()
            jsonio.replace_file(self.metrics, text)

    def finish(self, record: RunRecord) -> None:
        """Write the record for the last time and remove the reserved space."""
        self.write(record)
        self._reserve.unlink(missing_ok=True)


def keep_from_git(output_dir: Path) -> None:
    """Give the default output folder a `.gitignore`, or runs would make a clean checkout dirty."""
    for folder in (output_dir, *output_dir.parents[:2]):  # a campaign has two folders in it
        if folder.name == OUTPUT_DIR and not (folder / ".git").exists():
            # "x" follows no link and replaces nothing.
            with contextlib.suppress(OSError), (folder / ".gitignore").open("x") as file:
                file.write("*\n")


def _without_secrets(record: RunRecord) -> RunRecord:
    """Return the record with secrets hidden in texts from other programs."""
    texts = {
        "reason": None if record.reason is None else hidden_text(record.reason),
        "notes": [hidden_text(note) for note in record.notes],
        "unmeasured": {name: hidden_text(why) for name, why in record.unmeasured.items()},
    }
    return record.model_copy(update=texts)


def start_record(run_id: str, name: str, now: datetime, config: dict[str, Any]) -> RunRecord:
    """Return the record of a run that begins now, owned by this process."""
    return RunRecord(
        run_id=run_id,
        name=name,
        timestamp=now.astimezone(UTC).isoformat(timespec="seconds"),
        config=config,
        owner=this_process(),
    )


def close_launches(record: RunRecord, status: Status) -> None:
    """Give the run's status to each launch that still says `running`."""
    record.launches[:] = [
        launch.model_copy(update={"status": status}) if launch.status == "running" else launch
        for launch in record.launches
    ]


def rows_of_run(folder: RunFolder) -> list[Row]:
    """Return the launches' rows, merged over ranks, in the order written."""
    return merged_rows(RankSteps(folder.steps).read())


def load_record(path: Path | str, *, write_back: bool = True) -> RunRecord:
    """Load a record from a run's folder or its `metrics.json`.

    If the run's process died, its record still says `running`. It becomes `interrupted` here, and
    is summarised from the steps on disk. With `write_back` the file is corrected too, if possible.

    Raises:
        InputError: it is missing.
        RecordError: it cannot be read, is not strict JSON, or has another schema.
    """
    named = Path(path)
    file = named / "metrics.json" if named.is_dir() else named
    newest = max(named.glob("*/metrics.json"), default=None) if not file.exists() else None
    hint = f"name one of its runs: {newest.parent}" if newest else NAME_A_RUN
    document = read_document(file, "record", hint)
    record = parse_record(document, file)
    if record.status == "running" and record.owner is not None and not is_alive(record.owner):
        try:
            corrected = _corrected(record, RunFolder(file.parent))
            if write_back and os.access(file.parent, os.W_OK):
                RunFolder(file.parent).finish(corrected)
                shutil.rmtree(RunFolder(file.parent).scratch, ignore_errors=True)
            return corrected
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise RecordError(
                f"{file} says `running`, but its process is gone and its steps cannot be read",
                "train again",
            ) from error
    return record


def read_document(file: Path, kind: str, hint: str, largest: int = jsonio.LARGEST) -> Any:
    """Read a file of strict JSON that should hold a `record` or another `kind`. `largest`: most
    bytes of it.

    Raises:
        InputError: it is missing; the error has the hint.
        RecordError: it cannot be read, or is not strict JSON.
    """
    try:
        return jsonio.loads(jsonio.content_of(file, largest))
    except FileNotFoundError as error:
        raise InputError(f"no {kind} at {file}", hint) from error
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{file} is not a {kind}: {error}") from error


def parse_record(document: Any, source: Path) -> RunRecord:
    """Validate a parsed document.

    Raises:
        RecordError: the document is wrong or contradicts itself; names the first wrong key.
    """
    if not isinstance(document, dict):
        raise RecordError(f"{source} is not a record: expected a JSON object")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{source} has schema_version {version!r}; this version reads {SCHEMA_VERSION}",
            OTHER_VERSION,
        )
    try:
        record = RunRecord.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])[:200]
        if first["type"] == "extra_forbidden":
            raise RecordError(
                f"{source} has the key `{key}`, which this version does not know",
                OTHER_VERSION,
            ) from error
        raise RecordError(f"{source} is not a record: {key}: {first['msg']}") from error
    for key, words in contradictions(record):
        raise RecordError(
            f"{source} contradicts itself: `{key}` is {words}",
            "take the record as the run wrote it, or train again",
        )
    return record


def _corrected(record: RunRecord, folder: RunFolder) -> RunRecord:
    """Return a dead process's record, summarised from its rows."""
    assert record.owner is not None
    by_rank = RankSteps(folder.steps).read()
    rows = merged_rows(by_rank)
    close_launches(record, "interrupted")
    given = record.config.get("metrics_warmup_steps")
    warmup = given if isinstance(given, int) else 0
    corrected = summarise_ranks(record, by_rank, warmup)
    times = [row["time"] for row in rows if "time" in row]
    started = datetime.fromisoformat(record.timestamp).timestamp()
    return corrected.model_copy(
        update={
            "status": "interrupted",
            "reason": f"the canary's process {record.owner.pid} ended without finishing the record "
            f"(killed, or the machine stopped) after step {rows[-1]['step'] if rows else 0}",
            "duration_seconds": max(
                record.duration_seconds, (times[-1] if times else started) - started
            ),
        }
    )
