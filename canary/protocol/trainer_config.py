"""The settings of a user's trainer under the keys of a config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.config.trainers import EXEC_KEYS, OWN_KEYS

NOT_TAKEN = ("bf16", "fp16", "use_cpu", "num_train_epochs", "max_steps", "data_seed", "report_to")
"""Arguments whose config key has another meaning or is filled in elsewhere."""


def asked_config(config: CanaryConfig) -> dict[str, Any]:
    """Return a record's `config` before training, with secrets hidden. A command has only `exec`
    keys: its training is not known yet, and the defaults of a built-in canary do not apply."""
    keys = set(EXEC_KEYS) if config.training_type == "exec" else None
    found = config.model_dump(mode="json", include=keys)
    return found | ({"command": hidden(config.command)} if config.command else {})


def as_config(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of the record's `config` from a trainer's settings (see
    `canary.training.exact.effective`). Comparisons then name `learning_rate` for a user's
    script as for a built-in canary."""
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
    return found | {"trainer_args": arguments}
