"""Calls and files: what the preparation of data and the training did, counted without noise."""

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


class CallCounts:
    """Counts of this process: tokenizer calls, dataset maps asked for and really executed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def describe(self) -> Calls:
        """`dataset_cache_hits` are the maps that were asked for and not executed."""
        asked, executed = (
            self.counts["dataset_maps"],
            self.counts["dataset_maps_executed"],
        )
        return {
            "tokenizer_calls": self.counts["tokenizer_calls"],
            "dataset_maps": asked,
            "dataset_maps_executed": executed,
            "dataset_cache_hits": asked - executed,
        }


_own: ContextVar[bool] = ContextVar("own", default=False)


@contextmanager
def own_calls() -> Iterator[None]:
    """What is called inside is called by the canary itself, and not counted as the user's."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def _counted(counts: Counter[str], name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        counts[name] += not _own.get()
        return original(*args, **kwargs)

    return wrapper


def can_count_calls() -> bool:
    """Whether this process has loaded the libraries whose calls are counted."""
    return all(sys.modules.get(name) is not None for name in ("datasets", "transformers"))


@contextmanager
def count_calls() -> Iterator[CallCounts]:
    """Counts on the library's classes, so that calls made inside trainers are seen too."""
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    counted = CallCounts()
    targets: list[tuple[Any, str, str]] = [
        (PreTrainedTokenizerBase, "__call__", "tokenizer_calls"),
        (Dataset, "map", "dataset_maps"),
    ]
    originals = [(owner, name, owner.__dict__[name]) for owner, name, _ in targets]
    for owner, name, label in targets:
        setattr(owner, name, _counted(counted.counts, label, owner.__dict__[name]))
    single = Dataset.__dict__["_map_single"]
    inner = single.__func__

    @functools.wraps(inner)
    def map_single(*args: Any, **kwargs: Any) -> Any:
        counted.counts["dataset_maps_executed"] += 1
        return inner(*args, **kwargs)

    Dataset._map_single = staticmethod(map_single)
    try:
        yield counted
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
        Dataset._map_single = single


class WrittenFiles:
    """Files opened for writing through Python, and bytes handed to the kernel, between two calls.

    Libraries that write from native code (safetensors) show in the bytes and not in the files. What
    `canary exec` keeps of the user's files is left out: how much that is depends on what earlier
    runs left.
    """

    def __init__(self, leave_out: tuple[Path, ...]) -> None:
        # Loaded by `canary.training.attach.site.sitecustomize`, before anything else of the canary.
        noting = sys.modules.get("_canary_file_notes")
        self._kept = None if noting is None else noting.Kept
        kept_in = () if self._kept is None else (self._kept.folder + "/",)
        self._leave_out = (*map(str, leave_out), *kept_in, "/dev/", "/proc/", "/sys/")
        self._counting = False
        self._opened: Counter[str] = Counter()
        self._bytes_before: int | None = None
        sized = (".jsonl", ".json", ".txt")
        self._own = tuple(path for path in leave_out if path.suffix in sized)
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        # Called some hundred times a step for events that do not matter here: `id` is one.
        if event != "open" or not self._counting:
            return
        path, _, flags = args
        writing = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else 0
        if not writing or not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.fsdecode(path)
        if not name.startswith(self._leave_out):
            self._opened[name] += 1

    def begin(self) -> None:
        """From here on openings are counted."""
        self._bytes_before = self._foreign_bytes()
        self._counting = True

    def end(self) -> Calls:
        """`bytes_written`: all that the process wrote but rows, log and profile, which vary in
        length, and what the canary keeps; null off Linux."""
        self._counting = False
        after = self._foreign_bytes()
        before = self._bytes_before
        return {
            "files_opened": sum(self._opened.values()),
            "files_distinct": len(self._opened),
            "bytes_written": None if after is None or before is None else after - before,
        }

    def _foreign_bytes(self) -> int | None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        total = _written_chars()
        if total is None:
            return None
        kept = 0 if self._kept is None else int(self._kept.bytes)
        return total - kept - sum(path.stat().st_size for path in self._own if path.exists())


def _written_chars() -> int | None:
    """Bytes this process has passed to write calls, from the kernel's own accounting."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["wchar"])
