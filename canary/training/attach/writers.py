"""What writes files from native code, or keeps caches, and how `canary.runner.exec.file_notes` hears of it.

Loaded in each Python process of the user's command. Standard library only, and little of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from types import ModuleType
from typing import Any, Protocol


class Hears(Protocol):
    """The notes of this process (see `canary.runner.exec.file_notes`)."""

    def writes(self, path: Any) -> None:
        """A file is about to be written."""

    def cache(self, path: str) -> None:
        """A folder is a cache."""

    def opened(self, path: Any, flags: int, descriptor: int) -> None:
        """A file is about to be opened, relative to an open folder."""

    def deaf(self) -> AbstractContextManager[None]:
        """Nothing is heard meanwhile."""

    def trains(self) -> None:
        """A training begins."""


def hear_open(notes: Hears) -> None:
    """Of `os.open`, Python tells the path and not the folder that it is relative to."""
    original = os.open

    @wraps(original)
    def opens(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is None:
            return original(path, flags, mode)
        notes.opened(path, flags, dir_fd)
        with notes.deaf():
            return original(path, flags, mode, dir_fd=dir_fd)

    os.supports_dir_fd.add(opens)
    os.open = opens


def hear_nodes(notes: Hears) -> None:
    """Pipes and other nodes, of which no event tells."""
    for name in ("mkfifo", "mknod"):
        original = getattr(os, name, None)
        if original is not None:
            setattr(os, name, _node_maker(original, notes))


def _node_maker(original: Callable[..., None], notes: Hears) -> Callable[..., None]:
    @wraps(original)
    def makes(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> None:
        notes.opened(path, os.O_CREAT, -1 if dir_fd is None else dir_fd)
        original(path, *args, **kwargs, **({} if dir_fd is None else {"dir_fd": dir_fd}))

    return makes


def hear_shared_memory(module: ModuleType, notes: Hears) -> None:
    """Named blocks, which are files: `module` is `multiprocessing.shared_memory`."""
    native = module._posixshmem
    original = native.shm_open

    def shm_open(path: str, flags: int, *args: Any, **kwargs: Any) -> Any:
        notes.opened("/dev/shm/" + path.lstrip("/"), flags, -1)
        return original(path, flags, *args, **kwargs)

    native.shm_open = shm_open


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
    model_save = module.models.Model.save

    def save_model(self: Any, folder: Any, *args: Any, **kwargs: Any) -> Any:
        prefix = next(iter((*args, *kwargs.values())), None)
        for name in VOCABULARIES:
            notes.writes(f"{os.fspath(folder)}/{prefix}-{name}" if prefix else f"{folder}/{name}")
        return model_save(self, folder, *args, **kwargs)

    module.models.Model.save = save_model


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


def hear_hdf5(module: ModuleType, notes: Hears) -> None:
    """Files of h5py: `module` is `h5py._hl.files`."""
    original = module.File.__init__

    def init(self: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        if mode != "r":
            notes.writes(name)
        original(self, name, mode, *args, **kwargs)

    module.File.__init__ = init


def hear_parquet(module: ModuleType, notes: Hears) -> None:
    """Tables that pandas and pyarrow write: `module` is `pyarrow.parquet.core`."""
    original = module.ParquetWriter.__init__

    def init(self: Any, where: Any, *args: Any, **kwargs: Any) -> None:
        notes.writes(where)
        original(self, where, *args, **kwargs)

    module.ParquetWriter.__init__ = init


VOCABULARIES = ("vocab.json", "merges.txt", "vocab.txt", "unigram.json")
"""What the models of tokenizers save."""
WRITERS = {
    "multiprocessing.shared_memory": hear_shared_memory,
    "datasets.builder": hear_datasets,
    "h5py._hl.files": hear_hdf5,
    "pyarrow.parquet.core": hear_parquet,
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
