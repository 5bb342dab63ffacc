"""Repeats a user's command: the first launch runs all of it, further ones only its training."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from canary.machine.program import module
from canary.protocol.job import Job, Kind, Result
from canary.record.folder import RunFolder, close_launches
from canary.record.jsonio import read_rows
from canary.runner.exec.command import marks_of
from canary.runner.exec.free_paths import IS_COPY, STARTED_IN
from canary.runner.exec.left_files import TRAINING, Refused
from canary.runner.exec.put_back import put_back
from canary.runner.exec.set_aside import end_processes, require_ended
from canary.runner.exec.start_command import Start, read_start
from canary.runner.session import Session

PLACE = "set-aside"
"""The folder in the run's folder for notes, and for the user's files during a further launch."""


class UserFiles:
    """The user's files over the launches of one run. Each launch notes its changes. The later ones
    start from the same files as the first, and their changes are undone."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._root = session.folder.path / PLACE
        self._first_marks: str | None = None
        self.start: Start | None = None
        """How the training process was started; None before the first launch ended."""
        # Without a measured launch, the probe counts as the second launch, so it is undone too.
        self._before = 0 if session.config.repeats else 1

    def folder_of(self, launch: int) -> Path:
        """Return the folder for the notes of a launch's processes."""
        return self._root / f"launch{launch + self._before}"

    @contextlib.contextmanager
    def around(self, job: Job) -> Iterator[None]:
        """Protect the user's files during one launch.

        Raises:
            Refused: this launch could change what the first one left; nothing was moved.
        """
        folder = self.folder_of(job.launch)
        folder.mkdir(parents=True)
        copied = self._session.copied
        (folder / STARTED_IN).write_text(str(copied or Path.cwd()))
        if copied is not None:
            (folder / IS_COPY).touch()
        if not job.launch + self._before:
            self._first_marks = str(marks_of(job))
            yield
            root = _training(job)
            if root is not None:
                (folder / TRAINING).write_text(str(root))
                self.start = read_start(str(marks_of(job)), root)
            return
        if self._first_marks is not None:
            require_ended(self._first_marks)
            _require_repeatable(self.start, Path(self._first_marks))
        marks = str(marks_of(job))
        words = [str(self._root), str(job.launch + self._before), marks]
        with subprocess.Popen(
            [sys.executable, *module("canary.runner.exec.set_aside"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as mover:
            try:
                answer = _answer(mover)
                if "ready" not in answer:
                    raise Refused(answer.get("refused", "the process that moves files ended"))
                yield
            finally:
                assert mover.stdin is not None
                with contextlib.suppress(OSError):
                    mover.stdin.close()
                notes = _answer(mover, last=True).get("notes")
                if notes is None:  # it refused, or was ended
                    end_processes(marks)
                    notes = put_back(self._root)
                self._session.record.notes += notes


def _training(job: Job) -> int | None:
    """Return the pid of the first Python process in the chain that led to the training; None if
    nothing trained, or if another program started several ranks."""
    found = set()
    for claim in Path(job.scratch_dir).glob("claim*"):
        seen = marks_of(job) / f"seen.{claim.read_text()}"
        found.add(seen.read_text().splitlines()[0] if seen.exists() else None)
    root = found.pop() if len(found) == 1 else None
    return None if root is None else int(root)


DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/")
"""A shell's words for `<(program)`."""


def _require_repeatable(start: Start | None, marks: Path) -> None:
    """Raise Refused if the training process cannot be started alone, or if the first launch could
    not note all its changes."""
    unnoted = next(marks.glob("unnoted.*"), None)
    if unnoted is not None:
        why = unnoted.read_text(encoding="utf-8")
        raise Refused(f"the canary could not note what the command changes: {why}")
    if start is None:
        raise Refused("the canary does not know which process to start again")
    if start.stdin is None:
        raise Refused("the training reads its standard input from another program")
    piped = next((word for word in start.words if word.startswith(DESCRIPTORS)), None)
    if piped is not None:
        raise Refused(f"the training reads {piped} from another program")


def forget_files(folder: RunFolder) -> None:
    """Remove the kept files, unless some could not be put back."""
    root = folder.path / PLACE
    if not (root / "journal").exists():
        for kept in root.glob("launch*"):
            shutil.rmtree(kept, ignore_errors=True)
        with contextlib.suppress(OSError):
            root.rmdir()


def _answer(mover: subprocess.Popen[str], *, last: bool = False) -> dict[str, Any]:
    """Return the next message of the mover, or its last one once it ended; {} without any."""
    assert mover.stdout is not None
    lines = mover.stdout.readlines() if last else [mover.stdout.readline()]
    return dict(json.loads(lines[-1])) if lines and lines[-1] else {}


def ended_badly_after_training(result: Result) -> bool:
    """Whether a command failed after its training completed: its probe is still useful."""
    return result.status == "failed" and bool(result.training) and bool(result.command_code)


def not_run(session: Session, kind: Kind, why: Refused) -> None:
    """Record that a launch was left out, as it could have changed what the first one wrote."""
    record = session.record
    words = "the probe was not run" if kind == "probe" else "the command was not run again"
    if session.config.probe_steps:
        record.unmeasured["exact"] = f"{words}: {why}"
    record.notes.append(f"{words}: {why}")


class ProbeStopped(KeyboardInterrupt):
    """The probe of a user's command was interrupted; `measured` is the command's result."""

    def __init__(self, measured: Result) -> None:
        super().__init__()
        self.measured = measured


def stopped_probe(session: Session, measured: Result) -> Result:
    """Return the result after an interrupted probe: the command's, without exact signals."""
    close_launches(session.record, "interrupted")
    session.record.unmeasured["exact"] = "the probe was interrupted"
    session.record.notes.append("no exact signals: the probe was interrupted")
    reason = "the probe was interrupted; the record has no exact signals"
    return Result("interrupted", reason, command_code=measured.command_code or 0)


def without_probe(session: Session, kind: Kind, result: Result) -> bool:
    """Whether only the probe of a user's command failed; records why exact signals are missing."""
    config = session.config
    is_users = config.training_type == "exec" and kind == "probe" and bool(config.repeats)
    reason = result.reason if result.status != "completed" else _other_start(session)
    if not is_users or reason is None:
        return False
    session.record.unmeasured["exact"] = f"the probe gave no result: {reason}"
    hint = f" ({result.hint})" if result.hint else ""
    session.record.notes.append(f"no exact signals: the probe gave no result: {reason}{hint}")
    return True


def _other_start(session: Session) -> str | None:
    """Return why a probe does not start at the first launch's first step, None if it does."""
    files = (session.folder.steps, session.folder.probe_steps)
    began = [next((row["step"] for row in read_rows(file)), None) for file in files]
    if began[0] == began[1]:
        return None
    if began[1] is None:
        return "it trained no step"
    return (
        f"it began at step {began[1]} and the first launch at step {began[0]}: it continued from "
        "files of the first launch that the canary does not track"
    )
