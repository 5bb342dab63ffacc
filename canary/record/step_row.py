"""A row of `steps.jsonl`: one optimizer step of one launch, as the training process writes it.

A number that is not finite is its name in the file, and `canary.record.jsonio.number` reads it.
"""

from __future__ import annotations

from typing import Any, Literal, Required

from typing_extensions import TypedDict

from canary.record.exact import Part

Bytes = Literal["rss_bytes", "allocated_bytes", "reserved_bytes", "peak_bytes"]
TokenTotal = Literal["input_tokens", "label_tokens", "completion_tokens"]
TOKEN_TOTALS: tuple[TokenTotal, ...] = ("input_tokens", "label_tokens", "completion_tokens")


class HostSeconds(TypedDict, total=False):
    """Of the thread that trains, in seconds (see `StepTime.on_host`)."""

    computing_s: float
    waiting_s: float
    others_s: float
    own_cpu_s: float
    run_delay_s: float | None
    gil_held: float
    """Share of the training so far, where Python's lock is sampled."""


class RowAlert(Part, total=False):
    """What a detector saw (see `canary.record.alert.Alert`)."""

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
    """From the end of the step before to its own."""
    phases: dict[str, float]
    """Seconds, by phase."""
    phases_cpu: dict[str, float]
    """CPU seconds of the process."""
    cpu_s: float
    """On a CPU: of the process and of those that it started."""
    host: HostSeconds
    loss: float | None
    micro_losses: list[float | None]
    grad_norm: float | None
    learning_rate: float | None
    rl: dict[str, float]
    """Metrics of the trainer."""
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
    profiled: bool
    """The profiler slowed it down."""
    alerts: list[RowAlert]
    collectives: int | None
    """Of one of several ranks: how many it began, and the seconds it was blocked in them."""
    wait_s: float
    slowest: int
    """Of several ranks merged: the busiest one, and its time over the mean, less 1."""
    imbalance: float
    micro_batches: int
    """Until the device has its values: how many losses it holds, and values of each metric."""
    metrics: dict[str, int]
