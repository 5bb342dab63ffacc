"""Whether a log ends in an error: what stands behind its last metric."""

from __future__ import annotations

import re
from collections import deque

from canary.imports.entries import shortened
from canary.protocol.failure import last_words

TRACEBACK = "Traceback (most recent call last)"
IGNORED = "Exception ignored in"
"""Python prints it before the traceback of an error in a destructor, which ends nothing."""
DEATH = re.compile(
    r"out of memory|OutOfMemory|oom[-_ ]?kill|Segmentation fault|core dumped|std::bad_alloc|"
    r"(?:^|\d)\s*Killed\b|No space left on device|CANCELLED AT|"
    r"^\s*(?:Terminated|Aborted)\b|\bexit(?:ed with)? ?(?:code|status) [1-9]|"
    r"Watchdog caught collective|"
    r"\b(?:signal 9|SIGKILL|SIGSEGV|SIGABRT)\b|^[\w.]+(?:Error|Exception|Interrupt)(?:: |$)",
    re.IGNORECASE,
)
"""How launchers, kernels and libraries say that a process is dead."""
KEPT = 500
"""Lines behind the last metric."""


class Ending:
    """The lines behind the last metric so far."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)

    def add(self, line: str) -> None:
        """Add a line without a metric."""
        self._lines.append(line)

    def clear(self) -> None:
        """Begin anew: a metric was written."""
        self._lines.clear()

    def error(self) -> str | None:
        """Return the error that ended the training, None without one."""
        lines = list(self._lines)
        begun = [
            number
            for number, line in enumerate(lines)
            if TRACEBACK in line and IGNORED not in (lines[number - 1] if number else "")
        ]
        if begun:
            return shortened(last_words("\n".join(lines[begun[0] :])))
        said = next((line for line in reversed(lines) if DEATH.search(line)), None)
        return None if said is None else shortened(said.strip())
