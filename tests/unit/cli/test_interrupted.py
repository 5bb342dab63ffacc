"""A verb that a signal ends: its exit code is the documented one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENDS = """
import os, signal
from canary.cli.terminal import interrupted, stoppable

class Last:
    def __del__(self, kill=os.kill, process=os.getpid()):
        kill(process, 15)

last = Last()  # it goes after Python has restored the defaults of its signal handlers
stoppable()
try:
    os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    interrupted()
"""


def test_a_signal_while_an_interrupted_process_ends_does_not_change_its_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (4, "canary: interrupted\n")


@pytest.mark.parametrize(("command", "code"), [("kill -INT $$", 130), ("exit 4", 4)])
def test_a_command_keeps_its_exit_code_if_it_is_that_of_an_interrupt(
    tmp_path: Path, command: str, code: int
) -> None:
    words = [sys.executable, "-m", "canary.cli", "exec", "--", "sh", "-c", command]
    done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "canary: interrupted" not in done.stderr
