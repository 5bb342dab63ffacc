"""Reports writes from native code, and caches, to `canary.runner.exec.file_notes`.

Loaded in each Python process of the user's command. Standard library only, and little of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from types import ModuleType
from typing import Any, Protocol


class FileNotes(Protocol):
    """The notes of this process (see `canary.runner.exec.file_notes`)."""

    def before_write(self, path: Any) -> None:
        """A file is about to be written."""

    def note_cache(self, path: str) -> None:
        """A folder is a cache."""

    def before_open(self, path: Any, flags: int, descriptor: int) -> None:
        """A file is about to be opened, relative to an open folder."""

    def paused(self) -> AbstractContextManager[None]:
        """Ignore this thread's events meanwhile."""

    def before_training(self) -> None:
        """A training is about to begin."""


def report_open(notes: FileNotes) -> None:
    """Report `os.open` with `dir_fd`: Python's audit event leaves out that folder."""
    original = os.open

    @wraps(original)
    def opens(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is None:
            return original(path, flags, mode)
        notes.before_open(path, flags, dir_fd)
        with notes.paused():
            return original(path, flags, mode, dir_fd=dir_fd)

    os.supports_dir_fd.add(opens)
    os.open = opens


def report_nodes(notes: FileNotes) -> None:
    """Report new pipes and other nodes, which have no audit event."""
    for name in ("mkfifo", "mknod"):
        original = getattr(os, name, None)
        if original is not None:
            setattr(os, name, _node_maker(original, notes))


def _node_maker(original: Callable[..., None], notes: FileNotes) -> Callable[..., None]:
    @wraps(original)
    def makes(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> None:
        notes.before_open(path, os.O_CREAT, -1 if dir_fd is None else dir_fd)
        original(path, *args, **kwargs, **({} if dir_fd is None else {"dir_fd": dir_fd}))

    return makes


def report_shared_memory(module: ModuleType, notes: FileNotes) -> None:
    """Report named blocks, which are files; `module` is `multiprocessing.shared_memory`."""
    native = module._posixshmem
    original = native.shm_open

    def shm_open(path: str, flags: int, *args: Any, **kwargs: Any) -> Any:
        notes.before_open("/dev/shm/" + path.lstrip("/"), flags, -1)
        return original(path, flags, *args, **kwargs)

    native.shm_open = shm_open


def report_torch(module: ModuleType, notes: FileNotes) -> None:
    """Report `torch.save`; `module` is `torch.serialization`."""
    native = module.torch._C
    original = native.PyTorchFileWriter

    class PyTorchFileWriter(original):  # type: ignore[misc, valid-type]
        def __init__(self, name: Any, *args: Any, **kwargs: Any) -> None:
            notes.before_write(name)
            super().__init__(name, *args, **kwargs)

    native.PyTorchFileWriter = PyTorchFileWriter


def report_safetensors(module: ModuleType, notes: FileNotes) -> None:
    """Report `save_file` of every framework; `module` is `safetensors._safetensors_rust`."""
    original = module.serialize_file

    def serialize_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        notes.before_write(filename)
        return original(tensors, filename, *args, **kwargs)

    module.serialize_file = serialize_file  # type: ignore[attr-defined]


def report_tokenizers(module: ModuleType, notes: FileNotes) -> None:
    """Report `tokenizer.json` and vocabularies; `module` is `tokenizers`."""
    original = module.Tokenizer.save

    def save(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        notes.before_write(path)
        return original(self, path, *args, **kwargs)

    module.Tokenizer.save = save
    model_save = module.models.Model.save

    def save_model(self: Any, folder: Any, *args: Any, **kwargs: Any) -> Any:
        prefix = next(iter((*args, *kwargs.values())), None)
        for name in VOCABULARIES:
            notes.before_write(
                f"{os.fspath(folder)}/{prefix}-{name}" if prefix else f"{folder}/{name}"
            )
        return model_save(self, folder, *args, **kwargs)

    module.models.Model.save = save_model


def report_datasets(module: ModuleType, notes: FileNotes) -> None:
    """Report a dataset's folder in a cache folder that the user chose, which may hold other files
    too; `module` is `datasets.builder`."""
    original = module.DatasetBuilder.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        root = self._cache_dir_root
        with suppress(OSError, ValueError):
            folder = os.path.relpath(self._cache_dir, root).partition("/")[0]
            if folder not in ("", ".", ".."):
                notes.note_cache(f"{root}/{folder}")

    module.DatasetBuilder.__init__ = init


def report_hdf5(module: ModuleType, notes: FileNotes) -> None:
    """Report files of h5py; `module` is `h5py._hl.files`."""
    original = module.File.__init__

    def init(self: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        if mode != "r":
            notes.before_write(name)
        original(self, name, mode, *args, **kwargs)

    module.File.__init__ = init


def report_parquet(module: ModuleType, notes: FileNotes) -> None:
    """Report tables of pandas and pyarrow; `module` is `pyarrow.parquet.core`."""
    original = module.ParquetWriter.__init__

    def init(self: Any, where: Any, *args: Any, **kwargs: Any) -> None:
        notes.before_write(where)
        original(self, where, *args, **kwargs)

    module.ParquetWriter.__init__ = init


VOCABULARIES = ("vocab.json", "merges.txt", "vocab.txt", "unigram.json")
"""Files that a tokenizer's model may save."""
WRITERS = {
    "multiprocessing.shared_memory": report_shared_memory,
    "datasets.builder": report_datasets,
    "h5py._hl.files": report_hdf5,
    "pyarrow.parquet.core": report_parquet,
    "torch.serialization": report_torch,
    "safetensors._safetensors_rust": report_safetensors,
    "tokenizers": report_tokenizers,
}
"""Per module, the function that reports the writes without an audit event."""


def reporters(notes: FileNotes) -> dict[str, Callable[[ModuleType], None]]:
    """Return the functions to call with a module when it is loaded, by its name."""
    return {name: partial(_try, report, notes) for name, report in WRITERS.items()}


def _try(report: Callable[..., None], notes: FileNotes, module: ModuleType) -> None:
    """Another version of a package may have other names: its writes stay unnoticed."""
    with suppress(AttributeError, TypeError):
        report(module, notes)
