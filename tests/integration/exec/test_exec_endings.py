"""`canary exec` where the command fails, never trains or is ended: each with its words and code."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.integration.exec.user_scripts import (
    FASTEST,
    PYTHON,
    QUIET,
    sft_script,
    watched,
    write_data,
)

pytestmark = [pytest.mark.train, pytest.mark.slow]


def test_a_shell_that_starts_the_training_is_watched(place: Path) -> None:
    done = watched(place, "bash", "-c", f"echo before && {PYTHON} train.py && exit 3")
    assert done.code == 3
    assert done.out.startswith("before\n")
    record = done.record()
    assert record.status == "failed"
    assert "with code 3" in (record.reason or "")
    assert len(record.stability.loss_values) == 6


def test_an_exception_is_the_commands_own_and_the_record_says_where(tmp_path: Path) -> None:
    write_data(tmp_path)
    body = """
class Breaks(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise ZeroDivisionError("by hand")
trainer.add_callback(Breaks())
"""
    sft_script(tmp_path, before=body)
    done = watched(tmp_path, PYTHON, "train.py")
    assert done.code == 1
    assert "ZeroDivisionError: by hand" in done.err
    record = done.record()
    assert record.status == "failed"
    assert "by hand" in (record.reason or "")
    assert "train.py" in (record.reason or "")
    assert len(record.stability.loss_values) >= 2


def test_a_sitecustomize_of_the_users_own_still_runs(place: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['OWN'] = 'ran'")
    code = "import os, sys; print(os.environ.get('OWN'), [p for p in sys.path if 'attach' in p])"
    done = watched(place, PYTHON, "-c", code, environment={"PYTHONPATH": str(tmp_path)})
    assert done.out == "ran []\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((PYTHON, "-c", "print(1)"), "none of its Python processes imported torch"),
        ((PYTHON, "-c", "import torch"), "made no torch optimizer"),
        ((PYTHON, "-c", "from transformers import Trainer"), "did not call train()"),
        (("true",), "the command never trained, or the canary could not watch it"),
        (("no-such-program",), "cannot start no-such-program"),
    ],
)
def test_a_command_that_cannot_be_watched_says_why(
    place: Path, words: tuple[str, ...], said: str
) -> None:
    done = watched(place, *words)
    assert done.code == 2, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.record().status == "failed"


def test_a_package_of_the_users_own_with_the_canarys_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "own" / "canary").mkdir(parents=True)
    (tmp_path / "own" / "canary" / "__init__.py").write_text("mine = True")
    script = tmp_path / "own" / "train.py"
    script.write_text("import transformers.trainer, canary; print(canary.mine)")
    done = watched(tmp_path, PYTHON, str(script))
    assert done.out == "True\n"
    assert done.code == 2
    assert "hides the canary's package" in done.err


def test_a_command_that_fails_before_it_trains_keeps_its_exit_code(place: Path) -> None:
    done = watched(place, PYTHON, "-c", "import sys; sys.exit(7)")
    assert done.code == 7
    assert "before training" in done.err


def test_the_timeout_ends_the_command_and_what_it_started(place: Path, tmp_path: Path) -> None:
    config = tmp_path / "limits.yaml"
    config.write_text("name: slow\ntimeout: 4\nlook_steps: 0\n")
    started = tmp_path / "started"
    code = f"sleep 600 & echo $! > {started}; wait"
    done = watched(place, "bash", "-c", code, options=("--config", str(config)))
    assert done.code == 4
    assert done.record().status == "timeout"
    assert not psutil.pid_exists(int(started.read_text()))


def recorded(place: Path) -> RunRecord:
    return load_record(next((place / "runs").glob("*/metrics.json")).parent)


def begun(place: Path, *before: str) -> subprocess.Popen[bytes]:
    """A long training under `exec`, past its first step."""
    write_data(place)
    sft_script(place, steps=4000, before="\n".join(before))
    child = subprocess.Popen(
        [PYTHON, "-m", "canary.cli", "exec", *FASTEST, "-o", "runs", "--", PYTHON, "train.py"],
        cwd=place,
        env=QUIET,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        rows = list((place / "runs").glob("*/steps.jsonl"))
        if rows and rows[0].stat().st_size:
            return child
        time.sleep(0.1)
    raise AssertionError("it never began")


def test_an_interrupt_leaves_a_record(tmp_path: Path) -> None:
    child = begun(tmp_path)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 128 + signal.SIGINT, "the command's, as a shell tells it"
    record = recorded(tmp_path)
    assert record.status == "interrupted"
    assert record.stability.loss_values


def test_signals_reach_the_command_and_its_own_ending_runs(tmp_path: Path) -> None:
    child = begun(
        tmp_path,
        "import signal",
        "signal.signal(signal.SIGUSR1, lambda *_: open('noticed', 'w').close())",
        "def last_words(*_):",
        "    open('saved', 'w').close(); sys.exit(42)",
        "signal.signal(signal.SIGTERM, last_words)",
    )
    child.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 30
    while not (tmp_path / "noticed").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tmp_path / "noticed").exists()
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 42
    assert (tmp_path / "saved").exists()
    assert recorded(tmp_path).status == "interrupted"


def test_nothing_trains_on_when_the_canary_is_killed(tmp_path: Path) -> None:
    child = begun(tmp_path)
    (training,) = psutil.Process(child.pid).children()
    child.kill()
    child.wait()
    assert psutil.wait_procs([training], timeout=20)[0] == [training]


def test_a_terminal_stays_one(place: Path) -> None:
    import pty

    code = "import sys; print(sys.stdout.isatty(), sys.stderr.isatty()); sys.exit(5)"
    words = ["exec", *FASTEST, "-o", str(place / "tty"), "--", PYTHON, "-c", code]
    seen: list[bytes] = []

    def read(descriptor: int) -> bytes:
        seen.append(os.read(descriptor, 1024))
        return seen[-1]

    status = pty.spawn([PYTHON, "-m", "canary.cli", *words], read)
    assert os.waitstatus_to_exitcode(status) == 5
    assert b"True True" in b"".join(seen)
