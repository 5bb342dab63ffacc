"""Cleanup that a second Ctrl-C does not interrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and SIGHUP inside; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
