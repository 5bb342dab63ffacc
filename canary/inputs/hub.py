"""Check with one request that the Hugging Face hub or its local cache has a model or dataset.

Without this check, loading retries for a minute and gives the same reason for every problem.
"""

from __future__ import annotations

import os
from pathlib import Path

from canary.errors import InputError
from canary.inputs.locations import Kind, local_suggestion
from canary.protocol.spec import is_there

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
