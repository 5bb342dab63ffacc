"""Who records in this process: a Trainer or a Recorder takes the place of a plain torch loop.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable


class Turn:
    """A Trainer or a Recorder takes the turn. From then on no plain loop is recorded."""

    def __init__(self) -> None:
        self.taken = False
        self.notes: list[str] = []
        """Sentences for the record of what took the turn."""
        self.give_way: Callable[[str], None] | None = None
        """Ends the recording of a plain loop; gets the name of what takes its place."""

    def take(self, by: str) -> None:
        """Take the turn for a Trainer or a Recorder."""
        if not self.taken and self.give_way is not None:
            self.give_way(by)
        self.taken = True


TURN = Turn()
"""The one of this process."""
