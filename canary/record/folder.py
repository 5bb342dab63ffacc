"""A run's folder: written as the run goes on, read back whatever ended it."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from canary.config.redaction import hidden_text
from canary.errors import InputError, MachineError, RecordError
from canary.record import jsonio
from canary.record.ranks import RankSteps, merged_rows
from canary.record.step_row import Row
from canary.record.summary import summarise_ranks
from canary.record.types import SCHEMA_VERSION, Owner, RunRecord, Status

RESERVE_BYTES = 256 * 1024
"""Space kept in the folder so that the last words of a run fit on a disk that became full."""

NAME_A_RUN = "name a run's folder or its metrics.json"


def new_run_id(name: str, now: datetime) -> str:
    """Sorts by time, says which canary, and does not collide within a second."""
    return f"{now:%Y%m%d-%H%M%S}-{name or 'canary'}-{secrets.token_hex(2)}"


def this_process() -> Owner:
    """The current process, as written into its records."""
    return Owner(pid=os.getpid(), started=psutil.Process().create_time(), host=socket.gethostname())


def is_alive(owner: Owner) -> bool:
    """Whether the owner still runs. Of another host nothing can be known: taken as alive."""
    if owner.host != socket.gethostname():
        return True
    try:
        return abs(psutil.Process(owner.pid).create_time() - owner.started) < 1.0
    except psutil.NoSuchProcess:
        return False


class RunFolder:
    """The files of one run. Only the process that made the folder writes `metrics.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.json"
        self.steps = path / "steps.jsonl"
        self.probe_steps = path / "probe_steps.jsonl"
        self.alerts = path / "alerts.jsonl"
        self.config = path / "config.yaml"
        self.log = path / "log.txt"
        self.scratch = path / ".scratch"
        self._reserve = path / ".reserve"

    @classmethod
    def create(cls, output_dir: Path, run_id: str) -> RunFolder:
        """Makes `<output_dir>/<run_id>/`.

        Raises:
            MachineError: the folder cannot be made, or there is no space for a record in it.
        """
        folder = cls(output_dir / run_id)
        try:
            folder.path.mkdir(parents=True)
            folder.scratch.mkdir()
            folder._reserve.write_bytes(b"\0" * RESERVE_BYTES)
            folder.alerts.touch()
            folder.steps.touch()
        except OSError as error:
            raise MachineError(
                f"cannot write the record under {output_dir}: {error.strerror or error}",
                "choose another folder with -o, or free some space",
            ) from error
        return folder

    def is_there(self) -> bool:
        """Whether nobody has removed it: a command may clean its output folder."""
        return self.path.is_dir()

    def write(self, record: RunRecord) -> None:
        """Replaces `metrics.json`; on a full disk the reserve is given up for it.

        Raises:
            OSError: the disk is full and the reserve is spent.
        """
        text = jsonio.dumps(_without_secrets(record).model_dump(), indent=1) + "\n"
        try:
            jsonio.replace_file(self.metrics, text)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._reserve.exists():
                raise
            self._reserve.unlink()
            jsonio.replace_file(self.metrics, text)

    def finish(self, record: RunRecord) -> None:
        """The last write: the summary, and nothing left behind that is not part of a record."""
        self.write(record)
        self._reserve.unlink(missing_ok=True)


def _without_secrets(record: RunRecord) -> RunRecord:
    """What a strange program said, as it may be written down."""
    texts = {
        "reason": None if record.reason is None else hidden_text(record.reason),
        "notes": [hidden_text(note) for note in record.notes],
        "unmeasured": {name: hidden_text(why) for name, why in record.unmeasured.items()},
    }
    return record.model_copy(update=texts)


def start_record(run_id: str, name: str, now: datetime, config: dict[str, Any]) -> RunRecord:
    """A record at the moment the run begins, owned by this process."""
    return RunRecord(
        run_id=run_id,
        name=name,
        timestamp=now.astimezone(UTC).isoformat(timespec="seconds"),
        config=config,
        owner=this_process(),
    )


def close_launches(record: RunRecord, status: Status) -> None:
    """A launch that never said how it ended, ended as the run did."""
    record.launches[:] = [
        launch.model_copy(update={"status": status}) if launch.status == "running" else launch
        for launch in record.launches
    ]


def measured_rows(folder: RunFolder) -> list[Row]:
    """The rows of the measured launches, of all ranks together, in the order written."""
    return merged_rows(RankSteps(folder.steps).read())


def _metrics_path(path: Path) -> Path:
    return path / "metrics.json" if path.is_dir() else path


def _what_to_name(path: Path) -> str:
    """Where no record is: the newest of the runs in a folder, if it is one that holds some."""
    newest = max(path.glob("*/metrics.json"), default=None) if path.is_dir() else None
    return f"name one of its runs: {newest.parent}" if newest else NAME_A_RUN


def load_record(path: Path | str) -> RunRecord:
    """Reads a record from a run's folder or its `metrics.json`.

    A record whose process died without a last word still says `running`; it is corrected here to
    `interrupted`, with what its steps tell.

    Raises:
        InputError: nothing there.
        RecordError: not readable, not strict JSON, or of another schema.
    """
    file = _metrics_path(Path(path))
    document = read_document(file, "record", _what_to_name(Path(path)))
    record = parse_record(document, file)
    if record.status == "running" and record.owner is not None and not is_alive(record.owner):
        try:
            return _correct(record, RunFolder(file.parent))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise RecordError(
                f"{file} says that its run goes on, and its steps are not steps of a run",
                "train again",
            ) from error
    return record


def read_document(file: Path, kind: str, hint: str) -> Any:
    """What a file of strict JSON holds that is to be a `record` or another `kind`.

    Raises:
        InputError: nothing there; carries the hint.
        RecordError: not readable, or not strict JSON.
    """
    try:
        return jsonio.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"no {kind} at {file}", hint) from error
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{file} is not a {kind}: {error}") from error


def parse_record(document: Any, source: Path) -> RunRecord:
    """Validates one parsed document.

    Raises:
        RecordError: names the first key that is wrong.
    """
    if not isinstance(document, dict):
        raise RecordError(f"{source} is not a record: expected a JSON object")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{source} has schema_version {version!r}; this version reads {SCHEMA_VERSION}",
            "read it with the rlhf-canary that wrote it",
        )
    try:
        return RunRecord.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])[:200]
        if first["type"] == "extra_forbidden":
            raise RecordError(
                f"{source} has the key `{key}`, which this version does not know",
                "read it with the version that wrote it",
            ) from error
        raise RecordError(f"{source} is not a record: {key}: {first['msg']}") from error


def _correct(record: RunRecord, folder: RunFolder) -> RunRecord:
    """The record of a process that is gone: summarised from its rows, written back if possible."""
    assert record.owner is not None
    by_rank = RankSteps(folder.steps).read()
    rows = merged_rows(by_rank)
    close_launches(record, "interrupted")
    given = record.config.get("metrics_warmup_steps")
    warmup = given if isinstance(given, int) else 0
    corrected = summarise_ranks(record, by_rank, warmup)
    times = [row["time"] for row in rows if "time" in row]
    started = datetime.fromisoformat(record.timestamp).timestamp()
    corrected = corrected.model_copy(
        update={
            "status": "interrupted",
            "reason": f"the canary's process {record.owner.pid} ended without finishing the record "
            f"(killed, or the machine stopped) after step {rows[-1]['step'] if rows else 0}",
            "duration_seconds": max(
                record.duration_seconds, (times[-1] if times else started) - started
            ),
        }
    )
    if os.access(folder.path, os.W_OK):
        folder.finish(corrected)
        shutil.rmtree(folder.scratch, ignore_errors=True)
    return corrected
