"""Find out what the name of a model or dataset means: embedded, a local path, or the hub.

One request asks the hub or its local cache. Without it, loading retries for a minute and gives the
same reason for every problem. This loads no torch: the parent checks names before a run starts.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Literal

from canary.errors import InputError, did_you_mean, nearest
from canary.inputs.embedded import (
    EMBEDDED_DATA,
    EMBEDDED_MODEL,
    EMBEDDED_REWARD,
    data_file,
    parse_random_name,
    reward_dir,
    tiny_dir,
)
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


TIMEOUT_S = 5.0
"""Timeout of the request."""
MISSPELT_TIMEOUT_S = 1.0
"""Timeout if a local file has a similar name: then the name is probably misspelt."""


def require_on_hub(
    kind: Kind, name: str, revision: str | None, *, what: str | None = None, prepared: Path
) -> None:
    """Return if the cache or the hub has it, or if the hub gives no clear answer.

    `what`: its name in errors; `prepared`: the folder in which `load_dataset` keeps prepared data.

    Raises:
        InputError: the hub cannot be reached, refuses access, or does not have it. The hint names
            a local file with a similar name.
    """
    from huggingface_hub import constants, get_hf_file_metadata, get_token, hf_hub_url
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        HTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if _is_cached(kind, name, Path(constants.HF_HUB_CACHE), prepared):
        return
    near = local_suggestion(Path(name), kind)
    shown = f"{what or kind} '{name}'"
    here = f"{shown} is not a local {'folder' if kind == 'model' else 'file or folder'}"
    if constants.HF_HUB_OFFLINE:
        raise InputError(
            f"{here}, not in the cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set",
            near or f"give a local one, or download it first: hf download {_typed(kind, name)}",
        )
    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{name}"
    try:
        url = hf_hub_url(name, "config.json", repo_type=kind, revision=revision)
        get_hf_file_metadata(url, timeout=MISSPELT_TIMEOUT_S if near else TIMEOUT_S)
    except HFValidationError as error:
        raise InputError(
            f"{here}, and not a valid name on the hub", near or "check the path"
        ) from error
    except GatedRepoError as error:
        raise InputError(
            f"{shown} is gated, and this machine has no access to it",
            f"accept its terms at {page}, and set HF_TOKEN to your token",
        ) from error
    except RevisionNotFoundError as error:
        raise InputError(
            f"{shown} has no revision '{revision}' on the hub", f"see {page}/commits/main"
        ) from error
    except RepositoryNotFoundError as error:
        words = _unreadable(kind, with_token=bool(get_token()))
        raise InputError(f"{here}, and {words}", near or f"check the name: {page}") from error
    except (EntryNotFoundError, HfHubHTTPError):
        return  # It exists without that file, or the hub is busy: the training asks again.
    except (OSError, HTTPError) as error:
        raise InputError(
            f"{here}, not in the cache, and the hub at {constants.ENDPOINT} cannot be reached: "
            f"{' '.join(str(error).split())[:200]}",
            near or "check the network, or give a local one",
        ) from error


def _unreadable(kind: Kind, *, with_token: bool) -> str:
    """Return the reason in words; the hub does not tell a missing from a private repository."""
    if with_token:
        return f"your token can read no such {kind} on the hub"
    return f"the hub has no such {kind}, or it is private and HF_TOKEN is not set"


def _is_cached(kind: Kind, name: str, cache: Path, prepared: Path) -> bool:
    """Return whether the cache has any of it; loading finds out whether it is complete."""
    older = os.environ.get("TRANSFORMERS_CACHE")
    folders = [cache, *([Path(older)] if older else [])]
    places = [folder / f"{kind}s--{name.replace('/', '--')}" / "snapshots" for folder in folders]
    if kind == "dataset":
        kept = os.environ.get("HF_DATASETS_CACHE")
        folder_name = name.replace("/", "___")
        places += [Path(root) / folder_name for root in (prepared, kept) if root]
    return any(is_there(place) for place in places)


def _typed(kind: Kind, name: str) -> str:
    return name if kind == "model" else f"--repo-type dataset {name}"
