"""Count the work of one step: operators dispatched, FLOPs, forwards, tokens fed, collectives.

Find misused losses. Some pair each row with all targets: a difference of shapes (N, 1) and (N,) is
N by N. Others get probabilities for logits or log-probabilities.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from canary.record.exact import Work
from canary.training.collectors.aside import Marked
from canary.training.collectors.named import tensors_in

ATEN = torch.ops.aten
DISTANCES = (ATEN.pow.Tensor_Scalar, ATEN.abs.default, ATEN.mul.Tensor)
WHOLE = (ATEN.mean.default, ATEN.sum.default)


class OuterLosses(Marked):
    """Follows such differences through a square or an absolute value into one number."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[list[int]]] = []
        """The shapes of each: rows with a gradient, then targets without one."""

    def saw(self, func: Any, args: tuple[Any, ...], made: Any) -> None:
        """Look at one operator's arguments and result."""
        if func is ATEN.sub.Tensor:
            self.note(made, _outer(*args[:2]))
        elif self.known and (func in DISTANCES or func in WHOLE):
            shapes = self.of(args[0])
            if shapes is not None and func in WHOLE:
                self.found.append(shapes)
            elif shapes is not None and made.shape == args[0].shape:
                self.note(made, shapes)


VIEWS = (
    *(ATEN.view.default, ATEN._unsafe_view.default, ATEN.transpose.int, ATEN.permute.default),
    *(ATEN.unsqueeze.default, ATEN.squeeze.default, ATEN.squeeze.dim, ATEN._to_copy.default),
)
"""Operators that keep the values."""
TAKES_NO_PROBABILITIES = {
    ATEN._log_softmax.default: "log_softmax, or cross_entropy, of probabilities",
    ATEN.nll_loss_forward.default: "nll_loss of probabilities",
    ATEN.nll_loss2d_forward.default: "nll_loss of probabilities",
}


class Probabilities(Marked):
    """Follows what a softmax makes into functions that take logits or log-probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        """Such functions, where a gradient flows through them."""

    def saw(self, func: Any, args: tuple[Any, ...], made: Any) -> None:
        """Look at one operator's arguments and result."""
        if func is ATEN._softmax.default:
            self.note(made, "probabilities")
        elif func is ATEN.xlogy.Tensor:
            self.note(made, "p log p")
        elif not self.known:
            return
        elif func in VIEWS:
            self.note(made, self.of(args[0]))
        elif func is ATEN.mul.Tensor and self.of(args[1]) == "probabilities":
            self.note(made, "p times probabilities")  # in kl_div: target * input
        elif func is ATEN.sub.Tensor and self.of(args[0]) == "p log p":
            if self.of(args[1]) == "p times probabilities":
                self._misused("kl_div of probabilities", args[1])
        elif func in TAKES_NO_PROBABILITIES and self.of(args[0]) == "probabilities":
            self._misused(TAKES_NO_PROBABILITIES[func], args[0])

    def _misused(self, words: str, given: torch.Tensor) -> None:
        if given.requires_grad:
            self.found.add(words)


def _outer(one: Any, other: Any) -> list[list[int]] | None:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return None
    pair: list[torch.Tensor] = [one, other]
    if one.requires_grad == other.requires_grad:
        return None
    flat, tall = sorted(pair, key=torch.Tensor.dim)
    count = tall.shape[0] if tall.dim() == 2 else 0
    if count < 2 or tall.shape[1] != 1 or tuple(flat.shape) != (count,):
        return None
    rows, targets = (one, other) if one.requires_grad else (other, one)
    return [list(rows.shape), list(targets.shape)]


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
        self.counts = True
        """False once the counts are taken: another thread can not take the mode off this one."""
        self._vocabulary = vocabulary
        self.outer, self.probabilities = OuterLosses(), Probabilities()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep compiled code compiled: otherwise rounding and dropout masks would differ."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if not self.counts:
            return func(*args, **(kwargs or {}))
        self.operators[str(func)] += 1
        if func is torch.ops.aten.embedding.default and args[0].shape[0] == self._vocabulary:
            self.forwards += 1
            self.tokens_fed += args[1].numel()
        made = self._with_flops(func, args, kwargs or {})
        self.outer.saw(func, args, made)
        self.probabilities.saw(func, args, made)
        return made

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
            modules = () if model is None else model.modules()
            found = [one for one in modules if isinstance(one, torch.nn.Embedding)]
            embedding = max(found, key=lambda one: one.num_embeddings, default=None)
        # Not `weight`: a parametrization would compute it, and may draw random numbers.
        self._counting = _Counting(getattr(embedding, "num_embeddings", None))

    def begin(self) -> None:
        """Start counting."""
        self._counting.__enter__()

    def end(self) -> Work:
        """Stop counting and return the counts. Modes that the training entered meanwhile stay."""
        self._counting.counts = False
        above: list[Any] = []
        while (top := _get_current_dispatch_mode()) is not None and top is not self._counting:
            above.append(_pop_mode())
        if top is not None:
            self._counting.__exit__(None, None, None)
        for mode in reversed(above):
            _push_mode(mode)
        # It is a matter of time in which step a batch arrives from a data worker.
        rebuilt = min(self._counting.operators[name] for name in ARRIVAL)
        counts = self._counting.operators - Counter(dict.fromkeys(ARRIVAL, rebuilt))
        operators = dict(sorted(counts.items()))
        # Compiled code looks tokens up with generated kernels, which are not counted.
        seen = self._counting.forwards > 0 or not recompiles()
        return {
            "operators": operators,
            "operator_total": sum(operators.values()),
            "flops": self._counting.flops,
            "forwards": self._counting.forwards if seen else None,
            "tokens_fed": self._counting.tokens_fed if seen else None,
            "host_reads": operators.get("aten._local_scalar_dense.default", 0),
            # Of a process group, called by Python or by DistributedDataParallel's reducer.
            "collectives": sum(
                count
                for name, count in operators.items()
                if "c10d" in name and "wait_tensor" not in name
            ),
            "outer_losses": self._counting.outer.found,
            "losses_of_probabilities": sorted(self._counting.probabilities.found),
        }


ARRIVAL = ("aten.set_.source_Storage_storage_offset", "aten.empty.memory_format")
"""Operators that rebuild one tensor sent by another process (`torch._utils._rebuild_tensor`)."""


def recompiles() -> int:
    """Return how many graphs torch.compile has built in this process; 0 if it was never used."""
    from torch._dynamo.utils import counters

    return int(counters["stats"].get("unique_graphs", 0))


def why_uncounted() -> str | None:
    """Return why counting would change the step that begins here, None if it would not."""
    if recompiles() > 0 and not hasattr(TorchDispatchMode, "ignore_compile_internals"):
        return "this version of torch would run compiled code uncompiled"
    if _get_current_dispatch_mode() is not None:
        return "the training has a dispatch mode of its own"
    frames = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    if frames is not None and frames() is not None:
        return "torch.compile runs the optimizer's step"
    return None


WITHOUT_DATA = ("FakeTensor", "FunctionalTensor")


class LiveTensors:
    """Counts live tensors created after `freeze`: a leak shows as a steady slope.

    Objects alive at `freeze` move to the garbage collector's permanent generation and are not
    walked. So a count takes only some milliseconds. Batches that wait in the queue of a DataLoader
    do not count: how many do depends on the speed of its workers. A training that switched the
    collector off, or froze objects itself, is not counted: its finalizers must not run earlier.
    """

    def __init__(self, whole_process: bool = True) -> None:
        self.counts: list[int] = []
        self.bytes: list[int] = []
        self.start_bytes: int | None = None
        """Bytes of all tensors alive at `freeze`; None if other code may hold tensors too."""
        self._whole_process = whole_process
        self._loaders: list[weakref.ref[Any]] = []
        self._frozen = False

    def freeze(self) -> None:
        """Exclude everything alive now from the counts."""
        if not gc.isenabled() or gc.get_freeze_count():
            return
        gc.collect()
        objects = gc.get_objects()
        self._loaders = _loaders_in(objects)
        if self._whole_process:
            self.start_bytes = _size(objects, _waiting(self._loaders))[1]
        del objects
        gc.freeze()
        self._frozen = True

    def count(self, left_out: Iterable[torch.Tensor] = ()) -> None:
        """Add one count, after a garbage collection. `left_out`: the canary's own tensors."""
        if not self._frozen or not gc.isenabled():
            return
        gc.collect()
        objects = gc.get_objects()
        own = {id(one) for one in left_out}
        tensors, total = _size(objects, own | _waiting([*self._loaders, *_loaders_in(objects)]))
        self.counts.append(tensors)
        self.bytes.append(total)

    def release(self) -> None:
        """Return the frozen objects to the garbage collector."""
        if self._frozen:
            gc.unfreeze()
            self._frozen = False


def _loaders_in(objects: Sequence[Any]) -> list[weakref.ref[Any]]:
    """Return the iterators of DataLoaders with workers."""
    return [weakref.ref(one) for one in objects if type(one) is _MultiProcessingDataLoaderIter]


def _waiting(loaders: Sequence[weakref.ref[Any]]) -> set[int]:
    """Return the ids of tensors in batches that arrived before the loop asked for them."""
    found: set[int] = set()
    for loader in (reference() for reference in loaders):
        if loader is None:  # not its truth: a stream has no length
            continue
        arrived = [info[1] for info in list(loader._task_info.values()) if len(info) == 2]
        arrived += list(getattr(loader._data_queue, "queue", ()))  # of the thread that pins memory
        found |= {id(one) for _, one in tensors_in(arrived)}
    return found


def _size(objects: Sequence[Any], left_out: Set[int]) -> tuple[int, int]:
    """Return (tensors with data, bytes of their storages) among the objects."""
    storages: dict[int, int] = {}
    tensors = 0
    for item in objects:
        kind = type(item)
        # torch.compile keeps tensors that have shapes but no data.
        if not issubclass(kind, torch.Tensor) or kind.__name__ in WITHOUT_DATA:
            continue
        if id(item) in left_out or item.layout is not torch.strided or item.device.type == "meta":
            continue
        tensors += 1
        storage = item.untyped_storage()
        with contextlib.suppress(RuntimeError):  # a sharded tensor has none: its shard does
            storages[storage.data_ptr()] = storage.nbytes()
    return tensors, sum(storages.values())
