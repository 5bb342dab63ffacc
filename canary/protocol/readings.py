"""The background sampler's newest reading, for the terminal and for trackers.

The terminal gets it in the parent. Trackers run in the training process, which reads a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from canary.record import jsonio


def reading_path(scratch_dir: Path) -> Path:
    """Return the file of a launch's newest reading."""
    return scratch_dir / "reading.json"


class Readings:
    """Passes each new reading on once, and also writes it to `file` if given."""

    def __init__(self, source: Callable[[], Mapping[str, float]], file: Path | None = None) -> None:
        self._source = source
        self._file = file
        self._last: Mapping[str, float] = {}

    def fresh(self) -> Mapping[str, float] | None:
        """Return the newest reading, or None if there is no new one since the last call."""
        reading = self._source()
        if not reading or reading is self._last:
            return None
        self._last = reading
        if self._file is not None:
            jsonio.replace_file(self._file, jsonio.dumps(dict(reading)))
        return reading


class ReadingFile:
    """The newest reading in the training process; the file is read again when it changes."""

    def __init__(self, scratch_dir: Path) -> None:
        self._path = reading_path(scratch_dir)
        self._seen_ns = 0
        self._reading: dict[str, float] = {}

    def newest(self) -> Mapping[str, float]:
        """Return the newest reading; empty if nothing was sampled yet."""
        try:
            written_ns = self._path.stat().st_mtime_ns
            if written_ns != self._seen_ns:
                self._reading = jsonio.loads(self._path.read_text(encoding="utf-8"))
                self._seen_ns = written_ns
        except FileNotFoundError:
            return {}
        return self._reading
