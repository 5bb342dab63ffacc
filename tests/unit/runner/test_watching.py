"""Which of several ranks fell first, and where the others stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from canary.protocol.heartbeat import Frame, Pulse, main_thread, place, pulse_path
from canary.protocol.job import Job, Result
from canary.record.types import Failure
from canary.runner.child_environment import fewer_than_asked
from canary.runner.processes import RankProcesses

SLEEPER = "import time\ntime.sleep(60)"
# What a rank does at its start, and then nothing any more.
STUCK = """
import sys, time
from pathlib import Path
from canary.protocol.heartbeat import leave_pulse
leave_pulse(Path(sys.argv[1]), 1, 1)
def stand_still():
    Path(sys.argv[1], "stands").touch()
    time.sleep(60)
stand_still()
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(
        launch=1,
        config_file="",
        rows_file=str(tmp_path / "steps.jsonl"),
        result_file=str(tmp_path / "launch1.result.json"),
        scratch_dir=str(tmp_path),
        cache_dir="",
        rows_dir="",
    )


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that stand for ranks."""
    found = [subprocess.Popen([sys.executable, "-c", SLEEPER]) for _ in range(2)]
    yield found
    for process in found:
        process.kill()
        process.wait()


def begin(job: Job, pids: list[int]) -> None:
    for rank, pid in enumerate(pids):
        pulse = Pulse(rank, pid, world_size=len(pids), local_world_size=len(pids))
        pulse_path(Path(job.scratch_dir), rank).write_text(json.dumps(asdict(pulse)))


def log_of(job: Job, text: str = "") -> Path:
    log = Path(job.scratch_dir) / "log.txt"
    log.write_text(text)
    return log


def test_the_rank_that_was_killed_is_named_and_not_the_one_that_lost_it(
    job: Job, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    log = log_of(job)
    begin(job, [process.pid for process in sleepers])
    watch = RankProcesses(job, log)
    watch.look()
    sleepers[1].kill()
    sleepers[1].wait()
    time.sleep(0.05)
    lost = Result(status="failed", reason="RuntimeError: Connection closed by peer")
    lost.write(Path(job.result_file))
    watch.look()
    log.write_text(f"E1 failed (exitcode: -9) local_rank: 1 (pid: {sleepers[1].pid}) of binary: p")
    found = watch.outcome()
    assert found is not None
    assert found.reason == "rank 1 was killed (SIGKILL) before its first step"
    assert found.ranks == {"world_size": 2, "nodes": 1, "failed_rank": 1}


def test_the_first_to_fail_is_named_and_one_that_was_told_to_end_is_not(
    job: Job, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    log = log_of(job)
    begin(job, [process.pid for process in sleepers])
    watch = RankProcesses(job, log)
    watch.look()
    told = Path(job.result_file)
    Result(status="interrupted", reason="the training was interrupted").write(told)
    os.utime(told, (1, 1))
    other = told.with_name("launch1.result.rank1.json")
    Result(status="failed", reason="ValueError: no good").write(other)
    watch.look()
    found = watch.outcome()
    assert found is not None
    assert found.reason == "rank 1 failed before its first step: ValueError: no good"


def test_a_rank_that_stands_still_says_where_when_it_is_asked(job: Job) -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK, job.scratch_dir])
    try:
        watch = RankProcesses(job, log_of(job))
        deadline = time.monotonic() + 60
        while not Path(job.scratch_dir, "stands").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        watch.look()
        watch.ask()
        assert watch.where_it_hangs().endswith("in stand_still")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("failure", "reason", "asked"),
    [
        ("timed out", "RuntimeError: it took too long", True),
        (None, "ValueError: the reward says 'Timed out'", False),
    ],
)
def test_who_waited_in_vain_is_told_by_a_field_and_no_words(
    job: Job, failure: Failure | None, reason: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(job, [os.getpid(), os.getpid()])
    watch = RankProcesses(job, log_of(job))
    heard: list[bool] = []
    monkeypatch.setattr(watch, "ask", lambda: heard.append(True))
    Result(status="failed", reason=reason, failure=failure).write(Path(job.result_file))
    watch.look()
    assert bool(heard) == asked


def test_one_process_that_left_its_result_is_no_matter_of_ranks(job: Job) -> None:
    begin(job, [os.getpid()])
    Result(status="completed").write(Path(job.result_file))
    watch = RankProcesses(job, log_of(job))
    watch.look()
    found = watch.outcome()
    assert found is not None
    assert (found.status, found.ranks) == ("completed", {})


DUMP = """Thread 0x01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x02 (most recent call first):
  File "/home/me/train.py", line 14 in f
  File "/env/site-packages/transformers/trainer.py", line 2084 in training_step
  File "/home/me/train.py", line 40 in <module>
"""


def test_the_stack_of_the_main_thread_is_read_and_the_users_own_line_is_named() -> None:
    stack = main_thread(DUMP)
    assert stack[0] == Frame("/home/me/train.py", 14, "f")
    assert place(stack) == "/home/me/train.py:14 in f"
    assert main_thread("") == []


@pytest.mark.parametrize(
    "words", ["accelerate launch --cpu --num_processes 2 a.py", "torchrun --nproc-per-node=2 a.py"]
)
def test_ranks_that_were_asked_for_and_not_started_are_told(words: str) -> None:
    assert fewer_than_asked(words.split(), 1).startswith("the command asked for 2 processes")
    assert ("use torchrun" in fewer_than_asked(words.split(), 1)) == ("--cpu" in words)
    assert fewer_than_asked(words.split(), 2) == ""
    assert fewer_than_asked(["python", "train.py"], 1) == ""
