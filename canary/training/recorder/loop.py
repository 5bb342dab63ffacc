"""The parts of a user's loop (model, optimizers, data ...), and their description."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from canary.config.setting_names import may_be_secret
from canary.config.trainers import TRAINERS
from canary.errors import UsageError, did_you_mean, nearest
from canary.training.exact.effective import dtype_of, plain

TYPES = (*TRAINERS, "custom")


SIGNALS_OF = {
    "model": ("exact.model", "exact.first_gradient", "exact.first_update", "exact.frozen"),
    "optimizers": ("exact.trajectory.learning_rates",),
    "train_dataset": ("exact.data.dataset_sha256",),
    "processing_class": ("exact.data.tokenizer",),
}
"""What the record lacks without a part of the loop."""


@dataclass(frozen=True)
class Loop:
    """The parts of a loop, under a trainer's names for them."""

    LACKS: ClassVar[Mapping[str, str]] = {
        "model": "the Recorder was given no model",
        "optimizers": "the Recorder was given no optimizer",
        "train_dataset": "the Recorder was given no dataset",
        "processing_class": "the Recorder was given no tokenizer",
    }

    name: str
    model: Any = None
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    ref_model: Any = None
    processing_class: Any = None
    train_dataset: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The model's device; without a model, the GPU if torch uses it."""
        if self.model is not None:
            first = next(self.model.parameters(), None)
            if first is not None:
                return torch.device(first.device)
        return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")

    def describe(self) -> dict[str, Any]:
        """Return the same description as `describe_training`, plus the loop's `name`."""
        settings = _without_secrets({name: plain(value) for name, value in self.settings.items()})
        dtype = "float32" if self.model is None else dtype_of(self.model)
        return {
            "name": self.name,
            "trainer": "canary.Recorder",
            "training_type": settings.pop("training_type", "custom"),
            "model_name": settings.pop("model_name", None) or self._name_of_model(),
            # A setting says what a loop computes in; else this is the parameters' dtype.
            "dtype": settings.pop("dtype", None) or dtype,
            "use_peft": settings.pop("use_peft", self._has_adapter()),
            "world_size": int(os.environ.get("WORLD_SIZE", "1")),
            "arguments": settings,
        }

    def _has_adapter(self) -> bool:
        """Return whether peft put an adapter on the model, or the model's library a LoRA of its
        own: it trains parameters that are named as peft and torchtune do, and not all others."""
        if self.model is None or hasattr(self.model, "peft_config"):
            return self.model is not None
        named = [*self.model.named_parameters()]
        trained = [name for name, value in named if value.requires_grad]
        return len(named) > len(trained) and any("lora_" in name for name in trained)

    def _name_of_model(self) -> str | None:
        """Return the model's id on the hub, else its class: a local path does not identify it."""
        if self.model is None:
            return None
        name = getattr(getattr(self.model, "config", None), "_name_or_path", None)
        return name if name and not Path(name).exists() else type(self.model).__name__

    def loss_of(self, micro_losses: Sequence[float]) -> float | None:
        """Return a step's loss from those of its micro-batches, None without any."""
        return math.fsum(micro_losses) / len(micro_losses) if micro_losses else None

    def why_no_batch(self, given: bool) -> str:
        """Return why no batch was read. `given`: batches were given, but could not be read."""
        if given:
            return "the batches given to recorder.step hold neither numbers nor text"
        return "recorder.step was given no batch"

    def why_no_step(self, begun: bool) -> str:
        """Return why no step of the loop ended."""
        if begun and self.optimizers:
            return "no step ended: the Recorder's optimizer never stepped"
        return "the Recorder saw no step"

    def unmeasured(self) -> dict[str, str]:
        """Return the signals that this loop's record cannot hold, and why."""
        given = {**vars(self), "optimizers": self.optimizers or None}
        missing = [part for part in SIGNALS_OF if given[part] is None]
        return {name: self.LACKS[part] for part in missing for name in SIGNALS_OF[part]}


def _without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, also nested ones, without keys that look like secrets."""
    return {
        name: _without_secrets(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if not may_be_secret(str(name))
    }


def plain_optimizers(given: Any) -> tuple[torch.optim.Optimizer, ...]:
    """Return the torch optimizers of a user's argument: one, several, or wrappers of them.

    Raises:
        UsageError: another type.
    """
    if given is None:
        return ()
    several = list(given) if isinstance(given, Sequence) else [given]
    found = []
    for optimizer in several:
        inner = optimizer
        while not isinstance(inner, torch.optim.Optimizer):
            inner = getattr(inner, "optimizer", None)
            if inner is None:
                kind = type(optimizer).__name__
                raise UsageError(
                    f"Recorder(optimizer=...) takes torch optimizers, got {kind}",
                    "leave it out for an optimizer of another kind",
                )
        # accelerate's wrapper is itself an Optimizer around the one that steps.
        wrapped = getattr(inner, "optimizer", None)
        found.append(wrapped if isinstance(wrapped, torch.optim.Optimizer) else inner)
    return tuple(found)


def plain_model(given: Any) -> Any:
    """Return the module inside a wrapper for several ranks.

    Raises:
        UsageError: it is not a module.
    """
    if given is None:
        return None
    if not isinstance(given, torch.nn.Module):
        raise UsageError(
            f"Recorder(model=...) takes a torch.nn.Module, got {type(given).__name__}",
            "leave it out for a model of another framework",
        )
    if isinstance(given, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
        return given.module
    return given


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown training type."""
    kind = settings.get("training_type", "custom")
    if kind not in TYPES:
        raise UsageError(
            f"unknown training_type {kind!r} in Recorder(config=...)",
            did_you_mean(nearest(kind, TYPES), f"one of {', '.join(TYPES)}"),
        )
