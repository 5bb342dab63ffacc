"""Exact facts of a model's parameters: hashes, trainable ones, gradients, changes by an update."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from canary.record.exact import MOST_ZERO, Clipping, FirstGradient, FirstUpdate, Model, group_of
from canary.training.collectors.aside import Wrapping, uncounted

if TYPE_CHECKING:
    from canary.training.exact.signals import ExactSignals

HASH_BYTES_UP_TO = 400_000_000
"""Larger models are hashed from checksums that their device computes."""


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the optimizer's parameters, group by group."""
    return [value for group in optimizer.param_groups for value in group["params"]]


def rate_of(optimizers: Iterable[torch.optim.Optimizer]) -> Any:
    """Return the learning rate of the first group that trains: some rest at 0 on purpose."""
    rates = [group["lr"] for one in optimizers for group in one.param_groups if "lr" in group]
    # Whether one in a tensor is 0 would be a read of its device.
    return next((rate for rate in rates if isinstance(rate, torch.Tensor) or rate), rates[0])


def innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer that makes the steps of one that wraps it, as SAM does."""
    held = {id(value) for value in parameters_of(optimizer)}
    for one in vars(optimizer).values():
        if isinstance(one, torch.optim.Optimizer) and held == {*map(id, parameters_of(one))}:
            return innermost(one)
    return optimizer


def local(value: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank holds: its shard, if the tensor is sharded."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return value
    return value.to_local() if hasattr(value, "to_local") else value


def _checksum(value: torch.Tensor) -> bytes:
    """Return two 64-bit sums over the raw bytes, one weighted by position, from the device."""
    bits = value.detach().contiguous().view(-1).view(torch.uint8)
    plain = torch.zeros((), dtype=torch.int64, device=value.device)
    weighted = torch.zeros((), dtype=torch.int64, device=value.device)
    for number, chunk in enumerate(bits.split(1 << 24)):
        wide = chunk.to(torch.int64)
        place = torch.arange(1, len(wide) + 1, device=value.device, dtype=torch.int64)
        plain += wide.sum() * (number + 1)
        weighted += (wide * place).sum() * (number + 1)
    return f"{int(plain)}:{int(weighted)}".encode()


def tensor_digest(value: torch.Tensor, exact_bytes: bool) -> bytes:
    """Return SHA-256 of the raw bytes if `exact_bytes`, otherwise the device checksum."""
    if not exact_bytes:
        return _checksum(value)
    raw = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).digest()


def parameter_digests(model: nn.Module) -> dict[str, bytes]:
    """Return a digest of each named parameter."""
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    exact_bytes = total <= HASH_BYTES_UP_TO
    return {
        name: tensor_digest(local(value), exact_bytes)
        for name, value in sorted(model.named_parameters())
    }


def combined(digests: dict[str, bytes]) -> str:
    """Return one SHA-256 over names and digests."""
    whole = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        whole.update(name.encode() + b"\0" + digest + b"\0")
    return whole.hexdigest()


def rounded_to(model: nn.Module) -> str | None:
    """Return `bfloat16` or `float16` if all float32 matrices fit that dtype exactly: the weights
    were once stored in it. None if they do not, or if no matrix is float32."""
    matrices = [local(p.detach()) for p in model.parameters() if p.dim() > 1]
    matrices = [value for value in matrices if value.dtype == torch.float32 and value.numel()]
    for dtype in (torch.bfloat16, torch.float16):
        if matrices and all(bool((value.to(dtype) == value).all()) for value in matrices):
            return str(dtype).removeprefix("torch.")
    return None


def describe_model(model: nn.Module, digests: dict[str, bytes]) -> Model:
    """Return `exact.model`: hash, counts, trainable names, dtypes."""
    named = list(model.named_parameters())
    trainable = sorted(name for name, value in named if value.requires_grad)
    return {
        "parameters_sha256": combined(digests),
        "parameters": sum(value.numel() for _, value in named),
        "trainable_parameters": sum(v.numel() for _, v in named if v.requires_grad),
        "trainable_tensors": len(trainable),
        "sharded": any(local(value) is not value for _, value in named),
        "trainable_names_sha256": hashlib.sha256("\n".join(trainable).encode()).hexdigest(),
        "trainable_groups": dict(sorted(Counter(group_of(name) for name in trainable).items())),
        "dtypes": dict(sorted(Counter(str(value.dtype) for _, value in named).items())),
        "model_type": getattr(getattr(model, "config", None), "model_type", None),
        "attention": getattr(getattr(model, "config", None), "_attn_implementation", None),
    }


CANCELLED = 1e-6
"""Share of the whole gradient's norm that rounding leaves of terms that cancel. A bias before a
batch norm has such a gradient."""


def gradient_norms(model: nn.Module) -> FirstGradient:
    """Return the gradients' L2 norm in total and by module group, in float64."""
    norms: dict[str, float] = defaultdict(float)
    sizes: dict[str, float] = {}
    without = list[str]()
    for name, value in model.named_parameters():
        if value.grad is not None:
            sizes[name] = float(local(value.grad.detach()).double().norm())
            norms[group_of(name)] += sizes[name] ** 2
        elif value.requires_grad:
            without.append(name)
    total = sum(norms.values()) ** 0.5
    zero = [name for name, size in sizes.items() if size <= CANCELLED * total]
    return {
        "total": total,
        "groups": {name: squared**0.5 for name, squared in sorted(norms.items())},
        "tensors_without_gradient": without,
        "tensors_with_zero_gradient": [one for one in zero if norms[group_of(one)]][:MOST_ZERO],
    }


class UpdateCapture:
    """Compares the trainable parameters before and after the first update."""

    def __init__(self, model: nn.Module) -> None:
        self._before = {
            name: local(value.detach()).cpu().clone()
            for name, value in model.named_parameters()
            if value.requires_grad
        }

    def describe(self, model: nn.Module) -> FirstUpdate:
        """Return the change's L2 norm, the count of changed tensors, the names of unchanged ones,
        and the hash of the parameters afterwards."""
        squared = 0.0
        unchanged: list[str] = []
        for name, value in model.named_parameters():
            if name not in self._before:
                continue
            change = local(value.detach()).cpu().double() - self._before[name].double()
            size = float(change.norm())
            squared += size**2
            if size == 0.0 and change.numel():
                unchanged.append(name)
        return {
            "delta_norm": squared**0.5,
            "tensors_changed": len(self._before) - len(unchanged),
            "tensors_unchanged": sorted(unchanged),
            "after_sha256": combined(parameter_digests(model)),
        }


class Gradients:
    """Read the norms of each step: None without a backward or an optimizer."""

    def __init__(self, model: Any, exact: ExactSignals) -> None:
        self._model = model
        self._exact = exact
        self._steps: Clipping = {"before": [], "applied": []}
        exact.found["clipping"] = self._steps
        self._before: float | None = None
        self._applied: float | None = None
        self._seen = False
        self._wrapping = Wrapping()

    def begin(self) -> None:
        """Read the gradients after each backward of this process from now on."""
        self._wrapping.wrap_backward(self._around_backward)

    def end(self) -> None:
        """Restore backward."""
        self._wrapping.undo()

    @contextlib.contextmanager
    def _around_backward(self, _: Any) -> Iterator[None]:
        yield
        self._seen = True
        self.backward_ended()

    def phase_ended(self) -> None:
        """End a backward phase that did not call torch's backward."""
        if not self._seen:
            self.backward_ended()

    def backward_ended(self, scale: float = 1.0) -> None:
        """Read the gradients after a backward that the caller saw. `scale`: a gradient scaler
        multiplied them by it."""
        if self._applied is None:
            self._exact.contain(lambda: self._grew(scale))

    def drop_attempt(self) -> None:
        """Forget the gradients of a step that a gradient scaler skipped."""
        self._before = self._applied = None

    def _grew(self, scale: float = 1.0) -> None:
        first = not self._steps["before"]
        if first:
            self._exact.gradients_ready(again=True)
            found = self._exact.found["first_gradient"]
            if scale != 1.0:
                found["total"] /= scale
                found["groups"] = {name: norm / scale for name, norm in found["groups"].items()}
            self._before = found["total"]
        else:
            self._before = self._norm() / scale

    def optimizer_begins(self) -> float | None:
        """Return the norm that the first optimizer of this step gets; None if it cannot be read."""
        if self._before is None and not self._steps["before"]:
            self._exact.gradients_ready()
        if self._applied is None:
            self._applied = self._exact.contain(self._norm)
        return self._applied

    def step_ended(self) -> None:
        """Store the norms of this step; the next gradients belong to another step."""
        self._steps["before"].append(self._before)
        self._steps["applied"].append(self._applied)
        self._before = self._applied = None

    def _norm(self) -> float:
        with uncounted():
            return gradient_norms(self._model)["total"]
