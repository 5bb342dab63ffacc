"""Turns the arguments of a step into an observation, on a device a step later. Needs torch."""

from __future__ import annotations

import functools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from canary.errors import UsageError
from canary.training.anomaly.observation import Agreement, Observation, Sample, from_metrics
from canary.training.collectors.scalars import DeferredScalars
from canary.training.exact.parameters import local

FAR_BEHIND = 64
"""Steps that may wait for their numbers; a device never lags so far."""
REFRESH = 50
"""Steps after which parameters are listed again: a user may freeze or add some."""
Scalar: TypeAlias = torch.Tensor | float
Integers: TypeAlias = dict[str, torch.Tensor] | str
"""The integer tensors of a micro-batch, or their hash."""


@dataclass(frozen=True)
class Given:
    """The arguments of one step, unchanged."""

    step: int
    model: Any = None
    optimizer: Any = None
    loss: Any = None
    batch_size: int | None = None
    rewards: Any = None
    predictions: Any = None
    grad_norm: Any = None
    kl: Any = None
    entropy: Any = None
    clip_fraction: Any = None
    length: Any = None
    batch_hash: Callable[[], Any] | None = None
    micro_losses: Sequence[Any] = ()
    rates: tuple[tuple[Scalar, ...], tuple[float | None, ...]] | None = None
    """Learning rates and peaks of the groups; set if the optimizer already has the next step's."""
    metrics: Mapping[str, Any] | None = None


class Measure:
    """Turns steps into observations, in order. Keeps the steps that wait for their numbers."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[DeferredScalars, Callable[[dict[str, float]], Observation]]] = (
            deque()
        )
        self._parameters: list[torch.Tensor] = []
        self._model: Callable[[], Any] = lambda: None
        self._age = 0
        self._last_call: float | None = None

    def take(self, given: Given) -> list[Observation]:
        """Begin to read one step. Return the observations whose numbers have arrived."""
        scalars: dict[str, Scalar] = {}
        for name in ("loss", "kl", "entropy", "clip_fraction", "length"):
            value = getattr(given, name)
            if value is not None:
                scalars[name] = _scalar(value, name)
        norm = given.grad_norm
        if norm is None and given.model is not None:
            norm = gradient_norm(self._trained(given.model))
        if norm is not None:
            scalars["grad_norm"] = _scalar(norm, "grad_norm")
        counts = _samples(given, scalars)
        for place, loss in enumerate(given.micro_losses):
            scalars[f"micro{place}"] = _scalar(loss, "loss")
        rates, peaks = given.rates or rates_of(given.optimizer)
        scalars |= {f"rate{place}": rate for place, rate in enumerate(rates)}
        for name, value in (given.metrics or {}).items():
            scalars[f"metric:{name}"] = _scalar(value, name)
        wall = self._since_last_call()

        def observed(values: dict[str, float]) -> Observation:
            return self._observation(given, values, counts, len(rates), peaks, wall)

        self._waiting.append((DeferredScalars(scalars), observed))
        return self.ready(wait=len(self._waiting) > FAR_BEHIND)

    def ready(self, wait: bool = False) -> list[Observation]:
        """Return the observations whose numbers have arrived; with `wait`, all of them."""
        found = []
        while self._waiting and (wait or self._waiting[0][0].is_ready()):
            reading, observed = self._waiting.popleft()
            reading.wait()
            found.append(observed(reading.read()))
        return found

    def _since_last_call(self) -> float | None:
        now, last = time.perf_counter(), self._last_call
        self._last_call = now
        return None if last is None else now - last

    def _trained(self, model: Any) -> list[torch.Tensor]:
        if self._model() is not model or self._age >= REFRESH:
            self._parameters = [p for p in model.parameters() if p.requires_grad]
            self._model, self._age = weakref.ref(model), 0
        self._age += 1
        return self._parameters

    def _observation(
        self,
        given: Given,
        values: dict[str, float],
        counts: tuple[int, int],
        groups: int,
        peaks: tuple[float | None, ...],
        wall: float | None,
    ) -> Observation:
        metrics = {n[7:]: v for n, v in values.items() if n.startswith("metric:")}
        fields: dict[str, Any] = from_metrics(metrics)
        for name in ("kl", "entropy", "clip_fraction", "length"):
            if name in values:
                fields[name] = values[name]
        if counts[0]:
            fields["rewards"] = Sample(values["reward_mean"], values["reward_std"], counts[0])
            fields["no_signal"] = counts[0] > 1 and values["reward_std"] == 0.0
        if counts[1]:
            fields["agreement"] = Agreement(
                error=values["error"],
                centred_error=values["centred_error"],
                centred_std=values["centred_std"],
                square=values["square"],
                count=counts[1],
            )
        return Observation(
            step=given.step,
            loss=values.get("loss"),
            micro_losses=tuple(values[f"micro{n}"] for n in range(len(given.micro_losses))),
            grad_norm=values.get("grad_norm"),
            learning_rates=tuple(values[f"rate{place}"] for place in range(groups)),
            peak_rates=peaks,
            batch_size=given.batch_size,
            wall_s=wall,
            batch_hash=given.batch_hash,
            **fields,
        )


def hash_later(batches: Sequence[Any]) -> Callable[[], list[str]] | None:
    """Return a function that hashes the micro-batches; None if there is nothing to hash."""
    return functools.partial(hashes, batches) if any(batches) else None


def hashes(batches: Sequence[Any]) -> list[str]:
    """Return the SHA-256 of each micro-batch's integer tensors, as in the exact lane."""
    from canary.training.collectors.batches import batch_sha256

    return [
        batch
        if isinstance(batch, str)
        else batch_sha256(batch if isinstance(batch, Mapping) else _named(batch))
        for batch in batches
    ]


def _named(batch: Any) -> dict[str, Any]:
    values = batch if isinstance(batch, list | tuple) else [batch]
    return {str(place): value for place, value in enumerate(values)}


def integers_of(batch: Any) -> dict[str, torch.Tensor]:
    """Return the integer tensors of a batch, which are hashed; the rest need not be kept."""
    from canary.training.collectors.batches import integer_tensors

    return integer_tensors(batch if isinstance(batch, Mapping) else _named(batch))


def _scalar(value: Any, name: str) -> Scalar:
    """Return one number; the mean of a tensor with several."""
    if isinstance(value, torch.Tensor):
        if value.dim() == 0:
            return value
        if value.numel() == 1:
            return value.reshape(())
        if value.numel() == 0:
            return float("nan")
        return value.detach().to(torch.float32).mean()
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} must be one number, not {type(value).__name__}",
            "pass a number, or a tensor of one element",
        ) from error


def _numbers(values: Any, name: str, device: torch.device) -> torch.Tensor:
    """Return one number per sample, on `device`."""
    try:
        found = values if isinstance(values, torch.Tensor) else torch.as_tensor(values)
        wide = torch.float64 if device.type == "cpu" else torch.float32
        return found.detach().to(device=device, dtype=wide).reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"{name} must be numbers, one per sample, not {type(values).__name__}",
            "pass a tensor, an array or a list of numbers",
        ) from error


def _samples(given: Given, scalars: dict[str, Scalar]) -> tuple[int, int]:
    """Add statistics of rewards and predictions to `scalars`. Return the number of each."""
    if given.rewards is None:
        return 0, 0
    tensors = [v for v in (given.rewards, given.predictions) if isinstance(v, torch.Tensor)]
    devices = (value.device for value in tensors if value.device.type != "cpu")
    device = next(devices, torch.device("cpu"))
    rewards = _numbers(given.rewards, "rewards", device)
    count = len(rewards)
    if not count:
        return 0, 0
    scalars["reward_std"], scalars["reward_mean"] = torch.std_mean(rewards, correction=0)
    if given.predictions is None:
        return count, 0
    predictions = _numbers(given.predictions, "predictions", device)
    if len(predictions) != count:
        raise UsageError(
            f"{count} rewards but {len(predictions)} predictions", "pass one per sample"
        )
    errors = predictions - rewards
    centred = (errors - errors.mean()).abs()
    scalars["centred_std"], scalars["centred_error"] = torch.std_mean(centred, correction=0)
    scalars["error"], scalars["square"] = errors.abs().mean(), rewards.square().mean()
    return count, count


def rates_of(optimizer: Any) -> tuple[tuple[Scalar, ...], tuple[float | None, ...]]:
    """Return each group's rate and its scheduler's `initial_lr` (None without a scheduler)."""
    groups = getattr(optimizer, "param_groups", None) or []
    peaks = tuple(
        float(group["initial_lr"]) if isinstance(group.get("initial_lr"), int | float) else None
        for group in groups
    )
    return tuple(_scalar(group["lr"], "lr") for group in groups), peaks


def gradient_norm(parameters: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return the L2 norm of all gradients, a 0-d tensor on the first one's device; None without.

    For a sharded model it is the norm of this rank's shards: use the trainer's norm instead.
    """
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if not gradients:
        return None
    with torch.no_grad():
        dense = [g.coalesce().values() if g.is_sparse else g for g in gradients]
        norms = torch._foreach_norm(dense)
        device = norms[0].device
        if len({norm.device for norm in norms}) > 1:
            norms = [norm.to(device, non_blocking=True) for norm in norms]
        return torch.linalg.vector_norm(torch.stack(norms).float())
