"""Memory that a process has freed and will soon ask for again."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Numbers of mallopt(3)."""
KEPT = 1 << 30
"""Bytes at the end of the heap that stay with the process."""


def keep_freed_memory() -> None:
    """Has malloc keep what is freed, where it is glibc's.

    Deterministic torch fills each new tensor, and a large one comes from the kernel page by page:
    half of a probe's time went there. No launch whose memory is measured does this.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_MAX, 0)
            mallopt(M_TRIM_THRESHOLD, KEPT)
