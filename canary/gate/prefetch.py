"""Download the models and datasets of the configs, in a job without code of a pull request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from canary.config.load import LoadedConfig, load_config
from canary.config.token import Token
from canary.errors import MachineError, UsageError

EMBEDDED = "embedded/"
CODE = ("*.py",)
"""Not downloaded with a model unless its config trusts remote code."""

Download = Callable[..., str]
"""`huggingface_hub.snapshot_download`."""


def wanted(loaded: LoadedConfig, folder: Path) -> list[tuple[str, str, str | None]]:
    """Return (kind, id, revision) of what a config needs from the hub, without embedded models and
    local folders."""
    config = loaded.config
    named = [
        ("model", config.model_name, config.model_revision),
        ("dataset", config.dataset_name, config.dataset_revision),
    ]
    if config.ppo is not None and config.ppo.reward_model is not None:
        named.append(("model", config.ppo.reward_model, None))
    return [
        (kind, name, revision)
        for kind, name, revision in named
        if not name.startswith(EMBEDDED) and not (folder / name).exists() and name.count("/") <= 1
    ]


def prefetch(
    configs: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    download: Download,
    say: Callable[[str], None],
) -> None:
    """Download every model and dataset into `hub` of the cache; what is there stays.

    Raises:
        UsageError: no cache is set.
        MachineError: a download fails.
    """
    home = environ.get("CANARY_MODEL_CACHE") or environ.get("HF_HOME")
    if not home:
        raise UsageError("input model-cache is empty", "set a folder that stays on the runner")
    token = Token(environ.get("HF_TOKEN", ""))
    for config in configs:
        loaded = load_config(folder / config)
        leave_out = [] if loaded.config.trust_remote_code else list(CODE)
        for kind, name, revision in wanted(loaded, folder):
            say(f"{config}: {kind} {name}")
            try:
                download(
                    repo_id=name,
                    repo_type=kind,
                    revision=revision,
                    cache_dir=os.path.join(home, "hub"),  # noqa: PTH118 - a text for the library
                    token=token.reveal() or None,
                    ignore_patterns=leave_out if kind == "model" else None,
                )
            except (OSError, ValueError) as error:
                reason = token.scrub(str(error)).strip().splitlines() or ["no reason given"]
                raise MachineError(
                    f"cannot download {kind} {name}: {reason[0]}",
                    "a gated model needs HF_TOKEN in this job's environment",
                ) from None
    say(f"{home} has what the configs name")
