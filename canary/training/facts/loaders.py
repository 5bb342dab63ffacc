"""What the workers of a `DataLoader` draw and give: each worker reports its first fetches.

A worker is a fork: it inherits the hook, and appends to a file. It reads states of generators and
changes none. A worker that is no fork (`spawn`) reports nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.utils.data import get_worker_info

from canary.record.exact import Exact
from canary.record.facts import Facts, LoaderFacts
from canary.training.collectors.aside import Wrapping
from canary.training.collectors.batches import batch_sha256, hashable
from canary.training.collectors.named import named

FETCHES = 2
"""Fetches that each worker reports: what a data set draws once, it may draw to set itself up."""
MOST_OBJECTS, DEEPEST, MOST_ITEMS = 400, 5, 32
"""Where generators are looked for: objects at most, how deep, and in how long lists."""
LONGEST_NAME = 80
WORDS = 624
"""Numbers that a Mersenne Twister makes at a time."""
MOST_TWISTS = 400
LIBRARIES = ("builtins", "numpy", "torch", "typing", "collections", "datasets")
"""Their functions reach no generator of the user's."""
LEAF = (str, bytes, int, float, complex, type, torch.Tensor, torch.nn.Module)


@dataclass(frozen=True)
class State:
    """The state of a generator."""

    fixed: Any
    """What drawing never changes, and another seed does."""
    moving: Any
    twister: bool = False
    """`moving` are the words of a Mersenne Twister, which has no fixed part."""

    @property
    def sha256(self) -> str:
        """A short hash of it."""
        return hashlib.sha256(repr((self.fixed, self.moving)).encode()).hexdigest()[:16]

    def drawn_to(self, later: State) -> bool:
        """Whether drawing, and no new seed, leads from here to a later state."""
        if self.fixed != later.fixed or self.moving == later.moving:
            return False
        return not self.twister or _twists_to(self.moving, later.moving)


def _twists_to(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    copy = random.Random()
    copy.setstate((3, before, None))
    for _ in range(MOST_TWISTS):
        if copy.getstate()[1][:WORDS] == after[:WORDS]:
            return True
        copy.getrandbits(32 * WORDS)
    return False


def state_of(generator: Any) -> State | None:
    """Return the state of a generator of numpy, torch or Python; None of an unknown kind."""
    if isinstance(generator, torch.Generator):
        if generator.device.type != "cpu":
            return None
        moving = hashlib.sha256(generator.get_state().numpy().tobytes()).digest()
        return State(generator.initial_seed(), moving)
    if isinstance(generator, random.Random):
        return State(None, generator.getstate()[1], twister=True)
    bits: Any = getattr(generator, "bit_generator", None) or getattr(
        generator, "_bit_generator", None
    )
    known = bits.state
    inner = known["state"]
    match known["bit_generator"]:
        case "MT19937":
            return State(None, (*inner["key"].tolist(), int(inner["pos"])), twister=True)
        case "PCG64" | "PCG64DXSM":
            return State(inner["inc"], inner["state"])
        case "Philox":
            return State(inner["key"].tolist(), (inner["counter"].tolist(), known["buffer_pos"]))
    return None


def _kinds() -> tuple[type, ...]:
    numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
    ours = () if numpy is None else (numpy.Generator, numpy.RandomState)
    return (torch.Generator, random.Random, *ours)


def generators_of(parts: dict[str, Any]) -> dict[str, Any]:
    """Return the generators that a data set and its functions reach, and those of the process."""
    numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
    found: dict[str, Any] = {"random": random._inst, "torch": torch.default_generator}  # type: ignore[attr-defined]
    if numpy is not None:
        found["numpy.random"] = numpy.mtrand._rand
    kinds, seen = _kinds(), {id(one) for one in found.values()}
    waiting = [(name, value, 0) for name, value in parts.items()]
    for name, value, depth in waiting:
        if id(value) in seen or isinstance(value, LEAF) or len(seen) > MOST_OBJECTS:
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            if not isinstance(value, random.SystemRandom):
                found[name[:LONGEST_NAME]] = value
        elif depth < DEEPEST:
            waiting += [(inner, one, depth + 1) for inner, one in _held(name, value)]
    return found


def _held(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds, without running its code."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        if len(value) <= MOST_ITEMS:
            yield from ((f"{name}[{key}]", one) for key, one in items)
    elif isinstance(value, MethodType):
        yield from ((name, value.__self__), (name, value.__func__))
    elif isinstance(value, functools.partial):
        yield from ((name, value.func), (f"{name}.args", value.args))
        yield f"{name}.keywords", value.keywords
    elif isinstance(value, FunctionType):
        read = value.__globals__
        yield from ((one, read[one]) for one in value.__code__.co_names if one in read)
        for inner, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                yield inner, cell.cell_contents
    elif type(value).__module__ not in LIBRARIES:
        with contextlib.suppress(AttributeError):
            held = object.__getattribute__(value, "__dict__")
            yield from ((f"{name}.{key}", one) for key, one in held.items())
        for kind in type(value).__mro__:
            if kind.__module__.split(".")[0] not in LIBRARIES:
                functions = (one for one in vars(kind).items() if isinstance(one[1], FunctionType))
                yield from ((f"{name}.{key}", one) for key, one in functions)


class LoaderWorkers:
    """Watches the workers of this process's loaders. There is one: a loop starts its workers before
    it is known as one."""

    subject = "data workers"

    def __init__(self) -> None:
        self._file: Path | None = None
        """Where workers report."""
        self._wrapping = Wrapping()
        self._read = b""
        self._fetches = 0
        self._inside = False

    def begin(self) -> None:
        """Hook the fetch of both kinds of data sets, if it is not hooked yet."""
        if self._file is not None:
            return
        from torch.utils.data._utils import fetch

        number, name = tempfile.mkstemp(prefix="canary-")
        os.close(number)
        self._file, self._read = Path(name), b""
        self._wrapping.wrap(fetch._MapDatasetFetcher, "fetch", self._around_fetch)
        self._wrapping.wrap(fetch._IterableDatasetFetcher, "fetch", self._around_fetch)

    def end(self) -> None:
        """Restore the fetches; keep what was reported."""
        self._wrapping.undo()
        if self._file is not None:
            self._read = self._file.read_bytes()
            self._file.unlink()
            self._file = None

    def tell(self, facts: Facts, exact: Exact) -> None:
        """Add what the workers of each loader have in common."""
        reports = [json.loads(line) for line in self._read.splitlines()]
        self._read = b""
        if reports:
            facts["loaders"] = loader_facts(reports)

    def _around_fetch(self, original: Any, fetcher: Any, indices: Any) -> Any:
        worker = get_worker_info()
        seen = self._inside or self._fetches >= FETCHES
        # A worker inherits this from the loop: without gradients, it is no training's.
        if worker is None or seen or not torch.is_grad_enabled():
            return original(fetcher, indices)
        self._inside = True
        before = self._before(fetcher)
        try:
            rows = original(fetcher, indices)
        finally:
            self._inside = False
        self._fetches += 1
        with contextlib.suppress(Exception):  # The worker must give its rows.
            self._report(worker, before, rows, stream=hasattr(fetcher, "dataset_iter"))
        return rows

    def _before(self, fetcher: Any) -> dict[str, tuple[Any, State]]:
        found: dict[str, tuple[Any, State]] = {}
        with contextlib.suppress(Exception):  # A user's objects may raise anything.
            parts = {"dataset": fetcher.dataset, "collate_fn": fetcher.collate_fn}
            for name, one in generators_of(parts).items():
                state = state_of(one)
                if state is not None:
                    found[name] = (one, state)
        return found

    def _report(
        self, worker: Any, before: dict[str, tuple[Any, State]], rows: Any, *, stream: bool
    ) -> None:
        drawn = {}
        for name, (one, state) in before.items():
            later = state_of(one)
            if later is not None and state.drawn_to(later):
                drawn[name] = state.sha256
        line = json.dumps(
            {
                "loader": worker.seed - worker.id,
                "worker": worker.id,
                "workers": worker.num_workers,
                "stream": stream,
                "fetch": self._fetches,
                "drawn": drawn,
                "rows": _rows_sha256(rows) if stream else None,
            }
        )
        assert self._file is not None
        # Not created again: it is gone once the look is over.
        number = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        with os.fdopen(number, "ab") as reports:
            reports.write(f"{line}\n".encode())


def _rows_sha256(rows: Any) -> str | None:
    """Return a hash of a batch; None if a part of it cannot be hashed."""
    batch = named(rows)
    bits, unseen = hashable(batch)
    return None if unseen or batch.unseen or not bits else batch_sha256(bits)[:16]


def loader_facts(reports: Sequence[dict[str, Any]]) -> list[LoaderFacts]:
    """Return the facts of each loader, in the order of their first reports. Loaders with the same
    facts count once: a loop may begin one per epoch."""
    by_loader: dict[int, dict[int, dict[int, dict[str, Any]]]] = {}
    for one in reports:
        workers = by_loader.setdefault(one["loader"], {})
        workers.setdefault(one["worker"], {}).setdefault(one["fetch"], one)
    found: list[LoaderFacts] = []
    for workers in by_loader.values():
        facts = _of_loader([fetches for fetches in workers.values() if len(fetches) == FETCHES])
        if facts is not None and facts not in found:
            found.append(facts)
    return found


def _of_loader(workers: Sequence[dict[int, dict[str, Any]]]) -> LoaderFacts | None:
    """Return what workers that reported all their fetches have in common; None if none did."""
    if not workers:
        return None
    first = [fetches[1] for fetches in workers]
    draws = [fetches[1]["drawn"].keys() & fetches[2]["drawn"].keys() for fetches in workers]
    begins = [
        (name, one["drawn"][name])
        for one, names in zip(first, draws, strict=True)
        for name in names
    ]
    facts: LoaderFacts = {
        "workers": first[0]["workers"],
        "seen": len(workers),
        "stream": first[0]["stream"],
        "draw_the_same": sorted({name for name, _ in begins if begins.count((name, _)) > 1}),
    }
    rows = {tuple(fetches[n]["rows"] for n in (1, 2)) for fetches in workers}
    if facts["stream"] and not any(None in one for one in rows):
        one, other = min(rows)
        facts["same_rows"] = len(workers) > 1 and len(rows) == 1 and one != other
    return facts


LOADERS = LoaderWorkers()
"""The watcher of this process."""
