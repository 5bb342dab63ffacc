"""What a model's name means: the embedded ones, a local folder, or the hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from safetensors import SafetensorError

from canary.errors import InputError
from canary.workload.embedded import EMBEDDED_MODEL, EMBEDDED_REWARD, reward_dir, tiny_dir
from canary.workload.embedded.random_llama import parse_random_name
from canary.workload.spec import local_path

Loaded = TypeVar("Loaded")


def from_named(
    name: str,
    load: Callable[[str, dict[str, Any]], Loaded],
    revision: str | None = None,
    *,
    trusted: bool = False,
    what: str = "model",
) -> Loaded:
    """Runs `load(source, access)` for the folder or hub id that `name` means.

    `access` are arguments of `from_pretrained`; `trusted`: code of the hub's may run; `what` it is
    called in errors. Raises InputError where there is nothing by that name or it cannot be loaded;
    ImportErrors pass.
    """
    if name == EMBEDDED_REWARD:
        return load(str(reward_dir()), {})
    if name == EMBEDDED_MODEL or parse_random_name(name) is not None:
        return load(str(tiny_dir()), {})
    access: dict[str, Any] = {"trust_remote_code": trusted}
    path = local_path(name)
    own = EMBEDDED_REWARD if what == "reward model" else EMBEDDED_MODEL
    if path is None and name.startswith("embedded/"):
        raise InputError(
            f"there is no embedded {what} '{name}'",
            f"known: {EMBEDDED_MODEL}, {EMBEDDED_REWARD} and embedded/random-70m (10m to 1b)",
        )
    if path is not None and not path.is_dir():
        raise InputError(
            f"{what} '{name}' is not there: no folder {path.absolute()}",
            f"give a folder made by save_pretrained, a hub id, or {own}",
        )
    if path is None and revision is not None:
        access["revision"] = revision
    try:
        return load(str(path or name), access)
    except (OSError, ValueError, SafetensorError) as error:
        raise _not_loadable(f"{what} '{name}'", path is not None, error) from error


def _not_loadable(what: str, is_folder: bool, error: Exception) -> Exception:
    """The InputError for a failed load; the error itself where the disk or memory failed."""
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
        f"{what} is neither a local folder nor a model that the Hugging Face hub gives "
        f"to this machine: {reason}",
        "check the name, its revision, the network, HF_HUB_OFFLINE and HF_TOKEN",
    )
