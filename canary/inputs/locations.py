"""Find out what the name of a model or dataset means: embedded, a local path, or the hub.

Importing this loads no torch: the parent process of a run checks names before anything starts.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Literal

from canary.errors import InputError, did_you_mean, nearest
from canary.inputs.embedded import (
    EMBEDDED_DATA,
    EMBEDDED_MODEL,
    EMBEDDED_REWARD,
    data_file,
    reward_dir,
    tiny_dir,
)
from canary.inputs.embedded.sizes import parse_random_name
from canary.inputs.row_shapes import shape_of
from canary.protocol.spec import is_there, local_path

Kind = Literal["model", "dataset"]
FORMATS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
"""Suffix of a data file -> its format in `load_dataset`."""
MOST_NAMES = 5_000
"""Names of a folder that are compared with a misspelt name."""

WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf"}
"""Suffixes of weight files; the name of an index of several files contains one too."""


def model_folder(name: str, what: str = "model") -> Path | None:
    """Return the folder that a model is loaded from; None if only the hub can have it.

    `what`: its name in errors. Raises InputError if nothing has that name.
    """
    if name == EMBEDDED_REWARD:
        return reward_dir()
    if name == EMBEDDED_MODEL or parse_random_name(name) is not None:
        return tiny_dir()
    if name.startswith("embedded/"):
        raise InputError(
            f"there is no embedded {what} '{name}'",
            f"known: {EMBEDDED_MODEL}, {EMBEDDED_REWARD} and embedded/random-70m (10m to 1b)",
        )
    path = local_path(name)
    if path is not None and not (is_there(path) and path.is_dir()):
        embedded = EMBEDDED_REWARD if what == "reward model" else EMBEDDED_MODEL
        raise InputError(
            f"{what} '{name}' does not exist: no folder {path.absolute()}",
            local_suggestion(path, "model")
            or f"give a folder made by save_pretrained, a hub id, or {embedded}",
        )
    return path


def require_weights(named: str, folder: Path) -> None:
    """Raise InputError if the folder has no weights. `named`: the model's name in the error."""
    if not any(WEIGHTS.intersection(file.suffixes) for file in folder.iterdir()):
        raise InputError(
            f"{named} has no weights: no .safetensors or .bin file in {folder.absolute()}",
            "give a folder made by save_pretrained",
        )


def data_place(name: str, training_type: str) -> Path | None:
    """Return the file or folder of a dataset; None if only the hub can have it.

    Raises InputError if nothing has that name.
    """
    if name == EMBEDDED_DATA:
        return data_file(shape_of(training_type).embedded)
    if name.startswith("embedded/"):
        raise InputError(f"there is no embedded dataset '{name}'", f"known: {EMBEDDED_DATA}")
    path = local_path(name)
    if path is None and Path(name).suffix in FORMATS:
        path = Path(name)
    if path is not None and not is_there(path):
        raise InputError(
            f"dataset '{name}' does not exist: no file or folder {path.absolute()}",
            local_suggestion(path, "dataset")
            or "give a .jsonl, .json or .parquet file, a folder of them, a save_to_disk folder, "
            "a hub id, or embedded/tasks",
        )
    return path


def local_suggestion(path: Path, kind: Kind) -> str | None:
    """Return "did you mean ..." with an existing path of similar spelling, or None."""
    found = Path(path.anchor)
    for part in path.relative_to(path.anchor).parts:
        step = found / part
        if not (is_there(step) and (kind == "dataset" or step.is_dir())):
            names: list[str] = []
            with contextlib.suppress(OSError):
                entries = itertools.islice(found.iterdir(), MOST_NAMES)
                names = [e.name for e in entries if kind == "dataset" or e.is_dir()]
            near = nearest(part, names)
            if near is None:
                return None
            step = found / near
        found = step
    return did_you_mean(found)
