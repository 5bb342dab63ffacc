"""What a user's own trainer was set to, in the keys of a config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.config.trainers import EXEC_KEYS, OWN_KEYS
from canary.protocol.job import Kind

NOT_TAKEN = ("bf16", "fp16", "use_cpu", "num_train_epochs", "max_steps", "data_seed", "report_to")
"""Arguments whose key of the config means something else, or is filled in another way."""


def asked_config(config: CanaryConfig) -> dict[str, Any]:
    """The `config` of a record before anything was trained: for a command, the keys that it has;
    what it trains is not known yet, and no default of a built-in canary is. Secrets are hidden."""
    keys = set(EXEC_KEYS) if config.training_type == "exec" else None
    found = config.model_dump(mode="json", include=keys)
    return found | ({"command": hidden(config.command)} if config.command else {})


def as_config(training: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """Keys of the record's `config` from what the training process said of its trainer (see
    `canary.training.exact.trainer_settings`): a comparison then names `learning_rate` for a user's script
    as it does for a built-in canary."""
    arguments = dict(training["arguments"])
    found: dict[str, Any] = {
        "trainer": training["trainer"],
        "training_type": training["training_type"],
        "model_name": training["model_name"],
        "dtype": training["dtype"],
        "use_peft": training["use_peft"],
    }
    for name, key in OWN_KEYS.items():
        if name in arguments and name not in NOT_TAKEN:
            found[key] = arguments.pop(name)
    if kind == "probe":
        # Only the probe's own settings differ from those of the launch that is timed.
        arguments.pop("output_dir", None)
    return found | {"trainer_args": arguments}
