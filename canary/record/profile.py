"""Operators and summary of the profiled steps, from the profiler's events. Pure.

The events are torch's (`torch.profiler.profile.events()` and `.key_averages()`). Reading their
attributes needs no torch. Their times are in microseconds, those of the summary in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from canary.record import jsonio

TRACE, OPERATORS = "trace.json", "operators.json"
SCHEMA_VERSION = 1
LISTED = 30
"""Operators in each list of the record; the file OPERATORS has all."""

Kind = Literal["operator", "runtime", "kernel", "annotation", "python", "overhead"]

USER_SCOPE = 7
"""`RecordScope::USER_SCOPE`: a `record_function` of the user or a library, not an operator."""
NO_EVENTS = ("[memory]", "[OutOfMemory]")
PYTHON = re.compile(r"\.py\(\d+\): |^<built-in |^nn\.Module: ")
OVERHEAD = re.compile(
    r"^(Activity Buffer Request|Buffer Flush|CUPTI|Command Buffer Full|Instrumentation"
    r"|Lazy Function Loading|Resource|Runtime Triggered Module Loading|Unknown$)"
)
"""Kineto's names for the time that tracing itself takes."""
RUNTIME = re.compile(r"^(cuda|hip|cu(?=[A-Z]))\w*$")
LAUNCHES = re.compile(
    r"^(cuda|hip|cu)(Ext)?(Launch(Cooperative)?(Module)?Kernel|GraphLaunch|ModuleLaunchKernel)"
)
WAITS = re.compile(r"^(cuda|hip|cu)\w*Synchronize$")

DEVICE_KEYS = (
    "cuda_time_total_ms",
    "self_cuda_time_total_ms",
    "host_waits_ms",
    "kernel_launches",
    "device_idle_pct",
    "top_cuda_ops",
)
"""Keys of the summary that need a traced device. Without one they are null and the totals 0, so
that arithmetic works; `unmeasured` has the reason."""


@dataclass(frozen=True)
class Window:
    """The steps to profile, and how. Sent as JSON."""

    start_step: int
    """Counted from 1, as in the trainer."""
    num_steps: int
    folder: str
    """The folder of OPERATORS."""
    trace: str
    """The trace's file."""
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False

    @property
    def last_step(self) -> int:
        """The last step that is profiled."""
        return self.start_step + self.num_steps - 1

    def in_words(self) -> str:
        """Return the window as text, such as `steps 20 to 24`."""
        if self.num_steps == 1:
            return f"step {self.start_step}"
        return f"steps {self.start_step} to {self.last_step}"


@dataclass(frozen=True)
class Operator:
    """One operator; times in ms over all profiled steps. Names with `self_` leave out the time of
    the operators that it calls."""

    name: str
    kind: Kind
    count: int
    self_cpu_time_ms: float
    cpu_time_ms: float
    self_cuda_time_ms: float
    cuda_time_ms: float


@dataclass(frozen=True)
class Traced:
    """The traced data of the profiled steps."""

    steps: tuple[int, ...]
    wall_ms: float
    averages: Sequence[Any]
    """torch's `key_averages()`."""
    events: Sequence[Any]
    """torch's `events()`."""
    no_device: str = ""
    """Why the device could not be traced, if known beforehand."""


def _number(row: Any, *names: str) -> float:
    """Return the first attribute that exists: torch renamed them.

    Raises:
        AttributeError: none exists. A default of 0 would silently empty the table.
    """
    for name in names:
        if hasattr(row, name):
            return float(getattr(row, name))
    raise AttributeError(f"{type(row).__name__} has none of {', '.join(names)}")


def _on_device(row: Any) -> bool:
    return str(row.device_type).rsplit(".", 1)[-1] not in ("CPU", "MKLDNN", "IDEEP", "0")


def _is_annotation(row: Any) -> bool:
    return bool(getattr(row, "is_user_annotation", False)) or (
        getattr(row, "scope", 0) == USER_SCOPE
    )


def kind_of(row: Any, name: str) -> Kind:
    """Return the kind of a table's row."""
    if _is_annotation(row):
        return "annotation"
    if _on_device(row):
        return "kernel"
    if getattr(row, "is_python_function", False) or PYTHON.search(name):
        return "python"
    if OVERHEAD.match(name):
        return "overhead"
    return "runtime" if RUNTIME.match(name) else "operator"


def operators_of(averages: Iterable[Any]) -> list[Operator]:
    """Return all operators, the longest self time first; times in ms."""
    found = [
        Operator(
            name=row.key,
            kind=kind_of(row, row.key),
            count=int(row.count),
            self_cpu_time_ms=_number(row, "self_cpu_time_total") / 1000,
            cpu_time_ms=_number(row, "cpu_time_total") / 1000,
            self_cuda_time_ms=_number(row, "self_device_time_total", "self_cuda_time_total") / 1000,
            cuda_time_ms=_number(row, "device_time_total", "cuda_time_total") / 1000,
        )
        for row in averages
        if row.key not in NO_EVENTS
    ]
    return sorted(found, key=lambda op: (-op.self_cuda_time_ms, -op.self_cpu_time_ms, op.name))


def summarise_profile(traced: Traced) -> dict[str, Any]:
    """Return the document of OPERATORS: `{schema_version, summary, unmeasured, operators}`. The
    summary has the keys of `canary.record.types.Profiler` except its paths."""
    table = operators_of(traced.averages)
    on_host = [op for op in table if op.kind in ("operator", "runtime")]
    summary: dict[str, Any] = {
        "steps": list(traced.steps),
        "wall_ms": traced.wall_ms,
        "cuda_time_total_ms": 0.0,
        "self_cuda_time_total_ms": 0.0,
        "cpu_time_total_ms": sum(op.self_cpu_time_ms for op in on_host),
        "operator_kinds": len(on_host),
        "top_cpu_ops": _listed(on_host, "self_cpu_time_ms"),
    }
    reason = traced.no_device
    device = [event for event in traced.events if _on_device(event) and not _is_annotation(event)]
    if not reason and not device:
        reason = "no events came from the device: CUPTI is missing, or its use is not allowed here"
    if not reason:
        summary |= _of_device(traced, on_host, device)
    return {
        "schema_version": SCHEMA_VERSION,
        "summary": summary,
        "unmeasured": dict.fromkeys((f"profiler.{key}" for key in DEVICE_KEYS), reason)
        if reason
        else {},
        "operators": [asdict(op) for op in table],
    }


def _listed(rows: Iterable[Operator], key: str) -> list[dict[str, Any]]:
    rows = sorted(rows, key=lambda op: (-getattr(op, key), op.name))
    kept = ("name", "self_cuda_time_ms", "self_cpu_time_ms", "count")
    return [
        {name: getattr(op, name) for name in kept} for op in rows[:LISTED] if getattr(op, key) > 0
    ]


def _of_device(traced: Traced, on_host: list[Operator], device: list[Any]) -> dict[str, Any]:
    spans = [(event.time_range.start, event.time_range.end) for event in device]
    busy_ms = covered(spans) / 1000
    idle = 100 * (1 - busy_ms / traced.wall_ms) if traced.wall_ms > 0 else None
    return {
        "cuda_time_total_ms": sum(end - start for start, end in spans) / 1000,
        "self_cuda_time_total_ms": sum(op.self_cuda_time_ms for op in on_host),
        "host_waits_ms": sum(op.self_cpu_time_ms for op in on_host if WAITS.match(op.name)),
        "kernel_launches": sum(op.count for op in on_host if LAUNCHES.match(op.name)),
        "device_idle_pct": None if idle is None else max(0.0, idle),
        "top_cuda_ops": _listed(on_host, "self_cuda_time_ms"),
    }


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the intervals' union: two busy streams count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def read_profile(folder: Path) -> Mapping[str, Any] | None:
    """Return the document of OPERATORS in a folder; None if it is missing or broken.

    Raises:
        OSError: it cannot be read.
    """
    path = folder / OPERATORS
    if not path.is_file():
        return None
    try:
        document = jsonio.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    whole = isinstance(document, dict) and document.get("schema_version") == SCHEMA_VERSION
    return document if whole else None
