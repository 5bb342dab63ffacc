"""The config of a record, for a bisect that names none.

A stranger may have written the record. So only keys that run no code of their own are used.
"""

from __future__ import annotations

from typing import Any

import yaml

from canary.bisect.packages.pins import Pins
from canary.config.schema import CanaryConfig
from canary.errors import UsageError, printable

SAFE = frozenset(
    {
        *("name", "tier", "training_type", "model_name", "model_revision", "dtype"),
        *("use_peft", "lora_r", "lora_alpha", "lora_dropout", "load_in_4bit", "load_in_8bit"),
        *("dataset_name", "dataset_revision", "dataset_split", "dataset_size", "allow_repeat"),
        *("max_steps", "batch_size", "gradient_accumulation_steps", "learning_rate"),
        *("warmup_steps", "max_length", "max_prompt_length", "beta", "max_new_tokens"),
        *("num_generations", "temperature", "fixed_length", "seed", "speed", "device", "threads"),
        *("nproc", "num_workers", "metrics_warmup_steps", "look_steps", "exact", "timeout"),
        *("thresholds", "metrics"),
    }
)
HARMLESS = frozenset({"description", "repeats", "output_dir", "stop_on", "check"})
"""Left out: a bisect decides them, or nobody needs them."""
TRAINS_ALONE = ("exec", "custom")
NAME_IT = "name a config: canary bisect CONFIG --packages GOOD BAD"


def recorded_config(good: Pins, bad: Pins) -> str:
    """Return the YAML of a record's config: that of the good end, if it is a record.

    Raises:
        UsageError: no end is a record with a config, or its config runs code.
    """
    pins = next((one for one in (good, bad) if one.record is not None and one.record.config), None)
    if pins is None or pins.record is None:
        raise UsageError("no config", NAME_IT)
    defaults = CanaryConfig().model_dump(mode="json")
    kept: dict[str, Any] = {}
    for key, value in pins.record.config.items():
        if key in HARMLESS or value == defaults.get(key):
            continue
        if key not in SAFE or (key == "training_type" and value in TRAINS_ALONE):
            raise UsageError(
                f"the config of {pins.source} sets `{printable(str(key))[:40]}`, which may run "
                "a stranger's code",
                NAME_IT,
            )
        kept[key] = value
    return yaml.safe_dump(kept, sort_keys=False)
