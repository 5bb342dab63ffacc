"""Saving of the trained model and its tokenizer, in the layout of `save_pretrained`.

Importing this loads no torch, because the parent of a run checks the folder before training.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import ConfigError, InputError

if TYPE_CHECKING:
    from canary.protocol.spec import WorkloadSpec

MARK = "canary_model.json"
"""Says how the model was trained; a folder without this file is never replaced."""


def require_place(folder: Path) -> None:
    """Raise InputError unless `folder`, or its link's target, is missing or empty, or holds a model
    that a canary saved."""
    folder = folder.resolve()
    above = next((parent for parent in folder.parents if parent.exists()), folder)
    if not above.is_dir():
        raise InputError(f"save_model '{folder}': '{above}' is a file", "name a folder")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"save_model '{folder}' is a file", "name a folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise InputError(
            f"save_model '{folder}' holds files that no canary saved",
            "name another folder, or empty it",
        )


def require_savable(trainer: Any) -> None:
    """Raise ConfigError if the model could not be saved at the end of the training."""
    key = "save_model"
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ConfigError(
            "save_model cannot save a model whose weights are sharded among ranks",
            "remove it, or train without FSDP and DeepSpeed",
            key=key,
        )
    model = _inner(trainer)
    if getattr(model, "is_quantized", False):
        raise ConfigError(
            "save_model cannot merge an adapter into quantized weights",
            "remove it, or train on weights that are not quantized",
            key=key,
        )
    if not hasattr(model, "save_pretrained"):
        raise ConfigError(
            f"save_model needs a model with save_pretrained, but {type(model).__name__} has none",
            "remove it, or train a transformers model",
            key=key,
        )


def leave_model(trainer: Any, spec: WorkloadSpec, folder: Path) -> None:
    """Save the trained model with its adapter merged, and the tokenizer; on rank 0 only.

    The folder appears, or replaces an earlier run's, only when it is complete. Do not use
    `trainer`'s model afterwards. Raises InputError if the folder cannot be written.
    """
    if not trainer.is_world_process_zero():
        return
    require_place(folder)
    folder = folder.resolve()
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _save(trainer, spec, partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except PermissionError as error:
        raise InputError(
            f"save_model '{folder}' cannot be written: {error.strerror}",
            "name a folder that you may write",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _save(trainer: Any, spec: WorkloadSpec, folder: Path) -> None:
    model = _inner(trainer)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    _put_back_settings(model)
    model.save_pretrained(str(folder))
    tokenizer = getattr(trainer, "processing_class", None) or getattr(trainer, "tokenizer", None)
    if tokenizer is not None:
        tokenizer.save_pretrained(str(folder))
    about = {
        "canary": spec.config.name,
        "training_type": spec.config.training_type,
        "model_name": spec.config.model_name,
        "dataset_name": spec.config.dataset_name,
        "steps": trainer.state.global_step,
    }
    left_out = spec.config.trainer.not_saved
    if left_out:
        about["not_saved"] = left_out
    (folder / MARK).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _put_back_settings(model: Any) -> None:
    """Restore `use_cache` and dropout from the model's source: transformers' Trainer overwrites
    the first, and trainers of policies switch off the second."""
    config = getattr(model, "config", None)
    source = getattr(config, "_name_or_path", "")
    if config is None or not source or not hasattr(config, "use_cache"):
        return
    try:
        original = type(config).from_pretrained(source, local_files_only=True)
    except OSError:
        return  # A model without a source keeps the trainer's values.
    for name in vars(config):
        dropout = "drop" in name and isinstance(getattr(config, name), float)
        if (dropout or name == "use_cache") and hasattr(original, name):
            setattr(config, name, getattr(original, name))


def _inner(trainer: Any) -> Any:
    """Return the model itself; for PPO the policy without its value head."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model = getattr(model, "_orig_mod", model)
    return getattr(model, "policy", model)
