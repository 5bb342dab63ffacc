"""What writes files from native code, or keeps caches, and how `canary.runner.noting` hears of it.

Loaded in each Python process of the user's command. Standard library only, and little of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Protocol


class Hears(Protocol):
    """The notes of this process (see `canary.runner.noting`)."""

    def writes(self, path: Any) -> None:
        """A file is about to be written."""

    def cache(self, path: str) -> None:
        """A folder is a cache."""


def hear_torch(module: ModuleType, notes: Hears) -> None:
    """`torch.save` writes from native code: `module` is `torch.serialization`."""
    native = module.torch._C
    original = native.PyTorchFileWriter

    class PyTorchFileWriter(original):  # type: ignore[misc, valid-type]
        def __init__(self, name: Any, *args: Any, **kwargs: Any) -> None:
            notes.writes(name)
            super().__init__(name, *args, **kwargs)

    native.PyTorchFileWriter = PyTorchFileWriter


def hear_safetensors(module: ModuleType, notes: Hears) -> None:
    """`save_file` of every framework: `module` is `safetensors._safetensors_rust`."""
    original = module.serialize_file

    def serialize_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        notes.writes(filename)
        return original(tensors, filename, *args, **kwargs)

    module.serialize_file = serialize_file  # type: ignore[attr-defined]


def hear_tokenizers(module: ModuleType, notes: Hears) -> None:
    """`tokenizer.json` of `save_pretrained`."""
    original = module.Tokenizer.save

    def save(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        notes.writes(path)
        return original(self, path, *args, **kwargs)

    module.Tokenizer.save = save


def hear_datasets(module: ModuleType, notes: Hears) -> None:
    """A cache in a folder of the user's own, of which the first part of a dataset's own path is the
    cache's alone: `module` is `datasets.builder`."""
    original = module.DatasetBuilder.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        root = self._cache_dir_root
        with suppress(OSError, ValueError):
            own = os.path.relpath(self._cache_dir, root).partition("/")[0]
            if own not in ("", ".", ".."):
                notes.cache(f"{root}/{own}")

    module.DatasetBuilder.__init__ = init


WRITERS = {
    "datasets.builder": hear_datasets,
    "torch.serialization": hear_torch,
    "safetensors._safetensors_rust": hear_safetensors,
    "tokenizers": hear_tokenizers,
}
"""Modules of which Python's own events do not tell all, and how they are heard."""


def listeners(notes: Hears) -> dict[str, Callable[[ModuleType], None]]:
    """What to call when a module is loaded, by its name."""
    return {name: partial(_heard_from, hear, notes) for name, hear in WRITERS.items()}


def _heard_from(hear: Callable[..., None], notes: Hears, module: ModuleType) -> None:
    """Another version may have other names; then nothing is noted of it."""
    with suppress(AttributeError, TypeError):
        hear(module, notes)
