"""Counts of calls and written files, for data preparation and training."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from canary.record.exact import Calls
from canary.training.collectors.aside import Wrapping


class CallCounts:
    """Counts of this process: tokenizer calls, and dataset maps: requested, executed, and those
    that no cache can hold."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def around(self, name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Count a call of the user's."""
        self.counts[name] += not _by_canary.get()
        return original(*args, **kwargs)

    def describe(self) -> Calls:
        """Return the counts; `dataset_cache_hits` are maps requested but not executed."""
        requested = self.counts["dataset_maps"]
        executed = self.counts["dataset_maps_executed"]
        return {
            "tokenizer_calls": self.counts["tokenizer_calls"],
            "dataset_maps": requested,
            "dataset_maps_executed": executed,
            "dataset_cache_hits": requested - executed,
            "dataset_maps_unhashable": self.counts["dataset_maps_unhashable"],
        }


_by_canary: ContextVar[bool] = ContextVar("by_canary", default=False)


@contextmanager
def own_calls() -> Iterator[None]:
    """Do not count calls inside: the canary makes them, not the user."""
    token = _by_canary.set(True)
    try:
        yield
    finally:
        _by_canary.reset(token)


def can_count_calls() -> bool:
    """Return whether this process has loaded the libraries whose calls are counted."""
    return all(sys.modules.get(name) is not None for name in ("datasets", "transformers"))


@contextmanager
def count_calls() -> Iterator[CallCounts]:
    """Count calls of the libraries' classes, which includes calls inside trainers."""
    from datasets import Dataset, fingerprint
    from transformers import PreTrainedTokenizerBase

    counted, wrapping = CallCounts(), Wrapping()
    targets: list[tuple[Any, str, str]] = [
        (PreTrainedTokenizerBase, "__call__", "tokenizer_calls"),
        (Dataset, "map", "dataset_maps"),
        (Dataset, "_map_single", "dataset_maps_executed"),
        # datasets makes one up for a function that it cannot hash.
        (fingerprint, "generate_random_fingerprint", "dataset_maps_unhashable"),
    ]
    for owner, name, label in targets:
        wrapping.wrap(owner, name, functools.partial(counted.around, label))
    try:
        yield counted
    finally:
        wrapping.undo()


class WrittenFiles:
    """Counts files that Python opens for writing, and bytes passed to the kernel, from `begin` to
    `end`.

    Writes from native code (safetensors) count in the bytes, not in the files.
    """

    def __init__(self, leave_out: tuple[Path, ...], counted: tuple[Path, ...] = ()) -> None:
        """`leave_out`: files and folders of the canary. `counted`: folders in them that are the
        training's."""
        self._own_bytes = 0
        self._counted = tuple(f"{folder}{os.sep}" for folder in counted)
        self._leave_out = (*map(str, leave_out), "/dev/", "/proc/", "/sys/")
        self._counting = False
        self._opened = 0
        self._bytes_before: int | None = None
        sized = (".jsonl", ".json", ".txt")
        self._sized = tuple(path for path in leave_out if path.suffix in sized)
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        # Called some hundred times per step for other events, such as `id`.
        if event != "open" or not self._counting:
            return
        path, _, flags = args
        writing = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else 0
        if not writing or not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.fsdecode(path)
        if name.startswith(self._counted) or not name.startswith(self._leave_out):
            self._opened += 1

    def begin(self) -> None:
        """Start counting."""
        self._bytes_before = self._foreign_bytes()
        self._counting = True

    def leave_out(self, size: int) -> None:
        """Do not count so many bytes that the canary wrote."""
        self._own_bytes += size

    def end(self) -> None:
        """Stop counting."""
        self._counting = False

    def so_far(self) -> Calls:
        """Return the counts. `bytes_written` excludes rows, log and profile, which vary in length;
        None except on Linux."""
        after = self._foreign_bytes()
        before = self._bytes_before
        return {
            "files_opened": self._opened,
            "bytes_written": None if after is None or before is None else after - before,
        }

    def _foreign_bytes(self) -> int | None:
        """Return the bytes that the training has passed to write calls, as the kernel counts."""
        # What waits in the buffer of a stream does not count: a flush would be the user's to see.
        try:
            text = Path("/proc/self/io").read_text()
        except OSError:
            return None
        passed = int(dict(line.split(": ") for line in text.splitlines())["wchar"])
        own = sum(path.stat().st_size for path in self._sized if path.exists())
        return passed - self._own_bytes - own
