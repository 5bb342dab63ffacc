"""Ties a process to its parent, so that no process outlives its run."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from canary.protocol.job import PARENT

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """On Linux, let the kernel kill this process when its parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1 and os.environ.get(PARENT) not in (None, "1"):
            os._exit(1)
