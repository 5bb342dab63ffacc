"""Runs a job in a child process on this machine and ends the whole process tree on a timeout."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from canary.machine.program import module
from canary.protocol.job import EXIT_DISK_FULL, PARENT, Job, Listener, Result, disk_full, unwritten
from canary.record import jsonio
from canary.record.ranks import rank_files, rank_path
from canary.record.step_row import Row
from canary.runner.exec.streams import log_only
from canary.runner.processes import RankProcesses, death_words
from canary.runner.warm import Child, warm_child, without_warm_start

POLL_S = 0.05
GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class StepTail:
    """Reads rows as they are appended, of the lowest rank on this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = {rank: file.stat().st_size for rank, file in rank_files(path).items()}

    def new_rows(self, ranks: Sequence[int] = ()) -> list[Row]:
        """Return the rows since the last call; a line still being written waits for the next."""
        rank = min(ranks, default=0)
        path = rank_path(self._path, rank)
        rows, self._offsets[rank] = jsonio.rows_since(path, self._offsets.get(rank, 0))
        return rows


WORKER = (sys.executable, *module("canary.training.worker"))


class LocalRunner:
    """The runner for one process on this machine."""

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str],
        *,
        command: tuple[str, ...] = WORKER,
        on_start: Callable[[int], None] | None = None,
    ) -> None:
        self._log = log
        self._environment = dict(environment)
        self._command = command
        self._on_start = on_start

    def run(self, job: Job, listener: Listener, deadline: float) -> Result:
        """Run the job; `deadline` is in the time of `time.monotonic()`.

        Raises:
            KeyboardInterrupt: after the process tree was ended.
        """
        job_file = Path(job.result_file).with_suffix(".job.json")
        job.write(job_file)
        tail = StepTail(Path(job.rows_file))
        watch = RankProcesses(job, self._log)
        started = time.monotonic()

        def waiting() -> bool:
            listener.waiting()
            return time.monotonic() < deadline

        with self._child(job, job_file, waiting) as child:
            if self._on_start is not None:
                self._on_start(child.pid)
            try:
                timed_out = self._follow(child, job, tail, watch, listener, deadline)
                if timed_out:
                    watch.ask()
            finally:
                self._tidy(child)
        for row in tail.new_rows(watch.local_ranks()):
            listener.step_ended(row)
        if timed_out:
            return self._timed_out(time.monotonic() - started, watch)
        return _as_recorded(job, job_file, self._outcome(job, child.returncode, watch))

    @contextlib.contextmanager
    def _child(self, job: Job, job_file: Path, waiting: Callable[[], bool]) -> Iterator[Child]:
        """Yield the started process; close its files at the end."""
        environment = without_warm_start(self._environment) | {PARENT: str(os.getpid())}
        if self._command == WORKER:
            with self._log.open("ab") as log:
                warm = warm_child(job_file, environment, log, waiting)
            if warm is not None:
                with contextlib.closing(warm):
                    yield warm
                return
        words = [*self._command, str(job_file)]
        with log_only(words, environment, self._log) as child:
            yield child

    def _is_over(self, job: Job, watch: RankProcesses) -> bool:
        """Whether the launch is over although its process still runs."""
        return False

    def _tidy(self, child: Child) -> None:
        end_tree(child)

    def _timed_out(self, seconds: float, watch: RankProcesses) -> Result:
        reason = f"the training hit the timeout after {seconds:.0f} s"
        where = watch.where_it_hangs()
        return Result(
            status="timeout",
            reason=f"{reason}; {where}" if where else reason,
            hint="raise `timeout`, or lower max_steps",
            ranks=watch.facts(),
            wall_seconds=seconds,
        )

    def _outcome(self, job: Job, returncode: int | None, watch: RankProcesses) -> Result:
        """Return how the launch ended, once its process is gone."""
        return watch.outcome() or died(returncode)

    def _follow(
        self,
        child: Child,
        job: Job,
        tail: StepTail,
        watch: RankProcesses,
        listener: Listener,
        deadline: float,
    ) -> bool:
        """Report rows until the child ends. Return True if the deadline came first."""
        while child.poll() is None and not self._is_over(job, watch):
            watch.look()
            for row in tail.new_rows(watch.local_ranks()):
                listener.step_ended(row)
            listener.waiting()
            if time.monotonic() > deadline:
                return True
            time.sleep(POLL_S)
        return False


def _as_recorded(job: Job, job_file: Path, result: Result) -> Result:
    """Return `result`, changed if the record was removed or could not be written completely."""
    if not job_file.is_file():
        reason = "the run's folder was removed while the command ran"
        return Result(status="failed", reason=reason, command_code=result.command_code)
    if not unwritten(job).exists():
        return result
    why = unwritten(job).read_text(encoding="utf-8") or "no space left on its disk"
    reason = f"the canary stopped recording before the training ended: {why}"
    if result.status != "completed" and rank_files(Path(job.result_file)):
        return replace(result, notes=(*result.notes, reason))
    hint = "free some space, or choose another folder with -o"
    return replace(result, status="failed", reason=reason, hint=hint, usage_error=False)


def died(returncode: int | None) -> Result:
    """Return the result of a child that wrote none."""
    if returncode == EXIT_DISK_FULL:
        return disk_full()
    reason, hint = death_words(returncode)
    reason = f"the training process {reason}"
    return Result(status="failed", reason=reason, hint=hint, see_log=hint is None)


def end_tree(child: Child, *, ask: bool = True) -> None:
    """End the child and all that it started: first by SIGTERM if `ask`, then by SIGKILL."""
    family = _family(child.pid)
    if not ask and child.poll() is None:
        child.kill()  # before its children: a shell would go on with its next command
    elif child.poll() is None:
        _signal(family, signal.SIGTERM)
        _, family = psutil.wait_procs(family, timeout=GRACE_S)
    _signal([member for member in family if member.pid != child.pid], signal.SIGKILL)
    if child.poll() is None:
        child.kill()
    child.wait()


def _family(pid: int) -> list[psutil.Process]:
    """Return the process, its descendants, and the other processes of its session."""
    members: dict[int, psutil.Process] = {}
    try:
        root = psutil.Process(pid)
        members = {member.pid: member for member in [root, *root.children(recursive=True)]}
    except psutil.NoSuchProcess:
        pass
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid:
                members[process.pid] = process
        except (ProcessLookupError, PermissionError):
            continue
    return list(members.values())


def _signal(members: list[psutil.Process], number: signal.Signals) -> None:
    for member in members:
        try:
            member.send_signal(number)
        except psutil.NoSuchProcess:
            continue
