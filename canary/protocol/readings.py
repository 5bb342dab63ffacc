"""What the background sampler saw last, on its way to those who show it while a launch runs.

The terminal is told in the parent; trackers live in the training process, which finds the newest
reading in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from canary.record import jsonio


def reading_path(scratch_dir: Path) -> Path:
    """The file of a launch's newest reading."""
    return scratch_dir / "reading.json"


class Readings:
    """Newest samples, each handed on once; with `file`, for the training process too."""

    def __init__(self, source: Callable[[], Mapping[str, float]], file: Path | None = None) -> None:
        self._source = source
        self._file = file
        self._last: Mapping[str, float] = {}

    def fresh(self) -> Mapping[str, float] | None:
        """The newest reading, if there is one since the last call."""
        reading = self._source()
        if not reading or reading is self._last:
            return None
        self._last = reading
        if self._file is not None:
            jsonio.replace_file(self._file, jsonio.dumps(dict(reading)))
        return reading


class ReadingFile:
    """The same in the training process: the file is read again once it is another one."""

    def __init__(self, scratch_dir: Path) -> None:
        self._path = reading_path(scratch_dir)
        self._seen_ns = 0
        self._reading: dict[str, float] = {}

    def newest(self) -> Mapping[str, float]:
        """The newest reading; empty where nothing was sampled yet."""
        try:
            written_ns = self._path.stat().st_mtime_ns
            if written_ns != self._seen_ns:
                self._reading = jsonio.loads(self._path.read_text(encoding="utf-8"))
                self._seen_ns = written_ns
        except FileNotFoundError:
            return {}
        return self._reading
