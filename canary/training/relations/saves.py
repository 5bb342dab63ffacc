"""Sees the checkpoints that a training saves by itself, with torch or safetensors."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

MOST_PATHS = 100


class Saves:
    """Notes the files of `torch.save`, of safetensors and of `torch.distributed.checkpoint`."""

    def __init__(self) -> None:
        self._paths: list[str] = []

    def begin(self) -> None:
        """Wrap what saves. A script may have imported `torch.save` and `save_file` by name, so what
        these call is wrapped."""
        _wrap(torch.serialization, "_open_zipfile_writer", self._saved)
        _wrap(torch, "save", lambda *args, **kwargs: self._saved(*args[1:], **kwargs))
        # Else `torch.save` could not be pickled, for a process that saves beside the training.
        torch.serialization.save = torch.save
        safetensors = sys.modules.get("safetensors.torch")
        if safetensors is not None:
            name = "serialize_file" if hasattr(safetensors, "serialize_file") else "save_file"
            _wrap(safetensors, name, lambda *args, **kwargs: self._saved(*args[1:], **kwargs))
        distributed = sys.modules.get("torch.distributed.checkpoint")
        if distributed is not None:
            for name in ("save", "async_save"):
                _wrap(distributed, name, self._distributed)

    def take(self) -> list[str]:
        """Return the paths since the last call, absolute and without links. What was saved into
        memory has none."""
        taken, self._paths = self._paths, []
        return taken

    def _saved(self, place: Any = None, *_: Any, **named: Any) -> None:
        with contextlib.suppress(Exception):  # an own file may have any name
            place = named.get("f", named.get("filename", place))
            if not isinstance(place, str | os.PathLike):
                place = getattr(place, "name", None)  # of an open file
            if not isinstance(place, str | os.PathLike) or len(self._paths) >= MOST_PATHS:
                return
            path = os.path.realpath(os.fsdecode(place))
            if path not in self._paths:
                self._paths.append(path)

    def _distributed(self, *_: Any, **named: Any) -> None:
        writer = named.get("storage_writer")
        self._saved(named.get("checkpoint_id") or getattr(writer, "path", None))


def _wrap(holder: Any, name: str, before: Callable[..., None]) -> None:
    original = getattr(holder, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def saves(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(holder, name, saves)


def holds_a_model(paths: Sequence[str], size: int) -> bool:
    """Whether saved files may hold so many numbers, with at least a byte for each. Folders, and
    files that were moved, are not measured."""
    files = [Path(path) for path in paths]
    if not all(one.is_file() for one in files):
        return True
    return bool(files) and sum(one.stat().st_size for one in files) >= size
