"""Runs a user's training command, unmodified, with the canary attached to its trainer."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from canary.config.redaction import hidden
from canary.errors import InputError, Stopped
from canary.protocol.failure import failure_of, last_words
from canary.protocol.job import JOB, PARENT, TORCH_LOOP, Job, Listener, Result, begun_path
from canary.record.ranks import rank_files, rank_path
from canary.runner.exec.streams import Start
from canary.runner.local import LocalRunner, StepTail, died, end_tree
from canary.runner.processes import RankProcesses
from canary.runner.warm import Child

MARKS = "_RLHF_CANARY_MARKS"
"""Environment variable with the folder where the processes of a launch mark how far they came."""
SITE = Path(__file__).parents[2] / "training" / "attach" / "site"
END_S = 60.0
"""Seconds that a command has to end by itself after a signal."""
NO_PROGRAM = "give a program on PATH or an executable file; start a script with python or bash"
WANDB_DRYRUN = "dryrun"
"""wandb's older name of `offline`: at `offline`, transformers prints a line on standard output."""
WANDB_LOCAL = (WANDB_DRYRUN, "offline", "disabled")
"""Modes in which wandb sends nothing."""

SEEN_SO_FAR = {
    "optimizer": "it made a torch optimizer, but called neither backward nor the optimizer's step",
    "hooked": "it imported transformers.Trainer but did not call train(), and it made no torch "
    "optimizer",
    "torch": "it imported torch, but made no torch optimizer and called no Trainer",
    "seen": "none of its Python processes imported torch",
}
"""How far the processes of a command came by their marks, from far to near, without training."""
TRAINS = (
    "give the command that trains, or use canary.Recorder in your training loop; the canary cannot "
    "watch a Python started with -I, -S or -E"
)
NO_RESULT = Result(status="failed")
BY_HAND = "use canary.Recorder in this loop, because it changes its parameters itself"


def attached_environment(
    base: Mapping[str, str], job: Job, job_file: Path, marks: Path
) -> dict[str, str]:
    """Return the user's environment with variables that attach the canary. If the training is cut
    short, trackers upload nothing."""
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
        if job.exact:
            environment["WANDB_MODE"] = "disabled"
        elif environment.get("WANDB_MODE") not in WANDB_LOCAL:
            environment["WANDB_MODE"] = WANDB_DRYRUN
    if job.threads is not None:
        environment |= {"OMP_NUM_THREADS": str(job.threads), "MKL_NUM_THREADS": str(job.threads)}
    return environment


class CommandRunner(LocalRunner):
    """The runner for a user's command."""

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str],
        words: Sequence[str],
        start: Start,
        on_start: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(log, environment, command=tuple(words), on_start=on_start)
        self._start = start
        self._look_over = False

    @contextlib.contextmanager
    def _child(self, job: Job, job_file: Path, waiting: Callable[[], bool]) -> Iterator[Child]:
        environment = self._surroundings(job, job_file)
        program = self._command[0]
        with contextlib.ExitStack() as stack:
            try:
                started = self._start(list(self._command), environment, self._log)
                child = stack.enter_context(started)
            except OSError as error:
                if error.filename != program:
                    raise
                raise InputError(f"cannot start {program}: {error.strerror}", NO_PROGRAM) from error
            yield child

    def _surroundings(self, job: Job, job_file: Path) -> dict[str, str]:
        """Return the command's environment, with the canary attached."""
        marks = marks_of(job)
        marks.mkdir(exist_ok=True)
        return attached_environment(self._environment, job, job_file, marks)

    def _follow(
        self,
        child: Child,
        job: Job,
        tail: StepTail,
        watch: RankProcesses,
        listener: Listener,
        deadline: float,
    ) -> bool:
        """Follow as usual, and pass signals on to the command."""
        assert isinstance(child, subprocess.Popen)
        with _passed_on(child):
            try:
                return super()._follow(child, job, tail, watch, listener, deadline)
            except Stopped as stopped:
                raise Stopped(stopped.number, _ended_by(child, stopped.number)) from stopped

    def _is_over(self, job: Job, watch: RankProcesses) -> bool:
        """Whether a training that is only looked at has written all results. A failed one ends by
        itself, and so does one that its process's end has ended."""
        ended = watch.outcome() if job.exact and watch.complete() else None
        self._look_over = ended is not None and ended.status == "completed" and not ended.exits
        return self._look_over

    def _tidy(self, child: Child) -> None:
        """End a command that still runs, with all that it started. After the look it is killed at
        once: no handler runs. A command that ended keeps its background processes."""
        if child.poll() is None:
            end_tree(child, ask=not self._look_over)

    def _outcome(self, job: Job, returncode: int | None, watch: RankProcesses) -> Result:
        if returncode == 0:
            _use_begun_results(job)
        result = watch.outcome()
        if result is None:
            result = self._without_result(job, returncode, watch)
        elif job.exact and result.status == "completed" and not (result.exits and returncode):
            return result  # the command's code after its training did not run
        elif result.status == "completed" and returncode and result.training.get("cut"):
            note = (
                f"the command exited with code {returncode} after the canary ended its training: "
                "it may have looked for files of a whole one"
            )
            return replace(result, notes=(*result.notes, note), command_code=0)
        elif result.status == "completed" and returncode:
            # A loop may have been left by an exit: only a Trainer or a Recorder knows its end.
            known = result.training.get("trainer") != TORCH_LOOP
            trained = "the training completed, then " if known else f"{watch.how_far()}, "
            result = exited(returncode, watch, trained, of=result)
        return replace(result, command_code=returncode)

    def _without_result(self, job: Job, returncode: int | None, watch: RankProcesses) -> Result:
        if any(Path(job.scratch_dir).glob("claim*")):
            return died(returncode)
        if returncode:
            ended = exited(returncode, watch, when=" before training")
            return replace(ended, hint=_interpreter(job))
        reason, hint = self._why_untrained(job)
        if words := last_words(watch.printed()):
            reason += f"; its last line was: {words}"
        return Result(status="failed", reason=reason, hint=hint, usage_error=True)

    def _why_untrained(self, job: Job) -> tuple[str, str]:
        """Return why the canary saw no training, and a remedy, from the marks of each Python."""
        shown = shlex.join(hidden(self._command))
        marks = marks_of(job)
        foreign = next(marks.glob("foreign.*"), None)
        if foreign is not None:
            return (
                f"another package called canary ({foreign.read_text()}) hides the canary's package",
                "rename it, or remove its folder from PYTHONPATH",
            )
        broken = next(marks.glob("broken.*"), None)
        if broken is not None:
            why = broken.read_text()
            lacks = re.search("No module named '([^'.]+)", why)
            hint = f"install {lacks[1]} beside its torch" if lacks else "please report it"
            return f"the canary cannot watch this command: {why}", hint
        if not any(marks.glob("optimizer.*")) and (backwards := _backwards(marks)):
            return f"no optimizer step was seen: {backwards}: {shown}", BY_HAND
        for mark, found in SEEN_SO_FAR.items():
            if any(marks.glob(f"{mark}.*")):
                return f"the command never trained: {found}: {shown}", TRAINS
        return (
            f"the command never trained, or the canary could not watch it: {shown}",
            "the canary cannot watch a Python started with -I, -S or -E, or one whose PYTHONPATH a "
            "script replaced: write PYTHONPATH=src:$PYTHONPATH there",
        )


@contextlib.contextmanager
def _passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass on signals that a cluster sends to a training."""
    before = {}
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        with contextlib.suppress(ValueError):  # outside the main thread, which gets the signals
            before[number] = signal.signal(number, lambda got, _: child.send_signal(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended_by(child: subprocess.Popen[bytes], number: int) -> int | None:
    """Pass on the signal that ends the canary, and give the command time to end; a second signal
    cuts the wait short. Return its exit code, None if it still runs."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
    try:
        return child.wait(END_S)
    except subprocess.TimeoutExpired:
        return None


def _backwards(marks: Path) -> str:
    """Return how often the processes of a command ran backward without an optimizer, in words;
    empty if none did."""
    left = [mark.read_text(encoding="utf-8") for mark in marks.glob("backward.*")]
    if not left:
        return ""
    # A process that ended at once wrote no count.
    count = max((int(text) for text in left if text.isdigit()), default=0)
    times = f" {count:,} times" if count > 1 else " once" if count else ""
    return f"backward ran{times}, but no torch optimizer was made and no Trainer was called"


def exited(
    code: int,
    watch: RankProcesses,
    before: str = "",
    when: str = "",
    of: Result = NO_RESULT,
) -> Result:
    """Return the result of a command that ended with an error, with its last line. `of`: what its
    training left."""
    words = last_words(watch.printed())
    reason = f"{before}the command exited with code {code}{when}{f': {words}' if words else ''}"
    failure = failure_of(words)
    return replace(of, status="failed", reason=reason, failure=failure, see_log=True)


def _interpreter(job: Job) -> str | None:
    """Return which Python ran: a missing package may be installed for another Python."""
    seen = sorted(marks_of(job).glob("seen.*"), key=lambda mark: mark.stat().st_mtime_ns)
    path = seen[-1].read_text(encoding="utf-8") if seen else ""
    return f"its Python is {path}" if path else None


def _use_begun_results(job: Job) -> None:
    """Take what ranks left after their first step as their results, if they left no other: another
    process of the command ended them, as Ray ends its workers."""
    for rank, begun in rank_files(begun_path(Path(job.result_file))).items():
        result = rank_path(Path(job.result_file), rank)
        if not result.exists():
            begun.replace(result)


def marks_of(job: Job) -> Path:
    """Return the folder where the processes of a launch mark how far they came."""
    return Path(job.scratch_dir) / "marks"
