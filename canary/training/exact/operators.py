"""Count the work of one step: operators dispatched, FLOPs, forwards, tokens fed, collectives."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from canary.record.exact import Work


class _Counting(TorchDispatchMode):
    """Counts each operator and its FLOPs, and the tokens looked up in the model's embedding.

    FLOPs use torch's formulas. `FlopCounterMode` decomposes some operators (silu's backward), which
    rounds differently from the training. So it is used only in inference mode, where operators such
    as `linear` arrive whole.
    """

    def __init__(self, vocabulary: int | None) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.flops = 0
        self.forwards = 0
        self.tokens_fed = 0
        self._vocabulary = vocabulary

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep compiled code compiled: otherwise rounding and dropout masks would differ."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.operators[str(func)] += 1
        if func is torch.ops.aten.embedding.default and args[0].shape[0] == self._vocabulary:
            self.forwards += 1
            self.tokens_fed += args[1].numel()
        return self._with_flops(func, args, kwargs or {})

    def _with_flops(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        formula = flop_registry.get(getattr(func, "_overloadpacket", None))
        if formula is None and torch.is_inference_mode_enabled():
            with FlopCounterMode(display=False) as parts:
                found = func(*args, **kwargs)
            self.flops += int(parts.get_total_flops())
            return found
        found = func(*args, **kwargs)
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=found))
        return found


class WorkCounter:
    """Counts everything dispatched between `begin` and `end`; this doubles the step's time."""

    def __init__(self, model: torch.nn.Module | None) -> None:
        policy: Any = getattr(model, "policy", model)  # beside a value head
        if hasattr(policy, "get_input_embeddings"):
            embedding = policy.get_input_embeddings()
        else:
            embedding = largest_embedding(model)
        weight = getattr(embedding, "weight", None)
        self._counting = _Counting(None if weight is None else int(weight.shape[0]))

    def begin(self) -> None:
        """Start counting."""
        self._counting.__enter__()

    def end(self) -> Work:
        """Stop counting and return the counts."""
        self._counting.__exit__(None, None, None)
        operators = dict(sorted(self._counting.operators.items()))
        # Compiled code looks tokens up with generated kernels, which are not counted.
        seen = self._counting.forwards > 0 or not recompiles()
        return {
            "operators": operators,
            "operator_total": sum(operators.values()),
            "flops": self._counting.flops,
            "forwards": self._counting.forwards if seen else None,
            "tokens_fed": self._counting.tokens_fed if seen else None,
            "host_reads": operators.get("aten._local_scalar_dense.default", 0),
            "collectives": sum(n for name, n in operators.items() if _is_collective(name)),
        }


def largest_embedding(model: torch.nn.Module | None) -> torch.nn.Embedding | None:
    """Return the embedding with the most rows, that of the tokens; None without any."""
    modules = () if model is None else model.modules()
    found = [one for one in modules if isinstance(one, torch.nn.Embedding)]
    return max(found, key=lambda one: one.num_embeddings, default=None)


def _is_collective(operator: str) -> bool:
    """Return whether this is an operation of a process group, called by Python or by
    DistributedDataParallel's reducer. Waiting for one is not a collective."""
    return "c10d" in operator and "wait_tensor" not in operator


def recompiles() -> int:
    """Return how many graphs torch.compile has built in this process; 0 if it was never used."""
    from torch._dynamo.utils import counters

    return int(counters["stats"].get("unique_graphs", 0))


def counting_disturbs() -> bool:
    """Return whether counting changes a step: older torch then runs compiled code uncompiled."""
    return recompiles() > 0 and not hasattr(TorchDispatchMode, "ignore_compile_internals")


WITHOUT_DATA = ("FakeTensor", "FunctionalTensor")


class LiveTensors:
    """Counts live tensors created after `freeze`: a leak shows as a steady slope.

    Objects alive at `freeze` move to the garbage collector's permanent generation and are not
    walked. So a count takes only some milliseconds.
    """

    def __init__(self, whole_process: bool = True) -> None:
        self.counts: list[int] = []
        self.bytes: list[int] = []
        self.start_bytes: int | None = None
        """Bytes of all tensors alive at `freeze`; None if other code may hold tensors too."""
        self._whole_process = whole_process

    def freeze(self) -> None:
        """Exclude everything alive now from the counts."""
        gc.collect()
        if self._whole_process:
            self.start_bytes = _alive()[1]
        gc.freeze()

    def count(self) -> None:
        """Add one count, after a garbage collection."""
        gc.collect()
        tensors, total = _alive()
        self.counts.append(tensors)
        self.bytes.append(total)

    def release(self) -> None:
        """Return the frozen objects to the garbage collector."""
        gc.unfreeze()


def _alive() -> tuple[int, int]:
    """Return (tensors with data, bytes of their storages) that the garbage collector walks."""
    storages: dict[int, int] = {}
    tensors = 0
    for item in gc.get_objects():
        kind = type(item)
        # torch.compile keeps tensors that have shapes but no data.
        if not issubclass(kind, torch.Tensor) or kind.__name__ in WITHOUT_DATA:
            continue
        if item.layout is torch.strided and item.device.type != "meta":
            tensors += 1
            storage = item.untyped_storage()
            with contextlib.suppress(RuntimeError):  # a sharded tensor has none: its shard does
                storages[storage.data_ptr()] = storage.nbytes()
    return tensors, sum(storages.values())
