"""Every check of a comparison: its name, what it asks, the limits that it reads, and what its
failure means beside other changes. A check that is not in this table cannot be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from canary.collect.metric_names import QUANTITIES
from canary.compare.recorded_stages import LEARNED_STAGES
from canary.compare.report import Check, CheckStatus, Group, Lane

Change = Literal["learning", "packages", "rows"]
"""What a person accepts: another way of learning; with it other packages; with it other rows."""


@dataclass(frozen=True)
class CheckType:
    """A row of the table."""

    name: str
    group: Group
    lane: Lane
    title: str
    """What it looks at, for people."""
    limits: tuple[str, ...] = ()
    """Keys of `Thresholds` that it reads."""
    accepted_with: tuple[Change, ...] = ()
    """Changes with which its failure is accepted too. A trend against the baseline's own may have
    another scale where another objective is learned; how many times a package reads or writes is
    its own matter. Work itself (FLOPs, tokens fed, time, memory) is never excused."""
    fatal: bool = False
    """Whether its failure says the most, so that the answer names it first."""
    clock: Literal["", "wall", "cpu"] = ""
    """What a check of how long a step takes is measured with."""
    drift: bool = False
    """Whether it is held against the first runs after the last accepted change."""


_LOSSES = (
    CheckType(
        "nan_steps",
        "stability",
        "invariant",
        "steps with a loss of NaN",
        ("max_nan_steps",),
        fatal=True,
    ),
    CheckType(
        "inf_steps",
        "stability",
        "invariant",
        "steps with a loss of Inf",
        ("max_inf_steps",),
        fatal=True,
    ),
    CheckType(
        "raw_loss_finite",
        "correctness",
        "invariant",
        "losses and gradients of the probe are finite",
        fatal=True,
    ),
    CheckType(
        "loss_divergence",
        "stability",
        "trend",
        "last tenth of the losses over the first",
        ("max_loss_rise",),
        fatal=True,
    ),
    CheckType(
        "final_loss",
        "stability",
        "trend",
        "mean of the last tenth of the losses",
        ("max_final_loss_increase_pct", "max_final_loss_drop_pct"),
        ("learning",),
    ),
    CheckType(
        "gradient_explosion",
        "stability",
        "trend",
        "largest gradient norm",
        ("max_grad_norm_ratio",),
        ("learning",),
    ),
)
_METRICS = tuple(
    CheckType(
        quantity.name,
        "stability",
        "trend",
        f"mean {quantity.words or quantity.name}",
        (quantity.limit,),
        ("learning",),
    )
    for quantity in QUANTITIES.values()
    if quantity.limit
)
_STEP, _CPU = (
    ("max_step_time_increase_pct", "sensitivity"),
    ("max_cpu_time_increase_pct", "sensitivity"),
)
_PEAK = ("max_mem_increase_mb", "max_mem_increase_pct")
_TIMES = (
    CheckType("step_time_median", "performance", "timing", "median step time", _STEP, clock="wall"),
    CheckType("step_time_mean", "performance", "timing", "mean step time", _STEP, clock="wall"),
    CheckType("cpu_time", "performance", "timing", "CPU time per step", _CPU, clock="cpu"),
    CheckType(
        "step_time_drift",
        "performance",
        "timing",
        "step time since the last accepted change",
        _STEP,
        clock="wall",
        drift=True,
    ),
    CheckType(
        "cpu_time_drift",
        "performance",
        "timing",
        "CPU time per step since the last accepted change",
        _CPU,
        clock="cpu",
        drift=True,
    ),
    CheckType(
        "step_time_within_run",
        "performance",
        "trend",
        "step time from the start to the end of the run",
        ("max_step_time_increase_pct",),
        clock="wall",
    ),
    CheckType(
        "tokens_per_sec",
        "performance",
        "timing",
        "tokens per second",
        ("max_tps_drop_pct", "sensitivity"),
    ),
    CheckType("step_time_spread", "performance", "timing", "scatter of the launches' step times"),
    CheckType(
        "gpu_utilization", "performance", "trend", "GPU utilisation", ("max_gpu_utilization_drop",)
    ),
)
_MEMORY = (
    CheckType("max_memory", "memory", "timing", "peak memory", _PEAK),
    CheckType("reserved_memory", "memory", "trend", "reserved device memory", _PEAK),
    CheckType(
        "memory_growth",
        "memory",
        "trend",
        "growth of memory per step",
        ("max_mem_growth_mb_per_step",),
    ),
    CheckType(
        "live_tensors",
        "memory",
        "exact",
        "tensors more alive after each step",
        ("max_live_tensors_per_step",),
    ),
    CheckType(
        "live_memory",
        "memory",
        "exact",
        "MB of tensors alive between steps",
        ("max_mem_increase_pct",),
    ),
)
_WORK = (
    CheckType(
        "tokens_fed",
        "performance",
        "exact",
        "token positions fed per step",
        ("max_tokens_fed_increase_pct",),
    ),
    CheckType(
        "host_reads",
        "performance",
        "exact",
        "tensor values read by Python per step",
        ("max_host_reads_increase",),
        ("packages",),
    ),
    CheckType(
        "collectives",
        "performance",
        "exact",
        "collective operations per step",
        ("max_collectives_increase",),
    ),
    CheckType(
        "recompiles",
        "performance",
        "exact",
        "recompilations per step",
        ("max_recompiles_increase",),
    ),
    CheckType(
        "operators",
        "performance",
        "exact",
        "operator calls per step",
        ("max_operators_increase_pct",),
        ("packages",),
    ),
    CheckType("flops", "performance", "exact", "FLOPs per step", ("max_flops_increase_pct",)),
    CheckType(
        "dataset_maps",
        "performance",
        "exact",
        "passes over the dataset not found in the cache",
        ("max_dataset_maps_increase",),
        ("packages", "rows"),
    ),
    CheckType(
        "tokenizer_calls",
        "performance",
        "exact",
        "tokenizer calls",
        ("max_tokenizer_calls_increase_pct",),
        ("packages", "rows"),
    ),
    CheckType(
        "files_written",
        "performance",
        "exact",
        "files opened for writing in the probe",
        ("max_files_increase",),
        ("packages",),
    ),
    CheckType(
        "bytes_written",
        "performance",
        "exact",
        "MB written in the probe",
        ("max_bytes_written_increase_mb",),
        ("packages",),
    ),
)
_STAGES = tuple(
    CheckType(stage, "correctness", "exact", words) for stage, words in LEARNED_STAGES.items()
)
_INVARIANTS = tuple(
    CheckType(name, "correctness", "invariant", title)
    for name, title in {
        "loss_not_negative": "the loss is not negative",
        "dpo_first_loss": "the first loss is ln 2",
        "kto_first_loss": "the first loss is 1/2",
        "starts_at_ratio_one": "training starts at ratio 1 and KL 0",
        "advantages_sum_to_zero": "advantages sum to zero",
        "advantages_scaled": "advantages are scaled",
        "reward_varies": "the reward varies",
        "rewards_add_up": "rewards sum to the score less the KL",
        "labels_contain_eos": "labels contain EOS",
        "at_most_one_bos": "a sequence has at most one BOS",
        "trainable_changed": "trainable parameters change",
        "frozen_unchanged": "frozen parameters stay",
        "learning_rate_positive": "learning rates are positive",
        "sampled_ids_trained": "the sampled ids are the trained ids",
        "ranks_agree": "ranks agree",
    }.items()
)
CHECKS: dict[str, CheckType] = {
    check.name: check
    for check in (
        *_LOSSES,
        *_METRICS,
        CheckType("alerts", "stability", "trend", "types of alerts that the baseline has not"),
        *_TIMES,
        *_MEMORY,
        CheckType("repeatability", "correctness", "exact", "equal runs are equal"),
        *_STAGES,
        *_WORK,
        *_INVARIANTS,
    )
}
SPEED = tuple(name for name, row in CHECKS.items() if row.clock and not row.drift)
"""What tells how long a step takes now, the surest first."""


def check_of(name: str, status: CheckStatus, message: str) -> Check:
    """A check of the table with its answer; figures are added by `dataclasses.replace`."""
    row = CHECKS[name]
    return Check(name, row.group, row.lane, status, message)


def markdown_table() -> str:
    """Every check with its group, lane and limits, as a Markdown table."""
    lines = ["| it looks at | check | group | lane | limits |", "|---|---|---|---|---|"]
    for name, row in CHECKS.items():
        limits = ", ".join(f"`{key}`" for key in row.limits)
        lines.append(f"| {row.title} | `{name}` | {row.group} | {row.lane} | {limits} |")
    return "\n".join(lines) + "\n"
