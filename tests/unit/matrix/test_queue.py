"""Tries in a queue: what waits too long, hangs, is gone or leaves its files late."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from canary.errors import MachineError
from canary.matrix import queue as queue_module
from canary.matrix.attempt import Attempt
from canary.matrix.document import Slurm
from canary.matrix.queue import STUCK_S, QueueLauncher, Seen

PATIENCE = Slurm(kind="slurm", longest_wait=10.0, poll=1.0, late=30.0)


class Stand:
    """A queue that says what a test wants."""

    name = "Stand"
    most_waiting: int | None = None

    def __init__(self) -> None:
        self.says: Seen | None = Seen("waits", "no place")
        self.refuses = self.silent = ""
        self.submitted: list[str] = []
        self.stopped: list[str] = []

    def submit(self, attempts: Sequence[Attempt]) -> Mapping[Path, str]:
        if self.refuses:
            return {one.folder: self.refuses for one in attempts}
        self.submitted += [one.cell for one in attempts]
        return {}

    def look(self, attempts: Sequence[Attempt]) -> Mapping[Path, Seen]:
        if self.silent:
            raise MachineError(self.silent)
        return {} if self.says is None else {one.folder: self.says for one in attempts}

    def stop(self, attempts: Sequence[Attempt]) -> None:
        self.stopped += [one.cell for one in attempts]
        self.says = Seen("over", "CANCELLED")


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(queue_module, "time", made)
    return made


def tried(folder: Path, cell: str = "one", limit_s: float = 60.0) -> Attempt:
    return Attempt(cell, folder / cell, ("true",), folder, {}, limit_s)


def later(launcher: QueueLauncher, time: Time, seconds: float) -> list[Attempt]:
    time.now += seconds
    return [*launcher.poll()]


def started(tmp_path: Path, time: Time) -> tuple[QueueLauncher, Stand, Attempt]:
    stand = Stand()
    launcher, attempt = QueueLauncher(stand, PATIENCE), tried(tmp_path)
    assert launcher.start(attempt)
    assert not later(launcher, time, 0.0)
    assert stand.submitted == ["one"]
    return launcher, stand, attempt


def test_what_is_refused_is_lost_with_the_reason(tmp_path: Path, time: Time) -> None:
    stand = Stand()
    stand.refuses = "Slurm refused the job: invalid partition"
    stand.says = None
    launcher = QueueLauncher(stand, PATIENCE)
    assert launcher.start(tried(tmp_path))
    (news,) = launcher.poll()
    assert news.gave_up() == stand.refuses
    assert not launcher.queued()


def test_a_try_that_never_starts_is_cancelled_with_the_reason(tmp_path: Path, time: Time) -> None:
    launcher, stand, _ = started(tmp_path, time)
    assert launcher.queued() == {"one": "no place"}
    assert not later(launcher, time, 590.0)
    (news,) = later(launcher, time, 20.0)
    assert news.gave_up() == "it waited 10 minutes in the queue of Stand: no place"
    assert stand.stopped == ["one"]


def test_a_try_that_does_not_end_is_stopped(tmp_path: Path, time: Time) -> None:
    launcher, stand, attempt = started(tmp_path, time)
    stand.says = Seen("runs", "RUNNING on n1")
    assert not later(launcher, time, 2.0)
    assert not later(launcher, time, attempt.limit_s + STUCK_S - 5.0)
    (news,) = later(launcher, time, 10.0)
    assert news.gave_up() == "it still runs after its 1 minutes: RUNNING on n1"
    assert stand.stopped == ["one"]


@pytest.mark.parametrize("says", [Seen("over", "NODE_FAIL on n1"), None], ids=["over", "forgotten"])
def test_files_may_come_late(tmp_path: Path, time: Time, says: Seen | None) -> None:
    launcher, stand, attempt = started(tmp_path, time)
    stand.says = says
    assert not later(launcher, time, 2.0)
    assert not later(launcher, time, 20.0)
    (attempt.folder / "ended").write_text("0\n")
    (news,) = later(launcher, time, 2.0)
    assert news.gave_up() is None


def test_a_preempted_try_waits_again_and_its_time_begins_anew(tmp_path: Path, time: Time) -> None:
    launcher, stand, _ = started(tmp_path, time)
    for _ in range(2):
        stand.says = Seen("runs")
        assert not later(launcher, time, 300.0)
        stand.says = Seen("waits", "BeginTime")
        assert not later(launcher, time, 300.0)
    assert launcher.queued() == {"one": "BeginTime"}


def test_a_queue_that_does_not_answer_loses_nothing(tmp_path: Path, time: Time) -> None:
    launcher, stand, _ = started(tmp_path, time)
    stand.silent = "squeue does not answer"
    assert not later(launcher, time, 5000.0)
    assert launcher.queued() == {"one": "squeue does not answer"}
    stand.silent, stand.says = "", Seen("runs")
    assert not later(launcher, time, 2.0)
    assert not launcher.queued()


def test_only_what_the_queue_knows_is_adopted(tmp_path: Path, time: Time) -> None:
    stand = Stand()
    launcher = QueueLauncher(stand, PATIENCE)
    assert launcher.adopt(tried(tmp_path))
    stand.says = None
    assert not launcher.adopt(tried(tmp_path, "other"))


def test_a_script_runs_a_cell_once(tmp_path: Path) -> None:
    """It also removes what an interrupted start left, and keeps odd words and variables as they
    are."""
    odd = "a 'b' \"c\" $HOME `d`\n*"
    words = ("sh", "-c", 'printf %s "$1|$ODD" >"$2/runs"; echo x >>"$2/count"', "sh", odd)
    folder = tmp_path / "a folder's" / "1"
    attempt = Attempt("one", folder, (*words, str(folder)), tmp_path, {"ODD": odd}, 20.0)
    script = attempt.write_script()
    (folder / "runs").mkdir()
    for _ in range(2):
        subprocess.run(["/bin/sh", str(script)], check=True)
    assert (folder / "runs").read_text() == f"{odd}|{odd}"
    assert (folder / "count").read_text() == "x\n"
    assert (attempt.ended(), attempt.starts()) == (0, 1)


def test_a_script_that_was_given_up_does_not_run(tmp_path: Path) -> None:
    attempt = Attempt("one", tmp_path / "1", ("touch", str(tmp_path / "ran")), tmp_path, {}, 9.0)
    script = attempt.write_script()
    attempt.give_up("it waited too long")
    subprocess.run(["/bin/sh", str(script)], check=True)
    assert not (tmp_path / "ran").exists()
    assert not attempt.has_begun()
