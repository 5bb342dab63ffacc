"""The types of `metrics.json`, the record of one run. Pure: no torch, no clock, no network.

Every record has every section. A value that could not be measured is null, and `unmeasured` has the
reason.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny

from canary.record.curves import Curve, Source
from canary.record.exact import Calls, Exact, Part
from canary.record.phases import PHASES as PHASES
from canary.record.section import Number, Section
from canary.record.step_row import RowAlert

SCHEMA_VERSION: Literal[2] = 2

Status = Literal["running", "completed", "failed", "timeout", "oom", "interrupted"]
Failure = Literal["not found", "timed out"]
"""A file or module is missing; a rank waited in vain for another."""

MOST_ALERTS = 200
"""Alerts in a record; `alerts.jsonl` has them all."""


class Git(Part, total=False):
    """The commit; `sha` is null outside a repository, and `reason` says why."""

    sha: str | None
    branch: str | None
    dirty: bool | None
    changed_files: int
    reason: str


class Environment(Part, total=False):
    """The machine and its packages. Memory in bytes."""

    python: str
    implementation: str
    platform: str
    machine: str
    cpu: str
    cpu_count: int | None
    cpu_usable: int | None
    ram_bytes: int
    container: bool
    image: str | None
    """The container image, or the image of a machine of GitHub's; null if not known."""
    packages: dict[str, str | None]
    """What the training had imported when its look ended."""
    variables: dict[str, str]
    driver: str | None
    cuda_driver: str | None
    gpus: list[dict[str, Any]]
    gpu_reason: str | None
    device: dict[str, Any]
    """The device that trained."""
    world_size: int
    distributed: dict[str, Any]


def _of_mappings(config: dict[str, Any]) -> dict[str, Any]:
    for name in ("thresholds", "trainer_args"):
        if not isinstance(config.get(name), dict | None):
            raise ValueError(f"{name} is not a mapping")
    return config


def _of_bounded_texts(alerts: list[RowAlert]) -> list[RowAlert]:
    for alert in alerts:
        if max(len(alert["category"]), len(alert["type"])) > 64 or len(alert["message"]) > 4000:
            raise ValueError("an alert is longer than any detector writes")
    return alerts


Config = Annotated[dict[str, Any], AfterValidator(_of_mappings)]
"""The run's resolved config."""
Alerts = Annotated[list[RowAlert], Field(max_length=MOST_ALERTS), AfterValidator(_of_bounded_texts)]


class Distribution(Section):
    """Order statistics of a sample, in its unit; nan if it is empty."""

    count: int = 0
    mean: Number = math.nan
    median: Number = math.nan
    p50: Number = math.nan
    p95: Number = math.nan
    p99: Number = math.nan
    min: Number = math.nan
    max: Number = math.nan
    std: Number = math.nan


class Perf(Section):
    """Speed and peak memory of the timed steps."""

    step_time: Distribution = Field(default_factory=Distribution)
    """Seconds from the end of one step to the end of the next."""
    approx_tokens_per_sec: Number | None = None
    """Input tokens, without padding, over the wall time of the same steps."""
    samples_per_sec: Number | None = None
    seconds_per_completion_token: Number | None = None
    """Wall time over generated tokens, for online RL: longer samples are no slowdown."""
    max_mem_mb: Number | None = None
    """Peak device memory in MB (2**20 bytes); peak resident memory without a device."""
    max_mem_kind: Literal["device", "resident"] | None = None
    gpu_utilization_avg: Number | None = None
    """Percent; of the device that trains."""
    dataloader_wait_pct: Number | None = None
    """Percent of the wall time in the data phase."""
    cpu_utilization_avg: Number | None = None
    """Percent of one core, over the process tree."""
    startup_seconds: dict[str, Number] = Field(default_factory=dict)


class Stability(Section):
    """The losses that the trainer computed, not those that it logged."""

    nan_steps: int = 0
    inf_steps: int = 0
    nan_at: list[int] = Field(default_factory=list)
    inf_at: list[int] = Field(default_factory=list)
    loss_values: list[Number] = Field(default_factory=list)
    grad_norm_values: list[Number | None] = Field(default_factory=list)
    final_loss: Number | None = None
    """The last loss; comparisons judge the mean of the last tenth."""
    loss_diverged: bool = False
    """The last loss is not finite, or the last tenth's mean is over 1.5 times the first tenth's."""


class OperatorRow(Section):
    """One operator; self times in ms over all profiled steps."""

    name: str
    self_cuda_time_ms: Number
    self_cpu_time_ms: Number
    count: int


class Copies(Section):
    """Copies between host and device."""

    count: int
    time_ms: Number
    bytes: int | None = None
    """None if the trace has no sizes."""


class Conversions(Section):
    """Conversions to another dtype or device (`aten::_to_copy`), with the operators they call."""

    count: int
    time_ms: Number
    """On the device, without copies from and to the host; on the host without a device."""


class Profiler(Section):
    """Summary over all profiled steps; null if profiling was off. Without a traced device its
    values are null and its times 0, and `unmeasured` says why."""

    trace_path: str | None = None
    """Chrome's trace, for Perfetto; relative to the run's folder if inside it."""
    operators_path: str | None = None
    """The file with all operators; relative like the trace. The lists below have the longest."""
    steps: list[int] = Field(default_factory=list)
    wall_ms: Number | None = None
    """From the start of the first profiled step to the end of the last."""
    cuda_time_total_ms: Number | None = None
    """The device's kernels, copies and fills, each counted once."""
    cpu_time_total_ms: Number | None = None
    """Host time inside operators and the device's runtime calls, each moment once per thread.
    It includes `host_waits_ms`, but not Python between operators."""
    self_cuda_time_total_ms: Number | None = None
    """The part of the device's time that the listed operators launched."""
    host_waits_ms: Number | None = None
    """Host time blocked until the device was done."""
    kernel_launches: int | None = None
    device_idle_pct: Number | None = None
    """Percent of `wall_ms` in which the device was idle."""
    copies: Copies | None = None
    conversions: Conversions | None = None
    operator_kinds: int | None = None
    """Number of different operators."""
    top_cuda_ops: list[OperatorRow] = Field(default_factory=list)
    """By self time on the device, longest first."""
    top_cpu_ops: list[OperatorRow] = Field(default_factory=list)
    """By self time on the host, longest first."""


class Growth(Section):
    """Slope of memory over the timed steps, in bytes per step; 95% interval.

    It is fitted to means of blocks of steps, so that allocator churn does not narrow the interval.
    `kind`: allocated device memory, or resident memory without a device.
    """

    kind: Literal["device", "resident"]
    bytes_per_step: Number
    low: Number
    high: Number
    steps: int


class Host(Section):
    """The training process on its CPUs, over the timed steps.

    The first four are shares. `waiting` and `other_threads` are shares of the training thread's
    time in computing phases without waits for a core. Null if not measured; see `unmeasured`.
    """

    gil_contention: Number | None = None
    """The smallest of the next three: at most this share was waiting for Python's lock while
    another thread held it."""
    gil_held: Number | None = None
    """Share of all time in which any thread held the lock, by gilknocker. The training thread
    counts too, and other work on the machine raises it."""
    waiting: Number | None = None
    """Share in which the thread was off its core, waiting for another thread, a lock, a file or a
    sleep."""
    other_threads: Number | None = None
    """CPU seconds of the process's other threads over that time; it can exceed 1."""
    run_delay: Number | None = None
    """Share of the step in which the thread was ready but had no core, because of other work."""
    cpu_seconds_per_step: Number | None = None
    """Of all threads of the process."""
    main_cpu_seconds_per_step: Number | None = None
    cpu_utilization_of_cores: Number | None = None
    """CPU of the process tree, in percent of all cores that it may use."""


class Evidence(Section):
    """One number behind a finding."""

    what: str
    value: Number
    unit: str = ""


class Bottleneck(Section):
    """A bottleneck of the run (see `canary.record.bottlenecks`)."""

    name: str
    severity: Literal["bottleneck", "watch"]
    cost: Number = 0.0
    """Share of the step that it may cost, 0 to 1, for ranking; 0 if unknown."""
    evidence: list[Evidence] = Field(default_factory=list)
    advice: str = ""


class Memory(Section):
    """Bytes; device values are null without a device."""

    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_rss_bytes: int | None = None
    typical_bytes: int | None = None
    """Of the first launch: the median over its steps of the peak so far, or of resident memory
    without a device. A peak far above it is a spike."""
    peak_step: int | None = None
    """The step at which the first launch reached its peak."""
    alloc_retries: int | None = None
    """How often the device's allocator found no room and had to release its cache first."""
    growth: Growth | None = None
    sampled: dict[str, Any] = Field(default_factory=dict)


class Stall(Section):
    """The longest timed step of a launch, if it is far from all others (`canary.record.spikes`)."""

    step: int
    seconds: Number
    next_s: Number
    """The longest of the other steps."""
    others_mean_s: Number


class Launch(Section):
    """One launch: the unit of replication of every timing."""

    index: int
    status: Status
    steps: int = 0
    look_steps: int = 0
    """Of its first steps: how many were looked at and not timed."""
    mean_step_time_s: Number | None = None
    """Mean after warm-up: the time that the user pays for."""
    median_step_time_s: Number | None = None
    tokens_per_sec: Number | None = None
    startup_seconds: dict[str, Number] = Field(default_factory=dict)
    wall_seconds: Number | None = None
    phases: dict[str, Number] = Field(default_factory=dict)
    """Mean seconds per step after warm-up, by phase."""
    phases_steady: dict[str, Number] = Field(default_factory=dict)
    """The same with steps cut to each phase's 95th percentile: without stalls of the machine,
    but with work that comes every few steps."""
    phases_cpu: dict[str, Number] = Field(default_factory=dict)
    """Mean CPU seconds per step of all threads, by phase; other work on the machine changes it
    least."""
    cpu_s_per_step: Number | None = None
    """CPU seconds per step after warm-up of all training processes and their data loaders. Steps
    are cut to the 95th percentile; those that saved or evaluated are left out. Null on a device."""
    on_core_step_time_s: Number | None = None
    """Mean step time after warm-up without the training thread's waits for a core: the step time
    on a CPU without other work. Null on a device, or if the waits were not measured."""
    stall: Stall | None = None
    """None without such a step, and in records of older versions."""
    host: dict[str, Number] = Field(default_factory=dict)
    """Reported by the process at its end: `gil_held` (share)."""


class AlertSummary(Section):
    """Counts of the alerts, and the last one."""

    total: int = 0
    by_category: dict[str, int] = Field(default_factory=dict)
    by_severity: dict[str, int] = Field(default_factory=dict)
    latest: SerializeAsAny[RowAlert] | None = None


class Owner(Section):
    """The process that writes the record, so that a reader can check whether it still runs."""

    pid: int
    started: float
    """Start of the process, in seconds since the epoch."""
    host: str


class RunRecord(Section):
    """`metrics.json`. Times are in seconds, memory in bytes or MB as each name says."""

    schema_version: Literal[2] = SCHEMA_VERSION
    run_id: str
    name: str = ""
    timestamp: str
    """Start of the run, ISO 8601, UTC."""
    duration_seconds: Number = 0.0
    status: Status = "running"
    reason: str | None = None
    """Why the run did not complete, in one line."""
    failure: Failure | None = None
    """The kind of failure, if code acts on it."""
    owner: Owner | None = None
    git: SerializeAsAny[Git] = Field(default_factory=Git)
    env: SerializeAsAny[Environment] = Field(default_factory=Environment)
    config: Config = Field(default_factory=dict)
    config_file: str | None = None
    """The config's path as it was given; null for a built-in one, and in records of older versions.
    """
    perf: Perf = Field(default_factory=Perf)
    stability: Stability = Field(default_factory=Stability)
    profiler: Profiler = Field(default_factory=Profiler)
    phases: dict[str, Number] = Field(default_factory=dict)
    """Mean seconds per step, by phase; they add up to `perf.step_time.mean`."""
    memory: Memory = Field(default_factory=Memory)
    host: Host = Field(default_factory=Host)
    rl: dict[str, Distribution] = Field(default_factory=dict)
    """Rewards, margins, KL, entropy, lengths ... over the timed steps, by metric."""
    curves: dict[str, Curve] = Field(default_factory=dict)
    """Of the first launch: the metrics that `metrics:` gates, and in an imported run also
    those that the preset names."""
    source: Source | None = None
    """Null if the canary itself recorded the run."""
    tokens: dict[str, int] = Field(default_factory=dict)
    """Totals over the first launch: input, label, completion."""
    first_step: int = 1
    """First step of the first launch; above 1 if it resumed."""
    io: SerializeAsAny[Calls] = Field(default_factory=Calls)
    exact: SerializeAsAny[Exact] = Field(default_factory=Exact)
    """The signals of the first launch's look."""
    further_looks: SerializeAsAny[list[Exact]] = Field(default_factory=list)
    """The signals of the other launches' looks."""
    alerts: SerializeAsAny[Alerts] = Field(default_factory=list)
    """Alerts of the launches (see `canary.record.alert`)."""
    alert_summary: AlertSummary | None = None
    """Null if no detector watched."""
    bottlenecks: list[Bottleneck] | None = None
    """The worst first; null if the record was not searched for them."""
    launches: list[Launch] = Field(default_factory=list)
    unmeasured: dict[str, str] = Field(default_factory=dict)
    """Why a value is null, by the value's key."""
    notes: list[str] = Field(default_factory=list)
    """Sentences that the user must know: settings that the installed packages ignore ..."""
    ranks: dict[str, Any] = Field(default_factory=dict)
    """With several ranks: their number, imbalance, collectives and waits; empty for one."""

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Return what names a run; all of it would fill screens."""
        return [(name, getattr(self, name)) for name in ("run_id", "name", "status")]
