"""Read a dataset's rows from the embedded files, a local file or folder, or the hub."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from pyarrow.lib import ArrowException

from canary.errors import DISK_FULL, InputError
from canary.inputs.embedded import EMBEDDED_DATA
from canary.inputs.locations import FORMATS, data_place
from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

_LOADING_FAILED = (
    DatasetNotFoundError,
    DatasetGenerationError,
    FileNotFoundError,
    ConnectionError,
    HfHubHTTPError,
    RuntimeError,
    ValueError,
    ArrowException,
    StopIteration,
)


def read_source(spec: WorkloadSpec) -> Dataset:
    """Return every row of the split that the config names, with its original columns.

    Raises InputError if the dataset does not exist or cannot be read.
    """
    config = spec.config
    path = data_place(config.dataset_name, config.training_type) or _prefetched(config)
    if path is not None and config.dataset_name == EMBEDDED_DATA:
        lines = path.read_text(encoding="utf-8").splitlines()
        return Dataset.from_list([json.loads(line) for line in lines if line])
    cache = str(spec.cache_dir / "datasets")
    try:
        if path is None:
            return _read_hub(config, cache)
        if path.is_dir():
            return _read_folder(path, config, cache)
        return _read_file(path, config, cache)
    except _LOADING_FAILED as error:
        raise _unreadable(config.dataset_name, config.dataset_split, error) from error


def _read_file(path: Path, config: CanaryConfig, cache: str) -> Dataset:
    builder = FORMATS.get(path.suffix)
    if builder is None:
        raise InputError(
            f"dataset file '{path}' has the unknown extension '{path.suffix}'",
            f"known: {', '.join(FORMATS)}",
        )
    split = config.dataset_split
    named = re.match(r"\w+", split)
    return load_dataset(
        builder,
        data_files={named.group() if named else "train": str(path)},
        split=split,
        cache_dir=cache,
    )


def _read_folder(path: Path, config: CanaryConfig, cache: str) -> Dataset:
    split = config.dataset_split
    if not ((path / "state.json").exists() or (path / "dataset_dict.json").exists()):
        return load_dataset(str(path), split=split, cache_dir=cache)
    saved = load_from_disk(str(path))
    if not isinstance(saved, DatasetDict):
        return saved
    if split not in saved:
        raise InputError(
            f"dataset '{config.dataset_name}' has no split '{split}'",
            f"set dataset_split to one of: {', '.join(map(str, saved))}",
        )
    return saved[split]


def _read_hub(config: CanaryConfig, cache: str) -> Dataset:
    try:
        return load_dataset(
            config.dataset_name,
            split=config.dataset_split,
            revision=config.dataset_revision,
            cache_dir=cache,
        )
    except (DatasetNotFoundError, ConnectionError, HfHubHTTPError) as error:
        raise InputError(
            f"dataset '{config.dataset_name}' is not a local file or folder, and the Hugging Face "
            f"hub did not provide it: {_first_line(error)}",
            "check the name, dataset_revision, the network, HF_HUB_OFFLINE and HF_TOKEN",
        ) from error


def _prefetched(config: CanaryConfig) -> Path | None:
    """Return the snapshot in the hub's cache if offline; None if online or not cached.

    Offline, `load_dataset` itself only finds datasets that it has prepared before.
    """
    if not constants.HF_HUB_OFFLINE:
        return None
    try:
        folder = snapshot_download(
            config.dataset_name,
            repo_type="dataset",
            revision=config.dataset_revision,
            local_files_only=True,
        )
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return Path(folder)


def _unreadable(name: str, split: str, error: Exception) -> BaseException:
    """Return the InputError for a failed load, or the underlying error if the disk is full."""
    wrapped = isinstance(error, DatasetGenerationError) and error.__cause__
    cause = wrapped or error
    if isinstance(cause, OSError) and cause.errno in DISK_FULL:
        return cause
    return InputError(
        f"dataset '{name}' (split '{split}') cannot be read: {_first_line(cause)}",
        "check its files and dataset_split",
    )


def _first_line(error: BaseException) -> str:
    if isinstance(error, StopIteration):
        return "it holds no rows"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
