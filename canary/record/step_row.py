"""A row of `steps.jsonl`: one step of one launch, as the training process writes it.

In the file a non-finite number is a string, which `canary.record.jsonio.number` reads.
"""

from __future__ import annotations

from typing import Any, Literal, Required

from typing_extensions import TypedDict

from canary.record.exact import Part

Bytes = Literal["rss_bytes", "allocated_bytes", "reserved_bytes", "peak_bytes"]
TokenTotal = Literal["input_tokens", "label_tokens", "completion_tokens"]
TOKEN_TOTALS: tuple[TokenTotal, ...] = ("input_tokens", "label_tokens", "completion_tokens")


class HostSeconds(TypedDict, total=False):
    """Seconds of the training thread (see `StepTime.on_host`)."""

    computing_s: float
    waiting_s: float
    others_s: float
    own_cpu_s: float
    run_delay_s: float | None
    gil_held: float
    """Share of the training so far; only if Python's lock is sampled."""


class RowAlert(Part, total=False):
    """An alert of a detector (see `canary.record.alert.Alert`)."""

    severity: Required[Literal["low", "medium", "high", "critical"]]
    category: Required[str]
    type: Required[str]
    message: Required[str]
    step: Required[int]
    value: float | None
    threshold: float | None
    metadata: dict[str, Any]
    launch: int
    rank: int


class Row(TypedDict, total=False):
    """One step."""

    launch: int
    step: int
    wall_s: float
    """From the end of the previous step to the end of this one."""
    phases: dict[str, float]
    """Seconds by phase."""
    phases_cpu: dict[str, float]
    """CPU seconds of the process, by phase."""
    cpu_s: float
    """On a CPU: of the process and its child processes."""
    host: HostSeconds
    loss: float | None
    micro_losses: list[float | None]
    grad_norm: float | None
    learning_rate: float | None
    rl: dict[str, float]
    """The trainer's metrics."""
    input_tokens: int | None
    label_tokens: int | None
    completion_tokens: int | None
    samples: int | None
    rss_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    peak_bytes: int | None
    alloc_retries: int | None
    time: float
    """When it was written, seconds since the epoch."""
    look: bool
    """Whether the step belongs to the look; its time does not count."""
    profiled: bool
    """Whether the profiler slowed the step down."""
    alerts: list[RowAlert]
    collectives: int | None
    """One of several ranks: how many it began; `wait_s`: seconds that it was blocked in them."""
    wait_s: float
    slowest: int
    """Merged ranks: the busiest one; `imbalance`: its time over the mean, minus 1."""
    imbalance: float


def is_timed(row: Row) -> bool:
    """Return whether the step took the time that it takes without the canary."""
    return not row.get("look") and not row.get("profiled")
