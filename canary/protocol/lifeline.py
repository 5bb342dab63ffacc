"""Ties a process to its parent, so that no process outlives its run."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from canary.protocol.job import PARENT, STARTER

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """On Linux, let the kernel kill this process when its parent is gone."""
    if sys.platform == "linux":
        _get_at_its_end(signal.SIGKILL)
        if os.getppid() == 1 and os.environ.get(PARENT) not in (None, "1"):
            os._exit(1)


def end_with_starter() -> None:
    """On Linux, end this verb as by SIGTERM when the verb that started it is gone, for instance
    killed: then it ends its training and completes its record.
    """
    starter = os.environ.pop(STARTER, "")
    if sys.platform == "linux" and starter:
        if os.getppid() == int(starter):
            _get_at_its_end(signal.SIGTERM)
        if not os.path.exists(f"/proc/{starter}"):  # noqa: PTH110 - pathlib costs an import
            sys.exit(128 + signal.SIGTERM)


def _get_at_its_end(number: signal.Signals) -> None:
    """Ask the kernel for a signal when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
