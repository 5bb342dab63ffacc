"""Runs a user's own training command, unmodified, with the canary attached to its trainer."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from canary.errors import InputError
from canary.runner.base import Job, Result
from canary.runner.local import LocalRunner, died
from canary.runner.streams import Streams
from canary.runner.watching import RankWatch

SITE = Path(__file__).parents[1] / "attach" / "site"
DEAF = {
    "-I": "isolated from its environment",
    "-S": "without the site module",
    "-E": "ignoring its environment",
}
"""Options of Python that keep the canary out, and what they do."""


def attached_environment(
    base: Mapping[str, str], job: Job, job_file: Path, marks: Path
) -> dict[str, str]:
    """The user's environment with what attaches the canary. A launch that is cut short keeps
    trackers from uploading; the probe asks for repeatable kernels and hashes."""
    environment = dict(base)
    path = environment.get("PYTHONPATH")
    environment |= {
        "PYTHONPATH": f"{SITE}{os.pathsep}{path}" if path else str(SITE),
        "CANARY_JOB": str(job_file),
        "CANARY_MARKS": str(marks),
        "CANARY_PARENT": str(os.getpid()),
    }
    if job.stop_after is not None:
        environment |= {"WANDB_MODE": "offline", "HF_HUB_DISABLE_TELEMETRY": "1"}
    if job.threads is not None:
        environment |= {"OMP_NUM_THREADS": str(job.threads), "MKL_NUM_THREADS": str(job.threads)}
    if job.kind == "probe":
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        environment.setdefault("PYTHONHASHSEED", "0")
    return environment


class CommandRunner(LocalRunner):
    """The runner for a command of the user's own."""

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str],
        words: Sequence[str],
        streams: Streams,
        on_start: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(log, environment, command=tuple(words), on_start=on_start)
        self._streams = streams

    @contextlib.contextmanager
    def _child(self, job: Job, job_file: Path) -> Iterator[subprocess.Popen[bytes]]:
        marks = _marks(job)
        marks.mkdir(exist_ok=True)
        environment = attached_environment(self._environment, job, job_file, marks)
        with contextlib.ExitStack() as stack:
            try:
                yield stack.enter_context(
                    self._streams.started(list(self._command), environment, self._log)
                )
            except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
                if error.filename != self._command[0]:
                    raise
                raise InputError(
                    f"cannot start {self._command[0]}: {error.strerror}",
                    "name a program that is on PATH, or its file",
                ) from error

    def _tidy(self, child: subprocess.Popen[bytes]) -> None:
        """What the command itself left running is the user's; what must end early ends whole."""
        if child.poll() is None:
            super()._tidy(child)

    def _outcome(self, job: Job, returncode: int | None, watch: RankWatch) -> Result:
        result = watch.outcome()
        if result is None:
            result = self._without_result(job, returncode)
        elif result.status == "completed" and returncode:
            result = replace(
                result,
                status="failed",
                reason=f"the training ended well, and the command after it with code {returncode}",
                hint="see log.txt",
            )
        return replace(result, command_code=returncode)

    def _without_result(self, job: Job, returncode: int | None) -> Result:
        if any(Path(job.scratch_dir).glob("claim*")):
            return died(returncode)
        if returncode:
            return Result(
                status="failed",
                reason=f"the command ended with code {returncode} before it trained",
                hint="see log.txt",
            )
        reason, hint = self._why_untrained(job)
        return Result(status="failed", reason=reason, hint=hint, usage_error=True)

    def _why_untrained(self, job: Job) -> tuple[str, str]:
        """What kept the canary from seeing a training, from the marks that each Python left."""
        shown = shlex.join(self._command)
        marks = _marks(job)
        foreign = next(marks.glob("foreign.*"), None)
        if foreign is not None:
            return (
                f"a package called canary ({foreign.read_text()}) hides the canary's own",
                "rename it, or take its folder off PYTHONPATH",
            )
        if any(marks.glob("hooked.*")):
            return (
                f"the command never trained: transformers.Trainer was imported and its train() "
                f"not called: {shown}",
                "name the command that trains, or use canary.Recorder in a loop of your own",
            )
        if any(marks.glob("seen.*")):
            return (
                f"the command never trained: no transformers.Trainer in it: {shown}",
                "name the command that trains, or use canary.Recorder in a loop of your own"
                + _deaf_words(self._command),
            )
        return (
            f"no Python of this command could be watched: {shown}",
            "a Python started with -I, -S or -E, or with a cleared PYTHONPATH, does not let the "
            "canary in: start it without" + _deaf_words(self._command),
        )


def _deaf_words(command: Sequence[str]) -> str:
    found = next((word for word in command if word in DEAF), None)
    return f"; here {found} starts it {DEAF[found]}" if found else ""


def _marks(job: Job) -> Path:
    return Path(job.scratch_dir) / "marks"
