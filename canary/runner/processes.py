"""The training processes of one launch, seen by their parent: which live, which failed first.

For a launch of one process it only adds at which line of code a timeout happened.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from canary.protocol.heartbeat import ASK, Frame, Pulse, main_thread, place, read_pulses, stack_path
from canary.protocol.job import Job, Result
from canary.record import jsonio
from canary.record.ranks import merged_exact, rank_files, rank_path

ASK_WAIT_S = 2.0
EXIT_CODE = re.compile(r"exitcode\s*:\s*(-?\d+)\)?\s*(?:local_rank: \d+ )?\(pid: (\d+)\)")
"""Torchrun's report of a process that failed."""


class RankFailure(NamedTuple):
    """A rank that did not complete; `moment` in seconds since the epoch."""

    moment: float
    rank: int
    result: Result | None


class RankProcesses:
    """Watches the ranks of one job on this machine."""

    def __init__(self, job: Job, log: Path) -> None:
        self._job = job
        self._scratch = Path(job.scratch_dir)
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        self._pulses: dict[int, Pulse] = {}
        self._alive_at: dict[int, float] = {}
        self._gone: set[int] = set()
        self._stacks: dict[int, list[Frame]] = {}
        self._asked = False
        self._read: set[Path] = set()

    def look(self) -> None:
        """Note which ranks are alive. Call it often: it decides which rank failed first."""
        if len(self._pulses) < self._expected():
            self._pulses = read_pulses(self._scratch)
        for rank, pulse in self._pulses.items():
            if rank not in self._gone and _is_alive(pulse.pid):
                self._alive_at[rank] = time.time()
            else:
                self._gone.add(rank)
        if len(self._pulses) > 1 and not self._asked and self._gave_up_waiting():
            self.ask()

    def _expected(self) -> int:
        return next((p.local_world_size for p in self._pulses.values()), 1)

    def _gave_up_waiting(self) -> bool:
        """Whether a rank failed because another did not answer: it is time to ask for stacks."""
        files = set(rank_files(Path(self._job.result_file)).values()) - self._read
        self._read |= files
        new = [result for file in files if (result := Result.read(file)) is not None]
        return any(result.failure == "timed out" for result in new)

    def ask(self) -> None:
        """Let every living rank write its stack, and read these stacks."""
        self._asked = True
        asked = [rank for rank, pulse in self._pulses.items() if _send(pulse.pid)]
        end = time.monotonic() + ASK_WAIT_S
        while time.monotonic() < end:
            texts = {rank: _text(stack_path(self._scratch, rank)) for rank in asked}
            if all(texts.values()):
                break
            time.sleep(0.05)
        time.sleep(0.05)  # the last of them may still be writing
        for rank in asked:
            self._stacks[rank] = main_thread(_text(stack_path(self._scratch, rank)))

    def complete(self) -> bool:
        """Whether every rank of this machine has written its result."""
        files = rank_files(Path(self._job.result_file))
        return bool(self._pulses) and len(files) >= self._expected()

    def facts(self) -> dict[str, int]:
        """Return `{world_size, nodes}` of a launch of several ranks, {} for one rank."""
        pulse = next(iter(self._pulses.values()), None)
        if pulse is None or pulse.world_size < 2:
            return {}
        return {"world_size": pulse.world_size, "nodes": pulse.nodes}

    def local_ranks(self) -> list[int]:
        """Return the ranks of this machine that have started."""
        return sorted(self._pulses)

    def outcome(self) -> Result | None:
        """Return the result of an ended launch, merged from its ranks; None without any result."""
        self._pulses = read_pulses(self._scratch)
        files = rank_files(Path(self._job.result_file))
        found = {rank: Result.read(file) for rank, file in files.items()}
        results = {rank: result for rank, result in found.items() if result is not None}
        facts = self.facts()
        if not facts:
            return results.get(0)
        failures = self._failures(results)
        if failures:
            first = min(failures, key=lambda failure: failure[:2])
            return replace(self._explained(first), ranks=facts | {"failed_rank": first.rank})
        if not results:
            return None
        lead = results[min(results)]
        exact = merged_exact({rank: result.exact for rank, result in results.items()})
        return replace(lead, exact=exact, ranks=facts)

    def _failures(self, results: Mapping[int, Result]) -> list[RankFailure]:
        """Return the ranks of this machine that did not complete; interrupted ranks only if no
        other rank failed: torchrun interrupts the rest."""
        found: list[RankFailure] = []
        for rank in self._pulses:
            result = results.get(rank)
            if result is None:
                found.append(RankFailure(self._alive_at.get(rank, 0.0), rank, None))
            elif result.status != "completed":
                file = rank_path(Path(self._job.result_file), rank)
                found.append(RankFailure(file.stat().st_mtime, rank, result))
        causes = [f for f in found if f.result is None or f.result.status != "interrupted"]
        return causes or found

    def _explained(self, failure: RankFailure) -> Result:
        after = self.how_far(failure.rank)
        if failure.result is None:
            pid = self._pulses[failure.rank].pid
            codes = (int(code) for code, of in EXIT_CODE.findall(self.printed()) if int(of) == pid)
            code = next(codes, None)
            reason, hint = death_words(code)
            words = f"rank {failure.rank} {reason} {after}"
            return Result(status="failed", reason=words, hint=hint, see_log=True)
        result = failure.result
        if result.usage_error:
            return result  # the same on every rank
        if result.failure == "timed out" and self._asked:
            where = self.where_it_hangs()
            if where:
                return replace(result, reason=f"rank {failure.rank}: {result.reason}; {where}")
        remedy = result.hint
        if self._pulses[failure.rank].nodes > 1 and remedy is None:
            remedy = "a rank on another machine may have failed first: see the record there"
        words = f"rank {failure.rank} failed {after}: {result.reason}"
        return replace(result, reason=words, hint=remedy)

    def printed(self) -> str:
        """Return this launch's part of the log."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as stream:
            stream.seek(self._log_start)
            return stream.read().decode(errors="replace")

    def where_it_hangs(self) -> str:
        """Return where the ranks are that wrote their stacks, "" if none did."""
        places = {rank: place(stack) for rank, stack in self._stacks.items() if stack}
        if len(self._stacks) < 2:
            return "".join(f"it is at {where}" for where in places.values())
        return "; ".join(f"rank {rank} is at {where}" for rank, where in places.items())

    def how_far(self, rank: int = 0) -> str:
        """Return how many steps a rank has done, in words."""
        written = jsonio.read_rows(rank_path(Path(self._job.rows_file), rank))
        rows = [row for row in written if row["launch"] == self._job.launch]
        return f"after step {rows[-1]['step']}" if rows else "before its first step"


def death_words(code: int | None) -> tuple[str, str | None]:
    """Return what happened to a process that wrote no result, and what to do."""
    if code == -signal.SIGKILL:
        return (
            "was killed (SIGKILL)",
            "usually by the system's out-of-memory killer: look at its log and at "
            "memory.peak_rss_bytes",
        )
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}", None
    if code is not None:
        return f"exited with code {code} and wrote no result", None
    return "exited and wrote no result", None


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _send(pid: int) -> bool:
    """Whether the process was there to get the signal."""
    try:
        psutil.Process(pid).send_signal(ASK)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    return True


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
