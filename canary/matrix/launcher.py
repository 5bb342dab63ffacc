"""What every launcher does: start a try somewhere, say how it goes, and stop it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from canary.matrix.attempt import Attempt

Phase = Literal["ended", "lost"]
"""`lost`: its process is gone and left no exit code."""


@dataclass(frozen=True)
class News:
    """How a try goes."""

    attempt: Attempt
    phase: Phase
    reason: str = ""
    """Why it is lost."""


class Launcher(Protocol):
    """Starts tries. All it knows of them is on disk or in the system that it asks, so that another
    process can go on."""

    def start(self, attempt: Attempt) -> bool:
        """Start a try, or put it into the system's queue; return False if there is no place now.

        Raises:
            UsageError: it asks for more than there is.
            MachineError: it cannot be started.
        """

    def adopt(self, attempt: Attempt) -> bool:
        """Follow a try that an earlier process started; return whether it still waits or runs."""

    def poll(self) -> Iterator[News]:
        """Yield the tries that ended or are lost since the last call, once each."""

    def cancel(self) -> None:
        """Stop all tries that were started or adopted, and wait for their end."""

    def queued(self) -> Mapping[str, str]:
        """Return the cells that were started and wait in the system's queue, with the reason."""

    def wait(self, seconds: float) -> None:
        """Wait until something may have changed, or so many seconds."""
