"""The table of all checks. A check that is not in it cannot be made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Unpack

from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.report import Check, CheckStatus, Group, Lane, Moved, Numbers
from canary.compare.rules import RULES
from canary.record.metric_names import QUANTITIES

Change = Literal["learning", "packages", "rows"]
"""What a person accepts: a change of learning, alone, or with other packages or other rows."""


@dataclass(frozen=True)
class CheckType:
    """One check of the table."""

    name: str
    title: str
    """What it measures, as messages and docs say it."""
    limits: tuple[str, ...] = ()
    """Keys of `Thresholds` that it reads."""
    accepted_with: tuple[Change, ...] = ()
    """Accepting one of these changes accepts its failure too: a new objective can have another
    scale, and a new package version may read or write more often. More work (FLOPs, tokens fed,
    time, memory) is never excused."""
    fatal: bool = False
    """The first line of the verdict names a fatal failure first."""
    clock: Literal["", "wall", "cpu"] = ""
    """The clock that measures a step; empty for checks of anything else."""
    drift: bool = False
    """Compare with the first runs after the last accepted change."""
    group: Group = field(kw_only=True)
    lane: Lane = field(kw_only=True)


_stability = partial(CheckType, group="stability", lane="trend")
_times = partial(CheckType, group="performance", lane="timing")
_count = partial(CheckType, group="performance", lane="exact")
_memory = partial(CheckType, group="memory")
_exact = partial(CheckType, group="correctness", lane="exact")
_bad_steps = partial(CheckType, group="stability", lane="rule", fatal=True)

_STEP, _CPU = "max_step_time_increase_pct", "max_cpu_time_increase_pct"
_PEAK = ("max_mem_increase_mb", "max_mem_increase_pct")
_LAST = "since the last accepted change"
_LEARNING: tuple[Change, ...] = ("learning",)
_PACKAGES: tuple[Change, ...] = ("packages",)
_ROWS: tuple[Change, ...] = ("packages", "rows")
METRICS = "metrics"
"""Row of the gates in `metrics:`; each check's name adds the metric and the statistic."""
_FINAL_LOSS = ("max_final_loss_increase_pct", "max_final_loss_drop_pct")


def _rules(fatal: bool) -> Iterator[CheckType]:
    for one in RULES:
        if one.fatal == fatal:
            yield CheckType(one.id, one.holds, fatal=fatal, group="correctness", lane="rule")


# fmt: off
_TABLE = (
    _stability("steps_trained", "trained steps", ("max_steps_lost_pct",), _LEARNING, fatal=True),
    *_rules(fatal=True),  # without labels, a mean loss is NaN
    _bad_steps("nan_steps", "steps with a NaN loss", ("max_nan_steps",)),
    _bad_steps("inf_steps", "steps with an infinite loss", ("max_inf_steps",)),
    _stability("loss_divergence", "loss of the last tenth / first tenth", ("max_loss_rise",),
        fatal=True),
    _stability("final_loss", "mean loss of the last tenth of steps", _FINAL_LOSS, _LEARNING),
    _stability("gradient_explosion", "largest gradient norm", ("max_grad_norm_ratio",), _LEARNING),
    *(_stability(one.name, f"mean {one.words or one.name}", (one.limit,), _LEARNING)
        for one in QUANTITIES.values() if one.limit),
    _stability("alerts", "alert types that the baseline does not have"),
    _times("step_time_median", "median step time", (_STEP, "sensitivity"), clock="wall"),
    _times("step_time_mean", "mean step time", (_STEP, "sensitivity"), clock="wall"),
    _times("cpu_time", "CPU time per step", (_CPU, "sensitivity"), clock="cpu"),
    _times("step_time_drift", f"step time {_LAST}", (_STEP, "sensitivity"), clock="wall",
        drift=True),
    _times("cpu_time_drift", f"CPU time per step {_LAST}", (_CPU, "sensitivity"), clock="cpu",
        drift=True),
    _times("tokens_per_sec", "tokens per second", ("max_tps_drop_pct", "sensitivity")),
    CheckType("gpu_utilization", "GPU utilisation", ("max_gpu_utilization_drop",),
        group="performance", lane="trend"),
    _memory("max_memory", "peak memory", _PEAK, lane="timing"),
    _memory("reserved_memory", "reserved device memory", _PEAK, lane="trend"),
    _memory("memory_growth", "growth of memory per step", ("max_mem_growth_mb_per_step",),
        lane="trend"),
    _memory("live_tensors", "growth of live tensors per step", ("max_live_tensors_per_step",),
        lane="exact"),
    _memory("live_memory", "MB of live tensors between steps", ("max_mem_increase_pct",),
        lane="exact"),
    _exact("repeatability", "repeated runs give equal results"),
    *(_exact(stage, words) for stage, words in LEARNED_STAGES.items()),
    _count("tokens_fed", "token positions fed per step", ("max_tokens_fed_increase_pct",)),
    _count("host_reads", "tensor values read by Python per step", ("max_host_reads_increase",),
        _PACKAGES),
    _count("collectives", "collective operations per step", ("max_collectives_increase",)),
    _count("recompiles", "recompilations per step", ("max_recompiles_increase",)),
    _count("operators", "operator calls per step", ("max_operators_increase_pct",), _LEARNING),
    _count("flops", "FLOPs per step", ("max_flops_increase_pct",)),
    _count("dataset_maps", "maps that no cache can hold", ("max_dataset_maps_increase",), _ROWS),
    _count("tokenizer_calls", "tokenizer calls", ("max_tokenizer_calls_increase_pct",), _ROWS),
    _count("files_written", "files opened for writing in the look", ("max_files_increase",),
        _PACKAGES),
    _count("bytes_written", "MB written in the look", ("max_bytes_written_increase_mb",),
        _PACKAGES),
    *_rules(fatal=False),
    _stability(METRICS, "each gate in `metrics:`", ("metric_false_alarms",), _LEARNING),
)
# fmt: on
CHECKS: dict[str, CheckType] = {row.name: row for row in _TABLE}
SPEED = tuple(name for name, row in CHECKS.items() if row.clock and not row.drift)
"""Checks of step time without drift, the most reliable first."""


def sides_with(baseline: object, current: object) -> str:
    """Return which sides have a value, if one of them lacks it."""
    if baseline and current:
        return "not for every run"
    if not baseline and not current:
        return "on neither side"
    return f"only on the {'baseline' if baseline else 'current side'}"


def check_of(name: str, status: CheckStatus, message: str, **numbers: Unpack[Numbers]) -> Check:
    """Make a check of the table."""
    row = CHECKS[name]
    return Check(name, row.group, row.lane, status, message, **numbers)


def change(before: float, after: float) -> Moved:
    """Return two numbers and their difference, as a check has them."""
    pct = 100 * (after - before) / abs(before) if before else None
    return Moved(baseline=before, current=after, delta=after - before, delta_pct=pct)


TIME_WORDS = frozenset(
    (
        *("time", "timing", "sec", "secs", "seconds", "latency", "speed", "throughput"),
        *("tps", "mfu", "tflops", "utilization"),
    )
)
MEMORY_WORDS = frozenset(("mem", "memory", "vram"))


def group_of_metric(metric: str) -> Group:
    """Return the group of a gate by the words in the metric's name; stability if none is known.

    Only the group stability is accepted together with a change of learning."""
    words = set(re.split(r"[^a-z]+", metric.lower()))
    if words & MEMORY_WORDS:
        return "memory"
    return "performance" if words & TIME_WORDS else "stability"


def metric_check(
    name: str, metric: str, status: CheckStatus, message: str, **numbers: Unpack[Numbers]
) -> Check:
    """Make a check of `metrics:`; `metric` is the canary's name for it, if it has one."""
    return Check(name, group_of_metric(metric), CHECKS[METRICS].lane, status, message, **numbers)


def is_metric_gate(name: str) -> bool:
    """Whether a check is a gate of `metrics:`."""
    return name.startswith(f"{METRICS}.")


def title_of(name: str) -> str:
    """Return what a check is about, in plain words."""
    if is_metric_gate(name):
        return f"the gate on {name.removeprefix(f'{METRICS}.')}"
    title = CHECKS[name].title if name in CHECKS else name
    return f'the rule "{title}"' if any(one.id == name for one in RULES) else title


def accepted_with(check: Check) -> tuple[Change, ...]:
    """Return the changes whose acceptance covers the check's failure."""
    if is_metric_gate(check.name):
        return CHECKS[METRICS].accepted_with if check.group == "stability" else ()
    return CHECKS[check.name].accepted_with if check.name in CHECKS else ()
