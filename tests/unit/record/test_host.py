"""The host's part of a record, from rows with known times."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from canary.record.host import host_of
from canary.record.phases import PHASES
from canary.record.step_row import Row
from canary.record.types import Launch, RunRecord
from canary.training.collectors.clock import StepClock
from canary.training.collectors.host import LEAST_S, HostMeter
from canary.training.collectors.steps import (
    EndedSteps,
    RunningStep,
    _resident_bytes,
    _RunDelay,
    summed,
)
from canary.training.look import Look


def record(**host: float) -> RunRecord:
    made = RunRecord(
        run_id="r",
        timestamp="2026-01-01T00:00:00+00:00",
        launches=[Launch(index=1, status="completed", steps=10, host=host)],
        env={"cpu_usable": 4},
    )
    made.perf.cpu_utilization_avg = 100.0
    return made


def row(**changes: float | None) -> Any:
    """A step of 100 ms of which 80 compute."""
    host = {
        "computing_s": 0.08,
        "waiting_s": 0.04,
        "others_s": 0.03,
        "own_cpu_s": 0.05,
        "run_delay_s": 0.0,
    }
    return {
        "wall_s": 0.1,
        "phases_cpu": {"data": 0.02, "forward": 0.07},
        "host": host | changes,
    }


def test_shares_and_seconds_of_rows() -> None:
    found = host_of(record(gil_held=0.9), [row(), row()])
    assert found.waiting == pytest.approx(0.5)
    assert found.other_threads == pytest.approx(0.375)
    assert found.gil_contention == pytest.approx(0.375)
    assert found.gil_held == 0.9
    assert found.run_delay == 0.0
    assert found.cpu_seconds_per_step == pytest.approx(0.09)
    assert found.main_cpu_seconds_per_step == pytest.approx(0.05)
    assert found.cpu_utilization_of_cores == 25.0


def test_a_contended_lock_is_as_contended_on_a_machine_with_other_work() -> None:
    """Every clock time is four times as long, and three quarters of it the thread has no core."""
    quiet = host_of(record(gil_held=0.9), [row()])
    busy = row(computing_s=0.32, waiting_s=0.04 + 0.24, run_delay_s=0.3) | {"wall_s": 0.4}
    found = host_of(record(gil_held=0.9), [busy])
    assert found.run_delay == pytest.approx(0.75)
    assert found.gil_contention == pytest.approx(quiet.gil_contention)
    assert found.waiting == pytest.approx(quiet.waiting)


def test_a_lock_held_by_the_training_itself_is_no_contention() -> None:
    assert host_of(record(gil_held=0.95), [row(waiting_s=0.0)]).gil_contention == 0.0
    assert host_of(record(gil_held=0.95), [row(others_s=0.0)]).gil_contention == 0.0


def test_what_nobody_measured_is_null() -> None:
    old: Row = {"wall_s": 0.1, "phases": {"data": 0.1}}
    found = host_of(RunRecord(run_id="r", timestamp="t"), [old])
    assert set(found.model_dump().values()) == {None}
    without_knocker = host_of(record(), [row(run_delay_s=None)])
    assert without_knocker.gil_contention is None
    assert without_knocker.run_delay is None
    assert without_knocker.waiting == pytest.approx(0.5)


def test_a_step_knows_its_threads_from_others_and_work_from_sleep() -> None:
    clock = StepClock(torch.device("cpu"))
    clock.start()
    with clock.phase("forward"):
        time.sleep(0.05)
    with clock.phase("data"):
        time.sleep(0.05)
    with clock.phase("backward"):
        spend(0.05)
    with clock.phase("optimizer"):
        helper = threading.Thread(target=spend, args=(0.05,))
        helper.start()
        helper.join()
    step = clock.close()
    host = step.on_host()
    assert host["own_cpu_s"] == pytest.approx(0.05, abs=0.02)
    assert host["others_s"] == pytest.approx(0.05, abs=0.02)
    assert host["waiting_s"] >= 0.09
    assert host["computing_s"] == pytest.approx(step.wall_s() - step.by_phase()["data"], rel=0.01)
    cpu = step.cpu_by_phase()
    assert cpu["backward"] == pytest.approx(0.05, abs=0.02)
    assert cpu["forward"] < 0.02
    assert cpu.keys() <= set(PHASES)


def spend(seconds: float) -> None:
    """CPU seconds of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


SPENDS = "import time\nwhile time.process_time() < {}: pass\ntime.sleep({})"


@pytest.mark.skipif(sys.platform != "linux", reason="of processes that run, Linux alone tells")
def test_the_cpu_of_processes_that_load_data_counts_while_they_run_and_when_they_ended() -> None:
    rows: list[Any] = []
    steps = EndedSteps(torch.device("cpu"), rows.append, Look(0, None, lambda signals: None))
    steps.begin()
    with subprocess.Popen([sys.executable, "-c", SPENDS.format(0.3, 60)]) as running:
        subprocess.run([sys.executable, "-c", SPENDS.format(0.3, 0)], check=True)
        while running.poll() is None and sum_of_children(steps) < 0.6:
            time.sleep(0.01)
        steps.close(0, 1, RunningStep(), summed)
        steps.close(0, 2, RunningStep(), summed)
        running.kill()
    steps.close(0, 3, RunningStep(), summed)
    assert rows[0]["cpu_s"] - sum(rows[0]["phases_cpu"].values()) == pytest.approx(0.6, abs=0.2)
    assert rows[1]["cpu_s"] < 0.1
    assert 0.0 <= rows[2]["cpu_s"] < 0.1, "what was counted while it ran is not counted again"


def sum_of_children(steps: EndedSteps) -> float:
    """CPU seconds so far; nothing is taken from what the next row gets."""
    return steps._children._total() - steps._children._last


def test_without_gilknocker_the_lock_is_unmeasured_and_the_rest_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "gilknocker":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    watch = HostMeter(own_process=True)
    watch.begin()
    time.sleep(0.01)
    assert watch.end() == {}
    assert "rlhf-canary[gil]" in watch.unmeasured["host.gil_contention"]


@contextmanager
def python_running() -> Iterator[None]:
    """Another thread that never stops running Python. Each call keeps the lock to its end, even
    while a busy machine has no core for the thread."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            sum(range(2_000_000))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_with_gilknocker_a_held_lock_is_told_from_a_free_one() -> None:
    pytest.importorskip("gilknocker")
    with python_running():
        # On a busy machine the thread that looks may itself get no core for a while.
        tries = (watched(LEAST_S + 0.1) for _ in range(5))
        held = next((share for share in tries if share > 0.5), 0.0)
    assert held > 0.5
    assert watched(LEAST_S + 0.1) < held - 0.3


def watched(seconds: float) -> float:
    watch = HostMeter(own_process=True)
    watch.begin()
    time.sleep(seconds)
    found = watch.end()
    watch.stop()  # twice is once
    assert watch.unmeasured == {}
    return found["gil_held"]


def test_a_users_own_process_has_no_thread_of_gilknockers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must end as it would without: the thread may abort a process that ends."""
    monkeypatch.delitem(sys.modules, "gilknocker", raising=False)
    watch = HostMeter()
    watch.begin()
    found = watch.end()
    assert "gilknocker" not in sys.modules
    assert "gil_held" not in found
    assert "canary run" in watch.unmeasured["host.gil_contention"]


def test_a_program_with_all_the_files_open_that_it_may_have_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (_resident_bytes() or 0) > 1e6
    delay = _RunDelay()
    assert delay.since_last() is None
    assert delay.since_last() is not None

    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", full)
    assert _resident_bytes() is None
    assert delay.since_last() is None
