"""The record of one run: the types behind `metrics.json`. Pure: no torch, no clock, no network.

Every section is there on every machine. What could not be measured is null and is named in
`unmeasured`, with the reason.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny

from canary.record.exact import Calls, Exact, Part
from canary.record.jsonio import number
from canary.record.phases import PHASES as PHASES
from canary.record.step_row import RowAlert

SCHEMA_VERSION: Literal[1] = 1

Status = Literal["running", "completed", "failed", "timeout", "oom", "interrupted"]
Failure = Literal["not found", "timed out"]
"""A file or module that is missing; a rank that waited in vain for another."""

Number = Annotated[float, BeforeValidator(number)]
"""A float whose non-finite values travel as strings."""


MOST_ALERTS = 200
"""Alerts that a record holds; `alerts.jsonl` has them all."""


class Git(Part, total=False):
    """The commit; `sha` is null outside a repository, and `reason` says why."""

    sha: str | None
    branch: str | None
    dirty: bool | None
    changed_files: int
    reason: str


class Environment(Part, total=False):
    """The machine, and what is installed on it. Memory in bytes."""

    python: str
    implementation: str
    platform: str
    machine: str
    cpu: str
    cpu_count: int | None
    cpu_usable: int | None
    ram_bytes: int
    container: bool
    packages: dict[str, str | None]
    variables: dict[str, str]
    driver: str | None
    cuda_driver: str | None
    gpus: list[dict[str, Any]]
    gpu_reason: str | None
    device: dict[str, Any]
    """The one that trained."""
    world_size: int
    distributed: dict[str, Any]


def _of_mappings(config: dict[str, Any]) -> dict[str, Any]:
    for name in ("thresholds", "trainer_args"):
        if not isinstance(config.get(name), dict | None):
            raise ValueError(f"{name} is no mapping")
    return config


def _of_bounded_texts(alerts: list[RowAlert]) -> list[RowAlert]:
    for alert in alerts:
        if max(len(alert["category"]), len(alert["type"])) > 64 or len(alert["message"]) > 4000:
            raise ValueError("an alert is longer than any detector writes")
    return alerts


Config = Annotated[dict[str, Any], AfterValidator(_of_mappings)]
"""The resolved config of the run."""
Alerts = Annotated[list[RowAlert], Field(max_length=MOST_ALERTS), AfterValidator(_of_bounded_texts)]


class Section(BaseModel):
    """A part of the record: unknown keys are refused, values are read as attributes."""

    model_config = ConfigDict(extra="forbid")


class Distribution(Section):
    """Order statistics of one sample; all in the sample's unit, nan when it is empty."""

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
    """Speed of the measured launches after warm-up."""

    step_time: Distribution = Field(default_factory=Distribution)
    """Seconds from the end of one step to the end of the next."""
    approx_tokens_per_sec: Number | None = None
    """Input tokens (padding left out) over the wall time of the same steps."""
    samples_per_sec: Number | None = None
    seconds_per_completion_token: Number | None = None
    """Wall time over tokens generated, for online RL: sampled lengths are not a slower step."""
    max_mem_mb: Number | None = None
    """Peak device memory in MB (2**20 bytes); peak resident memory where there is no device."""
    max_mem_kind: Literal["device", "resident"] | None = None
    gpu_utilization_avg: Number | None = None
    """Percent, of the device in use."""
    dataloader_wait_pct: Number | None = None
    """Percent of the wall time spent in the data phase."""
    cpu_utilization_avg: Number | None = None
    """Percent of one core, over the process tree."""
    startup_seconds: dict[str, Number] = Field(default_factory=dict)


class Stability(Section):
    """The loss as the trainer computed it, never as it was logged."""

    nan_steps: int = 0
    inf_steps: int = 0
    nan_at: list[int] = Field(default_factory=list)
    inf_at: list[int] = Field(default_factory=list)
    loss_values: list[Number] = Field(default_factory=list)
    grad_norm_values: list[Number | None] = Field(default_factory=list)
    final_loss: Number | None = None
    """The last of them; comparisons judge the mean of the last tenth."""
    loss_diverged: bool = False
    """The mean of the last tenth of the losses is above 1.5 times that of the first tenth, or the
    last loss is not finite."""


class OperatorRow(Section):
    """One operator of the profiled steps, self times in ms, all of those steps together."""

    name: str
    self_cuda_time_ms: Number
    self_cpu_time_ms: Number
    count: int


class Copies(Section):
    """What moved between host and device."""

    count: int
    time_ms: Number
    bytes: int | None = None
    """Where the trace tells it."""


class Conversions(Section):
    """Tensors converted to another dtype or device (`aten::_to_copy`), with what that calls."""

    count: int
    time_ms: Number
    """Of the device without its copies from and to the host; of the host where there is none."""


class Profiler(Section):
    """Summary of the profiled steps, all of them together; null where profiling was off. The
    device's values are null where there is none, or where it could not be traced; its times are 0
    then, and `unmeasured` says why."""

    trace_path: str | None = None
    """Chrome's trace, for Perfetto; relative to the run's folder where it lies inside."""
    operators_path: str | None = None
    """Every operator, where the lists below hold the longest; relative like the trace."""
    steps: list[int] = Field(default_factory=list)
    wall_ms: Number | None = None
    """From the beginning of the first profiled step to the end of the last."""
    cuda_time_total_ms: Number | None = None
    """Kernels, copies and fills of the device, each once."""
    cpu_time_total_ms: Number | None = None
    """Inside operators and the device's run time on the host, each moment once a thread; Python
    between them is in no operator. Waiting for the device is in it: `host_waits_ms`."""
    self_cuda_time_total_ms: Number | None = None
    """Of the device's time, what an operator of the tables launched."""
    host_waits_ms: Number | None = None
    """Of the host's time: blocked until the device was done."""
    kernel_launches: int | None = None
    device_idle_pct: Number | None = None
    """Of `wall_ms`, the share in which the device did nothing."""
    copies: Copies | None = None
    conversions: Conversions | None = None
    operator_kinds: int | None = None
    """Different operators in all."""
    top_cuda_ops: list[OperatorRow] = Field(default_factory=list)
    """By self time on the device, longest first."""
    top_cpu_ops: list[OperatorRow] = Field(default_factory=list)
    """By self time on the host, longest first."""


class Growth(Section):
    """Slope of memory over the measured steps after warm-up, in bytes a step, with a 95% interval.

    The series is averaged over blocks of steps first, so that allocators' coming and going does not
    pass for precision. `kind`: allocated device memory, or resident memory without a device.
    """

    kind: Literal["device", "resident"]
    bytes_per_step: Number
    low: Number
    high: Number
    steps: int


class Host(Section):
    """What the process that trains did on its CPUs, over the measured steps after warm-up. The
    first four are shares of one; of the thread that trains, and of the time of its computing phases
    less what it had no core for. Null where not measured, as `unmeasured` says."""

    gil_contention: Number | None = None
    """The least of the next three: at most so much of the time was waiting for Python's lock while
    another thread had it."""
    gil_held: Number | None = None
    """Share of all time in which the lock was held by whatever thread, as gilknocker has it; the
    thread that trains holds it too, and a machine with other work stretches it."""
    waiting: Number | None = None
    """Share of that time in which the thread was off its core: it waited for another thread, a
    lock, a file or a sleep."""
    other_threads: Number | None = None
    """CPU seconds of the process's other threads over that time; above one with several."""
    run_delay: Number | None = None
    """Share of the step in which the thread was ready and had no core: other work on the
    machine."""
    cpu_seconds_per_step: Number | None = None
    """Of the process, all its threads."""
    main_cpu_seconds_per_step: Number | None = None
    voluntary_switches_per_step: Number | None = None
    """Times that a thread of the process gave up its core, waiting for something."""
    involuntary_switches_per_step: Number | None = None
    """Times that it was taken from one."""
    cpu_utilization_of_cores: Number | None = None
    """Percent of all cores that the process may use, over its process tree."""


class Evidence(Section):
    """One number behind a finding."""

    what: str
    value: Number
    unit: str = ""


class Bottleneck(Section):
    """What holds a run back, as `canary.record.bottlenecks` names it."""

    name: str
    severity: Literal["bottleneck", "watch"]
    cost: Number = 0.0
    """Share of the step that it may take, for ranking: 0 to 1; 0 where that is not known."""
    evidence: list[Evidence] = Field(default_factory=list)
    advice: str = ""


class Memory(Section):
    """Bytes; device values are null where there is no device."""

    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_rss_bytes: int | None = None
    typical_bytes: int | None = None
    """Of the first launch: the peak until the median step; without a device, resident memory at
    the median step. A peak far above it is a spike."""
    peak_step: int | None = None
    """The step of the first launch that reached its peak."""
    alloc_retries: int | None = None
    """Times that the device's allocator found no room and gave all it kept back first."""
    growth: Growth | None = None
    sampled: dict[str, Any] = Field(default_factory=dict)


class Launch(Section):
    """One process launch: the unit of replication of every timing."""

    index: int
    kind: Literal["probe", "measured"]
    status: Status
    steps: int = 0
    mean_step_time_s: Number | None = None
    """Mean after warm-up: what the user pays."""
    median_step_time_s: Number | None = None
    tokens_per_sec: Number | None = None
    startup_seconds: dict[str, Number] = Field(default_factory=dict)
    wall_seconds: Number | None = None
    phases: dict[str, Number] = Field(default_factory=dict)
    """Mean seconds a step after warm-up, by phase."""
    phases_steady: dict[str, Number] = Field(default_factory=dict)
    """The same with each phase's slowest twentieth of the steps cut down to its 95th percentile: a
    stall of the machine leaves it, work that comes every few steps stays in it."""
    phases_cpu: dict[str, Number] = Field(default_factory=dict)
    """Mean CPU seconds of the process, all its threads, a step and phase; other work on the machine
    moves it least."""
    cpu_s_per_step: Number | None = None
    """CPU seconds a step after warm-up of all processes that train, those that load data included;
    the costliest twentieth of the steps cut down to the 95th percentile, steps that saved or
    evaluated left out. Null on a device."""
    on_core_step_time_s: Number | None = None
    """Mean step time after warm-up without what the thread that trains was ready for and had no
    core: on a CPU of its own, a step takes so long. Null on a device, and where nobody counts."""
    slowing: Number | None = None
    """Own seconds of a step in the last third over the first (`canary.record.slowing`); None of a
    launch too short to tell."""
    host: dict[str, Number] = Field(default_factory=dict)
    """What the process told at its end: `gil_held` (share), `voluntary_switches` and
    `involuntary_switches`, over so many `steps`."""


class AlertSummary(Section):
    """How many alerts there were, and the last of them."""

    total: int = 0
    by_category: dict[str, int] = Field(default_factory=dict)
    by_severity: dict[str, int] = Field(default_factory=dict)
    latest: SerializeAsAny[RowAlert] | None = None


class Owner(Section):
    """The process that writes the record: a later reader can tell whether it still lives."""

    pid: int
    started: float
    """Start of the process, seconds since the epoch."""
    host: str


class RunRecord(Section):
    """`metrics.json`. Times in seconds, memory in bytes or MB as each name says."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    name: str = ""
    timestamp: str
    """Start of the run, ISO 8601, UTC."""
    duration_seconds: Number = 0.0
    status: Status = "running"
    reason: str | None = None
    """One line: why the run did not complete."""
    failure: Failure | None = None
    """What kind of failure that is, where it is one that something follows from."""
    owner: Owner | None = None
    git: SerializeAsAny[Git] = Field(default_factory=Git)
    env: SerializeAsAny[Environment] = Field(default_factory=Environment)
    config: Config = Field(default_factory=dict)
    perf: Perf = Field(default_factory=Perf)
    stability: Stability = Field(default_factory=Stability)
    profiler: Profiler = Field(default_factory=Profiler)
    phases: dict[str, Number] = Field(default_factory=dict)
    """Mean seconds a step, by phase; they add up to `perf.step_time.mean`."""
    memory: Memory = Field(default_factory=Memory)
    host: Host = Field(default_factory=Host)
    rl: dict[str, Distribution] = Field(default_factory=dict)
    """Rewards, margins, KL, entropy, lengths ... of the measured steps, by metric."""
    tokens: dict[str, int] = Field(default_factory=dict)
    """Totals over the measured steps of the first launch: input, label, completion."""
    first_step: int = 1
    """Number of the first step of the first launch: later than 1 where it resumed."""
    first_step_tokens: list[int] = Field(default_factory=list)
    """Input tokens of each of the first steps of the first launch, of all ranks together."""
    io: SerializeAsAny[Calls] = Field(default_factory=Calls)
    exact: SerializeAsAny[Exact] = Field(default_factory=Exact)
    """The noise-free signals of the probe."""
    alerts: SerializeAsAny[Alerts] = Field(default_factory=list)
    """What the detectors saw in the measured launches (see `canary.record.alert`)."""
    alert_summary: AlertSummary | None = None
    """Null where nothing watched."""
    gpu_health: dict[str, Any] = Field(default_factory=dict)
    bottlenecks: list[Bottleneck] | None = None
    """The worst first; null in records that nobody has looked through for them."""
    bottlenecks_not_judged: dict[str, str] = Field(default_factory=dict)
    """Those that this run could not show, and why."""
    launches: list[Launch] = Field(default_factory=list)
    unmeasured: dict[str, str] = Field(default_factory=dict)
    """What is null here, and why."""
    notes: list[str] = Field(default_factory=list)
    """A line each for what a user must know of this run: settings that the installed packages
    cannot honour, saves that were suppressed."""
    ranks: dict[str, Any] = Field(default_factory=dict)
    """Of several ranks: their number, imbalance, collectives and waiting; empty for one."""
