"""An engine's weights beside the trainer's, by hash, and of which update they are."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from canary.errors import UsageError
from canary.relations.sampling import Weights
from canary.training.exact.parameters import local

WRAPPERS = ("_orig_mod.", "module.", "base_model.model.", "_fsdp_wrapped_module.")
INNER = (".base_layer.",)
"""Parts of names that wrappers add."""
SHA256 = re.compile(r"[0-9a-f]{64}")
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Print:
    """One tensor."""

    sha256: str
    dtype: torch.dtype | None = None
    """None if only a hash is known."""
    shape: tuple[int, ...] = ()
    norm: float | None = None


Prints = Mapping[str, Print]


def plain_name(name: str) -> str:
    """Return a parameter's name without what wrappers add."""
    for part in WRAPPERS:
        name = name.replace(part, "")
    for part in INNER:
        name = name.replace(part, ".")
    return name


def sha256_of(value: torch.Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    raw = local(value).detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy()).hexdigest()


def print_of(value: torch.Tensor) -> Print:
    """Return what is kept of a tensor."""
    return Print(sha256_of(value), value.dtype, tuple(value.shape), float(value.float().norm()))


def printed(weights: Iterable[tuple[str, Any]]) -> dict[str, Print]:
    """Return what is kept of the weights that a loop reports.

    Raises:
        UsageError: a weight is no tensor and no hash.
    """
    found = {}
    for name, value in weights:
        if isinstance(value, str) and SHA256.fullmatch(value.lower()):
            found[plain_name(name)] = Print(value.lower())
            continue
        try:
            tensor = value if torch.is_tensor(value) else torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"canary.engine_weights got {type(value).__name__} as {name}",
                "pass tensors, arrays, or the SHA-256 of their bytes in hexadecimal",
            ) from error
        if tensor.is_floating_point():
            found[plain_name(name)] = print_of(tensor)
    return found


def floats_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a model's weights by plain name."""
    for name, value in model.state_dict().items():
        if torch.is_tensor(value) and value.is_floating_point():
            yield plain_name(name), value


@contextlib.contextmanager
def merged(model: Any) -> Iterator[None]:
    """Merge the adapters of peft inside, if there are some."""
    if not hasattr(model, "peft_config") or not hasattr(model, "merge_adapter"):
        yield
        return
    kept = [(value, value.detach().clone()) for value in model.parameters()]
    model.merge_adapter()
    try:
        yield
    finally:
        model.unmerge_adapter()
        with torch.no_grad():
            for value, was in kept:
                value.copy_(was)


def shares(model: nn.Module, other: nn.Module) -> bool:
    """Whether two models have a parameter in common."""
    own = {value.data_ptr() for value in model.parameters() if value.numel()}
    return any(value.data_ptr() in own for value in other.parameters() if value.numel())


@dataclass
class Versions:
    """The trainer's weights, before each update so far."""

    dtypes: list[torch.dtype] = field(default_factory=list)
    """Those of the engines."""
    adapters_merged: bool = False
    """Whether the engines hold merged adapters."""
    past: list[dict[str, set[str]]] = field(default_factory=list)
    """Hashes of each tensor in these dtypes, one per update."""

    def keep(self, model: nn.Module) -> None:
        """Keep the hashes before an update."""
        with self._as_engines(model):
            self.past.append({name: self._hashes(value) for name, value in floats_of(model)})

    def _as_engines(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        return merged(model) if self.adapters_merged else contextlib.nullcontext()

    def _hashes(self, value: torch.Tensor) -> set[str]:
        kinds = {value.dtype, *self.dtypes}
        return {sha256_of(value.to(kind)) for kind in kinds}

    def compare(self, engine: Prints, model: nn.Module, update: int, source: str) -> Weights | None:
        """Compare an engine's weights with the trainer's; None if no name is common."""
        self.adapters_merged = not any("lora_" in name for name in engine)
        with self._as_engines(model):
            return self._compared(engine, model, update, source)

    def _compared(
        self, engine: Prints, model: nn.Module, update: int, source: str
    ) -> Weights | None:
        own = {
            name: value
            for name, value in floats_of(model)
            if name in engine and engine[name].shape in ((), tuple(value.shape))
        }
        if not own:
            return None
        differing = [name for name in own if not self._equal(engine[name], own[name])]
        kinds = {engine[name].dtype or self._kind(engine[name], own[name]) for name in own}
        other = next((kind for kind in kinds if kind not in (None, *_kinds(own))), None)
        for kind in kinds:
            if kind is not None and kind not in self.dtypes:
                self.dtypes.append(kind)
        first = differing[0] if differing else ""
        norm = engine[first].norm if first else None
        return Weights(
            update,
            source,
            len(own),
            len(differing),
            first,
            None if norm is None else (norm, float(own[first].float().norm())),
            "" if other is None else str(other).removeprefix("torch."),
            self._stale_by(engine, differing),
        )

    def _equal(self, engine: Print, own: torch.Tensor) -> bool:
        if engine.dtype is not None:
            return engine.sha256 == sha256_of(own.to(engine.dtype))
        return self._kind(engine, own) is not None

    def _kind(self, engine: Print, own: torch.Tensor) -> torch.dtype | None:
        """Return the dtype in which the trainer's tensor has the engine's hash."""
        kinds = (own.dtype, *(kind for kind in FLOATS if kind != own.dtype))
        return next((kind for kind in kinds if engine.sha256 == sha256_of(own.to(kind))), None)

    def _stale_by(self, engine: Prints, differing: list[str]) -> int | None:
        """Return how many updates before the trainer had the differing tensors."""
        for back, past in enumerate(reversed(self.past), start=1):
            if differing and all(engine[name].sha256 in past.get(name, ()) for name in differing):
                return back
        return None


def _kinds(own: Mapping[str, torch.Tensor]) -> set[torch.dtype]:
    return {value.dtype for value in own.values()}
