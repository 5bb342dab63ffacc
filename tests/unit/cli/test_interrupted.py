"""A verb that a signal ends: its exit code is the documented one."""

from __future__ import annotations

import subprocess
import sys

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
