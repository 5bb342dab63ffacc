"""Load a model by name: an embedded one, from a local folder, or from the hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from safetensors import SafetensorError

from canary.errors import InputError
from canary.inputs.embedded import reward_dir, tiny_dir
from canary.inputs.locations import model_folder

Loaded = TypeVar("Loaded")


def from_named(
    name: str,
    load: Callable[[str, dict[str, Any]], Loaded],
    revision: str | None = None,
    *,
    trusted: bool = False,
    what: str = "model",
) -> Loaded:
    """Run `load(source, access)` for the folder or hub id that `name` means.

    `access`: arguments of `from_pretrained`. `trusted`: code from the hub may run. `what`: the word
    for the model in errors. Raises InputError if nothing has that name or it cannot be loaded;
    ImportErrors pass through.
    """
    folder = model_folder(name, what)
    access: dict[str, Any] = {"trust_remote_code": trusted}
    if folder in (reward_dir(), tiny_dir()):
        access = {}
    elif folder is None and revision is not None:
        access["revision"] = revision
    try:
        return load(str(folder or name), access)
    except (OSError, ValueError, SafetensorError) as error:
        raise _not_loadable(f"{what} '{name}'", folder is not None, error) from error


def _not_loadable(what: str, is_folder: bool, error: Exception) -> Exception:
    """Return the InputError for a failed load, or the error itself if the disk or memory failed."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    lines = [line for line in str(error).strip().splitlines() if line]
    reason = " ".join(lines[:4])[:300] if lines else type(error).__name__
    if is_folder or not isinstance(error, OSError):
        return InputError(
            f"{what} cannot be loaded: {reason}",
            "check its config.json, weights and tokenizer files, and trust_remote_code",
        )
    return InputError(
        f"{what} is not a local folder, and the Hugging Face hub did not provide it: {reason}",
        "check the name, its revision, the network, HF_HUB_OFFLINE and HF_TOKEN",
    )
