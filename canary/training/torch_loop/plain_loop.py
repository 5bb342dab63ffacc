"""A loop of plain torch: its model, optimizers and settings, and the end of its process."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import torch
import torch.distributed

from canary.protocol.job import TORCH_LOOP
from canary.training.collectors.distributed import world_size
from canary.training.collectors.steps import summed
from canary.training.recorder.loop import Loop

UNSEEDED = 67280421310721
"""The seed of torch's generators in a process that sets none."""
OPTIMIZER_ARGUMENTS = {
    "lr": "learning_rate",
    "weight_decay": "weight_decay",
    "eps": "adam_epsilon",
    "momentum": "momentum",
    "nesterov": "nesterov",
    "amsgrad": "amsgrad",
}
"""An optimizer's defaults, and a trainer's names for them."""


@dataclass(frozen=True)
class PlainLoop(Loop):
    """A loop that the canary found by itself. `settings` grow until its first step has ended."""

    distributed_facts: Mapping[str, Any] = field(default_factory=dict)

    LACKS: ClassVar[Mapping[str, str]] = {
        "model": "no torch.nn.Module holds the parameters of the optimizer",
        "train_dataset": "a torch loop does not say which data set it reads",
        "processing_class": "a torch loop does not say which tokenizer it uses",
    }

    def describe(self) -> dict[str, Any]:
        """Return the description of a loop without a name of its own."""
        found = super().describe()
        del found["name"]
        return found | {"trainer": TORCH_LOOP, "world_size": self.distributed_facts["world_size"]}

    def loss_of(self, micro_losses: Sequence[float]) -> float | None:
        """Return the sum: a step applies the gradient of the sum of its losses, and a loop that
        accumulates divides each of them."""
        return summed(micro_losses)

    def why_no_batch(self, given: bool) -> str:
        """Return why no batch was seen."""
        if given:
            return "the batches of the loop hold neither numbers nor text"
        return "no DataLoader yielded a batch, and no tensor entered the model"

    def why_no_step(self, begun: bool) -> str:
        """Return why no step was seen."""
        name = type(self.optimizers[0]).__name__
        return f"{name} was made and its model was called, but it never stepped"


def settings_of(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    """Return a trainer's arguments, as the groups of the first optimizer have them, and the seed.
    Names of another's arguments end with its place, as `learning_rate_2`, if they differ."""
    first = _settings(optimizers[0])
    found = dict(first)
    for place, optimizer in enumerate(optimizers[1:], 2):
        other = _settings(optimizer)
        if other != first:
            found |= {f"{name}_{place}": value for name, value in other.items()}
    seed = torch.initial_seed()
    if seed != UNSEEDED:
        found["seed"] = seed
    return found


def _settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return an optimizer's arguments: a list where its groups differ. A schedule moves the
    learning rate of the groups, so that one is what the optimizer got."""
    found: dict[str, Any] = {"optim": type(optimizer).__name__}
    for name, argument in OPTIMIZER_ARGUMENTS.items():
        values = [*dict.fromkeys(_in_force(optimizer, name))]
        if values and all(isinstance(value, bool | int | float) for value in values):
            found[argument] = values[0] if len(values) == 1 else values
    betas = optimizer.param_groups[0].get("betas")
    if isinstance(betas, tuple | list):
        found |= {f"adam_beta{place}": beta for place, beta in enumerate(betas, 1)}
    return found


def _in_force(optimizer: torch.optim.Optimizer, name: str) -> list[Any]:
    """Return an argument's value in each group."""
    groups = optimizer.param_groups
    if name == "lr":
        scheduled = all("initial_lr" in group for group in groups)
        groups, name = (groups, "initial_lr") if scheduled else ([optimizer.defaults], name)
    values = [group[name] for group in groups if name in group]
    return [float(value) if isinstance(value, torch.Tensor) else value for value in values]


def autocast_dtype(device: torch.device) -> str | None:
    """Return the dtype of autocast, None if it is off."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        mixed = getattr(state.AcceleratorState, "_shared_state", {}).get("_mixed_precision")
        known = {"bf16": "bfloat16", "fp16": "float16"}.get(str(mixed))
        if known is not None:
            return known
    if not torch.is_autocast_enabled(device.type):
        return None
    return str(torch.get_autocast_dtype(device.type)).removeprefix("torch.")


def facts_of_ranks(module: Any) -> dict[str, Any]:
    """Return `{type, world_size, backend}`; `type` names what wraps the model."""
    size = max(world_size(), int(os.environ.get("WORLD_SIZE", "1")))
    facts: dict[str, Any] = {"type": "NO", "world_size": size}
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        facts["backend"] = str(torch.distributed.get_backend())
        facts["type"] = type(module).__name__ if size > 1 and module is not None else "NO"
        values = () if module is None else module.parameters()
        if any("DTensor" in type(value).__name__ for value in values):
            facts["type"] = "FSDP2"
    return facts


UNSEEN = {
    "losses": ("stability.loss_values", "the loop called backward on no single number"),
    "norms": (
        "stability.grad_norm_values",
        "the loop did not call torch.nn.utils.clip_grad_norm_; the look reads the norms",
    ),
    "tokens": ("tokens", "no batch of token ids was seen"),
    "labels": (
        "tokens.label_tokens",
        "no label per token was seen in the batches, nor among the model's arguments",
    ),
    "samples": ("perf.samples_per_sec", "no batch was seen"),
}
"""What a loop may not show: the part of the record that is missing then, and why."""
OF_GRADIENTS = ("stability.grad_norm_values", "exact.first_gradient", "exact.clipping")
INSIDE_BACKWARD = "the optimizers step inside backward, so no moment has all gradients"


class ProcessEnd:
    """Calls `ended` once when the process ends, with the exception that ends it, if any."""

    def __init__(self, ended: Callable[[BaseException | None], None]) -> None:
        self._ended: Callable[[BaseException | None], None] | None = ended
        self._pid = os.getpid()
        self._before = getattr(sys, "last_value", None)
        atexit.register(self._at_exit)
        self._leave = os._exit
        os._exit = self._exit

    def _at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        self._call(error if error is not self._before else None)

    def _exit(self, status: int) -> NoReturn:
        """End the process as `os._exit` does: it calls nothing that was registered."""
        self._call(None)
        self._leave(status)

    def _call(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None and os.getpid() == self._pid:
            ended(error)
