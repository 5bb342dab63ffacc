"""Turns the arguments of a step into an observation, on a device a step later. Needs torch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch

from canary.errors import UsageError
from canary.training.anomaly.observation import Agreement, Observation, Sample, from_metrics
from canary.training.collectors.clock import DeferredScalars
from canary.training.exact.parameters import local

Scalar: TypeAlias = torch.Tensor | float
NUMBERS = ("loss", "grad_norm", "kl", "entropy", "clip_fraction")
OF_PREDICTIONS = ("error", "centred_error", "centred_std", "square")


class Measure:
    """Turns steps into observations, in order. Keeps the steps that wait for their numbers."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[DeferredScalars, Callable[[dict[str, float]], Observation]]] = (
            deque()
        )
        self._last_call: float | None = None

    def take(
        self,
        step: int,
        numbers: Mapping[str, Any],
        *,
        model: Any,
        optimizer: Any,
        batch_size: int | None,
        rewards: Any,
        predictions: Any,
        metrics: Mapping[str, Any],
        learning_rate: Any,
    ) -> list[Observation]:
        """Begin to read one step. Return the observations whose numbers have arrived. `numbers`:
        `NUMBERS` of the step, or None; `learning_rate`: set if the optimizer already has that of
        the next step."""
        known = {name: value for name, value in numbers.items() if value is not None}
        if "grad_norm" not in known and model is not None:
            norm = gradient_norm(model.parameters())
            known |= {} if norm is None else {"grad_norm": norm}
        scalars = {name: _scalar(value, name) for name, value in known.items()}
        of_samples, count = _samples(rewards, predictions)
        of_groups, peaks = rates_of(optimizer)
        if learning_rate is not None:
            of_groups = (_scalar(learning_rate, "learning_rate"),)
        scalars |= of_samples | {f"rate{place}": rate for place, rate in enumerate(of_groups)}
        scalars |= {f"metric:{name}": _scalar(value, name) for name, value in metrics.items()}
        now, last = time.perf_counter(), self._last_call
        self._last_call = now

        def observed(values: dict[str, float]) -> Observation:
            return Observation(
                step=step,
                learning_rates=tuple(values[f"rate{place}"] for place in range(len(of_groups))),
                peak_rates=peaks,
                batch_size=batch_size,
                wall_s=None if last is None else now - last,
                **_fields(values, count),
            )

        self._waiting.append((DeferredScalars(scalars), observed))
        return self.ready()

    def ready(self, wait: bool = False) -> list[Observation]:
        """Return the observations whose numbers have arrived; with `wait`, all of them."""
        found = []
        while self._waiting and (wait or self._waiting[0][0].is_ready()):
            reading, observed = self._waiting.popleft()
            reading.wait()
            found.append(observed(reading.read()))
        return found


def _fields(values: Mapping[str, float], count: int) -> dict[str, Any]:
    """Return the fields of an observation that numbers, metrics and `count` samples give."""
    fields = from_metrics({n[7:]: v for n, v in values.items() if n.startswith("metric:")})
    fields |= {name: values[name] for name in NUMBERS if name in values}
    if count:
        fields["rewards"] = Sample(values["reward_mean"], values["reward_std"], count)
        fields["no_signal"] = count > 1 and values["reward_std"] == 0.0
    if "error" in values:
        of_predictions = {name: values[name] for name in OF_PREDICTIONS}
        fields["agreement"] = Agreement(**of_predictions, count=count)
    return fields


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


def _samples(given: Any, predicted: Any) -> tuple[dict[str, Scalar], int]:
    """Return statistics of rewards and predictions by name, and the number of samples."""
    if given is None:
        return {}, 0
    tensors = [value for value in (given, predicted) if isinstance(value, torch.Tensor)]
    devices = (value.device for value in tensors if value.device.type != "cpu")
    device = next(devices, torch.device("cpu"))
    rewards = _numbers(given, "rewards", device)
    count = len(rewards)
    if not count:
        return {}, 0
    found: dict[str, Scalar] = {}
    found["reward_std"], found["reward_mean"] = torch.std_mean(rewards, correction=0)
    if predicted is None:
        return found, count
    predictions = _numbers(predicted, "predictions", device)
    if len(predictions) != count:
        raise UsageError(
            f"{count} rewards but {len(predictions)} predictions", "pass one per sample"
        )
    errors = predictions - rewards
    centred = (errors - errors.mean()).abs()
    found["centred_std"], found["centred_error"] = torch.std_mean(centred, correction=0)
    return found | {"error": errors.abs().mean(), "square": rewards.square().mean()}, count


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
