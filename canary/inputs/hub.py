"""Whether the Hugging Face hub, or its cache here, has what a config names: asked in one request.

Left to themselves, the packages that load models try for a minute, and name one reason for all.
"""

from __future__ import annotations

import os
from pathlib import Path

from canary.errors import InputError
from canary.inputs.locations import Kind, meant
from canary.protocol.spec import is_there

PATIENCE_S = 5.0
"""How long the hub has for its answer."""
SUSPICION_S = 1.0
"""The same, where something here is spelt nearly as what is asked for."""


def require_on_hub(
    kind: Kind, name: str, revision: str | None, *, what: str | None = None, prepared: Path
) -> None:
    """Returns where the cache has it, where the hub gives it, or where no clear answer comes.

    `what` it is called in errors; `prepared`: where `load_dataset` keeps what it has prepared.

    Raises:
        InputError: the hub cannot be reached, gives it to nobody or not to this machine, or has
            no such thing; names what is here under nearly that name.
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
    near = meant(Path(name), kind)
    shown = f"{what or kind} '{name}'"
    here = f"{shown} is not a {'folder' if kind == 'model' else 'file or folder'} here"
    if constants.HF_HUB_OFFLINE:
        raise InputError(
            f"{here}, not in the cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set",
            near or f"give a local one, or download it first: hf download {_typed(kind, name)}",
        )
    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{name}"
    try:
        url = hf_hub_url(name, "config.json", repo_type=kind, revision=revision)
        get_hf_file_metadata(url, timeout=SUSPICION_S if near else PATIENCE_S)
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
        return  # It is there without that file, or the hub is busy: the training asks again.
    except (OSError, HTTPError) as error:
        raise InputError(
            f"{here}, not in the cache, and the hub at {constants.ENDPOINT} cannot be reached: "
            f"{' '.join(str(error).split())[:200]}",
            near or "check the network, or give a local one",
        ) from error


def _unreadable(kind: Kind, *, with_token: bool) -> str:
    """The hub gives one answer for what is absent and for what is private."""
    if with_token:
        return f"your token can read no such {kind} on the hub"
    return f"the hub has no such {kind}, or it is private and HF_TOKEN is not set"


def _is_cached(kind: Kind, name: str, cache: Path, prepared: Path) -> bool:
    """Whether something of it is there: what it is worth, loading shows."""
    older = os.environ.get("TRANSFORMERS_CACHE")
    folders = [cache, *([Path(older)] if older else [])]
    places = [folder / f"{kind}s--{name.replace('/', '--')}" / "snapshots" for folder in folders]
    if kind == "dataset":
        kept = os.environ.get("HF_DATASETS_CACHE")
        own = name.replace("/", "___")
        places += [prepared / own, *([Path(kept) / own] if kept else [])]
    return any(is_there(place) for place in places)


def _typed(kind: Kind, name: str) -> str:
    return name if kind == "model" else f"--repo-type dataset {name}"
