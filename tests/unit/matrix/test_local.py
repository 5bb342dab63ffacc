"""Tries on this machine: their devices, their ends, and what a killed matrix leaves."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canary.errors import UsageError
from canary.matrix.answer import View
from canary.matrix.attempt import TIMED_OUT, Attempt
from canary.matrix.cells import Cell
from canary.matrix.local import LocalLauncher
from canary.matrix.outcomes import Outcome
from canary.matrix.running import Entry, Matrix, alone_in

HALF_A_MINUTE = 30.0


def tried(folder: Path, *words: str, cell: str = "one", limit_s: float = 20.0) -> Attempt:
    return Attempt(cell, folder / cell, words, folder, {}, limit_s)


def launcher(folder: Path, cores: int = 1, gpus: tuple[int, ...] = ()) -> LocalLauncher:
    mine = sorted(os.sched_getaffinity(0))
    return LocalLauncher(mine[:cores], gpus, None, folder / "pool")


def until(one: LocalLauncher) -> Attempt:
    """Wait for the next try that is over."""
    end = time.monotonic() + HALF_A_MINUTE
    while time.monotonic() < end:
        for news in one.poll():
            return news
        one.wait(1.0)
    raise AssertionError("nothing ended")


def test_a_try_leaves_its_exit_code_and_output(tmp_path: Path) -> None:
    local = launcher(tmp_path)
    attempt = tried(tmp_path, "sh", "-c", "exit 3")
    assert local.start(attempt)
    assert until(local).gave_up() is None
    assert attempt.ended() == 3
    assert not attempt.is_running()


def test_a_try_has_a_time_limit(tmp_path: Path) -> None:
    local = launcher(tmp_path)
    attempt = tried(tmp_path, "sleep", "60", limit_s=0.2)
    assert local.start(attempt)
    until(local)
    assert attempt.ended() == TIMED_OUT


def test_a_killed_try_is_lost_with_its_reason(tmp_path: Path) -> None:
    local = launcher(tmp_path)
    attempt = tried(tmp_path, "sh", "-c", "kill -9 $(ps -o ppid= $PPID)")
    assert local.start(attempt)
    news = until(local)
    assert news.gave_up() == "its process was ended by signal 9"


def test_devices_are_shared_by_two_matrices(tmp_path: Path) -> None:
    """A device is free at the moment when the process that holds it ends."""
    first, second = launcher(tmp_path), launcher(tmp_path)
    mark = str(60 + os.getpid() / 1e7)
    assert first.start(tried(tmp_path, "sleep", mark, cell="long"))
    while not _running(mark):
        time.sleep(0.01)
    time.sleep(0.5)  # `timeout` knows its child.
    assert not second.start(tried(tmp_path, "true", cell="short"))
    first.cancel()
    assert second.start(tried(tmp_path, "true", cell="short"))
    assert until(second).gave_up() is None


@pytest.mark.parametrize("killed", [False, True], ids=["cancelled", "its shell is killed"])
def test_the_command_of_a_stopped_try_ends(tmp_path: Path, killed: bool) -> None:
    local = launcher(tmp_path)
    mark = str(61 + 10 * killed + os.getpid() / 1e7)
    assert local.start(tried(tmp_path, "sleep", mark))
    while not _running(mark):
        time.sleep(0.01)
    # For a moment, `timeout` does not know its child: a signal then ends it alone.
    time.sleep(0.5)
    if killed:
        shell = int((tmp_path / "one" / "began").read_text().split()[0])
        os.kill(shell, signal.SIGKILL)
    else:
        local.cancel()
    end = time.monotonic() + HALF_A_MINUTE
    while _running(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _running(mark)


def _running(mark: str) -> bool:
    """Whether a `sleep` with this argument runs."""
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if one.read_bytes() == f"sleep\0{mark}\0".encode():
                return True
        except OSError:
            continue
    return False


def test_each_try_gets_other_gpus(tmp_path: Path) -> None:
    local = launcher(tmp_path, gpus=(0, 3))
    for cell in "ab":
        words = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; sleep 0.2')
        attempt = Attempt(cell, tmp_path / cell, words, tmp_path, {}, 20.0, cores=0, gpus=1)
        assert local.start(attempt)
    third = Attempt("c", tmp_path / "c", ("true",), tmp_path, {}, 20.0, cores=0, gpus=1)
    assert not local.start(third)
    until(local)
    until(local)
    assert {(tmp_path / one / "log.txt").read_text() for one in "ab"} == {"0\n", "3\n"}


def test_what_can_never_start_is_said(tmp_path: Path) -> None:
    attempt = Attempt("a", tmp_path / "a", ("true",), tmp_path, {}, 20.0, cores=999)
    with pytest.raises(UsageError, match="needs 999 cores"):
        launcher(tmp_path).start(attempt)


RUNS = """
import os, sys
from pathlib import Path
from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.local import LocalLauncher
from canary.matrix.outcomes import Outcome
from canary.matrix.running import CELLS, Entry, Matrix, alone_in

folder = Path(sys.argv[1])
WORK = (
    'set -e; mkdir "$0/busy"; echo begins >>"$0/seen"; sleep 0.05; '
    'rmdir "$0/busy"; echo ends >>"$0/seen"'
)

def planned(cell):
    notes = folder / "notes" / cell.name
    notes.mkdir(parents=True, exist_ok=True)
    words = ("sh", "-c", WORK, str(notes))
    return Attempt(cell.name, folder / CELLS / cell.name, words, folder, {}, 20.0)

cells = [Cell(f"c{number}", "run", None, ()) for number in range(int(sys.argv[2]))]
cores = sorted(os.sched_getaffinity(0))
launcher = LocalLauncher(cores, (), None, folder / "pool")
matrix = Matrix(folder, [*map(Entry, cells)], launcher, planned,
                lambda cell, attempt: Outcome("pass" if attempt.ended() == 0 else "error", ""))
with alone_in(folder):
    print(sum(one.outcome.verdict == "pass" for one in matrix.run()))
"""


@pytest.fixture
def matrix(tmp_path: Path) -> tuple[list[str], Path]:
    script = tmp_path / "runs.py"
    script.write_text(RUNS)
    return [sys.executable, str(script), str(tmp_path / "out"), "20"], tmp_path / "out"


def test_a_killed_matrix_goes_on(matrix: tuple[list[str], Path]) -> None:
    """Killed at random moments, it runs each cell once to its end, and none twice at once."""
    command, folder = matrix
    drawn = random.Random(7)
    for _ in range(4):
        child = subprocess.Popen(command)
        time.sleep(drawn.uniform(0.05, 0.7))
        child.send_signal(signal.SIGKILL)
        child.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "20", done.stderr
    for notes in (folder / "notes").iterdir():
        assert (notes / "seen").read_text() == "begins\nends\n"


def test_a_folder_has_one_matrix_at_a_time(matrix: tuple[list[str], Path]) -> None:
    command, folder = matrix
    with alone_in(folder):
        again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert UsageError.__name__ in again.stderr
    assert "another process runs the matrix" in again.stderr


def test_a_matrix_says_so_before_it_waits_for_a_try_of_a_killed_one(tmp_path: Path) -> None:
    attempt = Attempt("one", tmp_path / "cells" / "one", (), tmp_path, {}, 9.0)
    attempt.folder.mkdir(parents=True)
    said: list[str] = []

    class Waits(LocalLauncher):
        def adopt(self, attempt: Attempt) -> bool:
            said.append("it waits")
            (attempt.folder / "ended").write_text("0")
            return False

    entry = Entry(Cell("one", "run", None, ()))
    local = Waits([0], (), None, tmp_path / "pool")
    view = View(said.append, lambda: 0.0)
    with (attempt.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        judged = Outcome("pass", "")
        Matrix(tmp_path, [entry], local, lambda _: attempt, lambda *_: judged, view.told).run()
    assert said[:2] == ["0 of 1 done · one runs", "it waits"]
    assert entry.outcome is not None
