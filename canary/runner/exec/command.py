"""Runs a user's own training command, unmodified, with the canary attached to its trainer."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from canary.config.redaction import hidden
from canary.errors import InputError, Stopped, did_you_mean, nearest
from canary.protocol.failure import failure_of, last_words
from canary.protocol.job import JOB, PARENT, Job, Listener, Result
from canary.runner.exec.file_notes import GUARD, MARKS, NOTE, VARIABLE
from canary.runner.exec.left_files import Refused
from canary.runner.exec.streams import Streams
from canary.runner.local import LocalRunner, StepTail, died, end_tree
from canary.runner.processes import RankProcesses
from canary.runner.warm import Child

SITE = Path(__file__).parents[2] / "training" / "attach" / "site"
LAST_WORDS_S = 60.0
"""Seconds that a command has for its own ending after a signal."""
USUAL = ("python3", "python", "torchrun", "accelerate", "trl")
"""Programs that start trainings."""
WANDB_UNHEARD = "dryrun"
"""wandb's older word for `offline`, at which transformers prints a line on standard output."""
WANDB_QUIET = (WANDB_UNHEARD, "offline", "disabled")
"""Modes in which wandb sends nothing."""


def attached_environment(
    base: Mapping[str, str], job: Job, job_file: Path, marks: Path
) -> dict[str, str]:
    """The user's environment with what attaches the canary. A launch that is cut short keeps
    trackers from uploading; the probe asks for repeatable kernels and hashes."""
    environment = dict(base)
    path = environment.get("PYTHONPATH")
    environment |= {
        "PYTHONPATH": f"{SITE}{os.pathsep}{path}" if path else str(SITE),
        JOB: str(job_file),
        MARKS: str(marks),
        PARENT: str(os.getpid()),
    }
    if job.stop_after is not None:
        environment["HF_HUB_DISABLE_TELEMETRY"] = "1"
        if job.kind == "probe":
            environment["WANDB_MODE"] = "disabled"
        elif environment.get("WANDB_MODE") not in WANDB_QUIET:
            environment["WANDB_MODE"] = WANDB_UNHEARD
    if job.threads is not None:
        environment |= {"OMP_NUM_THREADS": str(job.threads), "MKL_NUM_THREADS": str(job.threads)}
    environment.pop(VARIABLE, None)  # of a canary around this one
    if job.files is not None:
        wanted = GUARD if job.launch or job.kind == "probe" else NOTE
        environment[VARIABLE] = f"{wanted}:{job.files}"
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
        *,
        again: bool = False,
    ) -> None:
        """`again`: the words are those of a process that ran before; where it cannot be started,
        the run is none the worse."""
        super().__init__(log, environment, command=tuple(words), on_start=on_start)
        self._again = again
        self._streams = streams
        self._told = False

    @contextlib.contextmanager
    def _child(self, job: Job, job_file: Path, waiting: Callable[[], bool]) -> Iterator[Child]:
        marks = marks_of(job)
        marks.mkdir(exist_ok=True)
        environment = attached_environment(self._environment, job, job_file, marks)
        with contextlib.ExitStack() as stack:
            try:
                yield stack.enter_context(
                    self._streams.started(list(self._command), environment, self._log)
                )
            except OSError as error:
                if self._again:
                    why = f"{error.filename}: {error.strerror}"
                    raise Refused(f"what trained cannot be started again: {why}") from error
                if error.filename != self._command[0]:
                    raise
                raise InputError(
                    f"cannot start {self._command[0]}: {error.strerror}",
                    _other_program(self._command[0], error.errno),
                ) from error

    def _follow(
        self,
        child: Child,
        job: Job,
        tail: StepTail,
        watch: RankProcesses,
        listener: Listener,
        deadline: float,
    ) -> bool:
        """As ever; signals go on to the command."""
        with _passed_on(child):
            try:
                return super()._follow(child, job, tail, watch, listener, deadline)
            except Stopped as stopped:
                raise Stopped(stopped.number, _told_to_end(child, stopped.number)) from stopped

    def _is_over(self, job: Job, watch: RankProcesses) -> bool:
        """A probe that has told everything, or that was ended for what it was about to do."""
        self._told = job.kind == "probe" and (watch.complete() or _guarded(job) is not None)
        return self._told

    def _tidy(self, child: Child) -> None:
        """What the command itself left running is the user's; what must end early ends whole, and
        a probe that is over at once: nobody's handler saves anything."""
        if child.poll() is None:
            end_tree(child, ask=not self._told)

    def _outcome(self, job: Job, returncode: int | None, watch: RankProcesses) -> Result:
        result = watch.outcome()
        if result is None:
            result = self._without_result(job, returncode, watch)
        elif job.kind == "probe":
            return result  # what comes after its training was not run
        elif result.status == "completed" and returncode and result.training.get("cut"):
            note = (
                f"the command ended with code {returncode} after its training, which was ended "
                "early: it may have looked for what was not saved"
            )
            return replace(result, notes=(*result.notes, note), command_code=0)
        elif result.status == "completed" and returncode:
            words = last_words(watch.printed())
            result = replace(
                result,
                status="failed",
                reason="the training completed, then the command ended with code "
                f"{returncode}{_after(words)}",
                failure=failure_of(words),
                see_log=True,
            )
        return replace(result, command_code=returncode)

    def _without_result(self, job: Job, returncode: int | None, watch: RankProcesses) -> Result:
        guarded = _guarded(job)
        if guarded is not None:
            what, remedy = guarded
            reason = f"it was ended when it was about to {what}"
            if job.kind == "measured":
                raise Refused(reason)
            return Result(status="failed", reason=reason, hint=f"{remedy}, or use --no-probe")
        if any(Path(job.scratch_dir).glob("claim*")):
            return died(returncode)
        words = last_words(watch.printed())
        if returncode:
            return Result(
                status="failed",
                reason=f"the command ended with code {returncode} before it trained{_after(words)}",
                failure=failure_of(words),
                hint=_interpreter(job),
                see_log=True,
            )
        reason, hint = self._why_untrained(job)
        if words:
            reason += f"; it printed last{_after(words)}"
        return Result(status="failed", reason=reason, hint=hint, usage_error=True)

    def _why_untrained(self, job: Job) -> tuple[str, str]:
        """What kept the canary from seeing a training, from the marks that each Python left."""
        shown = shlex.join(hidden(self._command))
        marks = marks_of(job)
        foreign = next(marks.glob("foreign.*"), None)
        if foreign is not None:
            return (
                f"a package called canary ({foreign.read_text()}) hides the canary's own",
                "rename it, or take its folder off PYTHONPATH",
            )
        broken = next(marks.glob("broken.*"), None)
        if broken is not None:
            return f"the canary cannot watch this command: {broken.read_text()}", "please report it"
        if any(marks.glob("hooked.*")):
            return (
                f"the command never trained: transformers.Trainer was imported and its train() "
                f"not called: {shown}",
                "name the command that trains, or use canary.Recorder in a loop of your own",
            )
        if any(marks.glob("seen.*")):
            return (
                f"the command never trained: no transformers.Trainer in it: {shown}",
                "name the command that trains, or use canary.Recorder in a loop of your own; a "
                "Python started with -I, -S or -E is not seen",
            )
        return (
            f"the command never trained, or no Python of it could be watched: {shown}",
            "a Python started with -I, -S or -E does not let the canary in, nor does one whose "
            "PYTHONPATH a script replaced: write PYTHONPATH=src:$PYTHONPATH there",
        )


@contextlib.contextmanager
def _passed_on(child: Child) -> Iterator[None]:
    """Signals that mean something to a training (a cluster's notice) reach the command."""
    before = {}
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        with contextlib.suppress(ValueError):  # not in the main thread: nobody signals there
            before[number] = signal.signal(number, lambda got, _: child.send_signal(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told_to_end(child: Child, number: int) -> int | None:
    """The command gets the signal that the canary got, as it would have alone, and time for what it
    does about it; a second signal cuts that short. Returns its exit code, None where it stayed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
    try:
        return child.wait(LAST_WORDS_S)
    except subprocess.TimeoutExpired:
        return None


def _other_program(name: str, number: int | None) -> str:
    """What to do about a program that cannot be started, by the number of the error."""
    if number == errno.EACCES and Path(name).is_file():
        return f"make it executable (chmod +x {name}), or start it with python or bash"
    if number == errno.ENOEXEC:
        return (
            "let its first line name an interpreter (#!/bin/bash), or start it with python or bash"
        )
    usual = [program for program in USUAL if shutil.which(program)]
    near = did_you_mean(nearest(Path(name).name, usual))
    remedy = "name a program on PATH, or give the path of its file"
    return f"{near} Or {remedy}" if near else remedy


def _after(words: str) -> str:
    """What the command said last, to be put after what is said of it."""
    return f": {words}" if words else ""


def _interpreter(job: Job) -> str | None:
    """Which Python it was: a package that is missing may be there for another one."""
    seen = sorted(marks_of(job).glob("seen.*"), key=lambda mark: mark.stat().st_mtime_ns)
    path = seen[-1].read_text(encoding="utf-8").partition("\n")[2] if seen else ""
    return f"its Python is {path}" if path else None


def _guarded(job: Job) -> tuple[str, str] | None:
    """What a launch was ended for and what to do about it, in words of
    `canary.runner.exec.file_notes`."""
    mark = next(marks_of(job).glob("guarded.*"), None)
    text = "" if mark is None else mark.read_text(encoding="utf-8")
    what, sign, remedy = text.partition("\n")
    return (what, remedy) if sign else None


def marks_of(job: Job) -> Path:
    """Where the processes of a launch leave marks of how far they came."""
    return Path(job.scratch_dir) / "marks"
