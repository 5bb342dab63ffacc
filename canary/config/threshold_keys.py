"""The limits of a comparison: key, default, range and meaning of each.

The config section `thresholds`, `--set`, the table in the docs and the checks all read this module.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from canary.config.sections import Real, Strict

TierName = Literal["default", "smoke", "perf", "nightly"]


class Thresholds(Strict):
    """How much may change before a check fails. Percentages are of the baseline."""

    max_step_time_increase_pct: float = Field(10.0, gt=0)
    """Step time (mean and median); only a significant rise fails."""
    max_cpu_time_increase_pct: float = Field(10.0, gt=0)
    """CPU time per step of all training processes; only on a CPU with `threads: 1`."""
    max_tps_drop_pct: float = Field(8.0, gt=0, lt=100)
    """Tokens per second, from mean step time and token counts."""
    sensitivity: Literal["fixed", "adaptive"] = "fixed"
    """`adaptive`: tighten time limits to what the noise lets you see, at least 2%."""

    max_mem_increase_mb: float = Field(500.0, gt=0)
    """Peak memory in MB; the smaller of this and the next limit counts."""
    max_mem_increase_pct: float = Field(20.0, gt=0)
    """Peak memory in percent."""
    max_mem_growth_mb_per_step: float = Field(0.5, gt=0)
    """Steady memory growth per step, above the baseline's growth."""
    max_gpu_utilization_drop: float = Field(10.0, gt=0, le=100)
    """GPU utilisation in percentage points; more only warns."""

    max_steps_lost_pct: float = Field(10.0, gt=0, lt=100)
    """Steps that a launch trains fewer than the baseline's; fewer lost warn."""
    max_nan_steps: int = Field(0, ge=0)
    """Steps with a NaN loss."""
    max_inf_steps: int = Field(0, ge=0)
    """Steps with an infinite loss."""
    max_loss_rise: float = Field(1.5, gt=1)
    """Mean of the last tenth of the losses divided by the first tenth's."""
    max_final_loss_increase_pct: float = Field(10.0, gt=0)
    """Final loss: the mean of the last tenth of the losses."""
    max_final_loss_drop_pct: float = Field(20.0, gt=0, lt=100)
    """Final loss; a larger drop only warns, because labels may have leaked."""
    max_grad_norm_ratio: float = Field(5.0, gt=1)
    """Largest gradient norm divided by the baseline's."""
    max_kl_ratio: float = Field(5.0, gt=1)
    """Mean KL to the reference model divided by the baseline's."""
    max_reward_drop_std: float = Field(1.0, gt=0)
    """Mean reward, in standard deviations of the baseline's steps."""
    max_margin_drop_pct: float = Field(50.0, gt=0)
    """Mean margin between chosen and rejected."""
    max_entropy_drop_pct: float = Field(50.0, gt=0, le=100)
    """Mean entropy of the policy."""

    metric_false_alarms: float = Field(0.005, gt=0, le=0.2)
    """Probability that the gates of `metrics` fail by chance in a comparison, all together."""

    max_flops_increase_pct: float = Field(25.0, gt=0)
    """Floating-point operations per step."""
    max_operators_increase_pct: float = Field(20.0, gt=0)
    """Operator calls per step."""
    max_tokens_fed_increase_pct: float = Field(10.0, gt=0)
    """Token positions that enter the model per step, generation included."""
    max_host_reads_increase: int = Field(1, ge=0)
    """Tensor values read by Python (`.item()`) per micro-batch."""
    max_collectives_increase: int = Field(0, ge=0)
    """Collective operations per step."""
    max_recompiles_increase: int = Field(0, ge=0)
    """Recompilations during the counted step."""
    max_live_tensors_per_step: float = Field(0.5, gt=0)
    """Live tensors gained per step, above the baseline's gain."""
    max_files_increase: int = Field(10, ge=0)
    """Files opened for writing in the look."""
    max_bytes_written_increase_mb: float = Field(1.0, gt=0)
    """MB written to files in the look."""
    max_tokenizer_calls_increase_pct: float = Field(10.0, gt=0)
    """Tokenizer calls per launch; from zero, percent of one call per step."""
    max_dataset_maps_increase: int = Field(0, ge=0)
    """Maps of a dataset (`map`) that no cache can hold."""


def _tier(*, time_pct: float, tokens_pct: float, memory_mb: float) -> Thresholds:
    return Thresholds(
        max_step_time_increase_pct=time_pct,
        max_cpu_time_increase_pct=time_pct,
        max_tps_drop_pct=tokens_pct,
        max_mem_increase_mb=memory_mb,
    )


DEFAULT_THRESHOLDS = Thresholds()
SMOKE_THRESHOLDS = _tier(time_pct=15.0, tokens_pct=12.0, memory_mb=1000.0)
PERF_THRESHOLDS = _tier(time_pct=8.0, tokens_pct=5.0, memory_mb=300.0)
NIGHTLY_THRESHOLDS = _tier(time_pct=5.0, tokens_pct=3.0, memory_mb=200.0)

TIER_THRESHOLDS: dict[str, Thresholds] = {
    "default": DEFAULT_THRESHOLDS,
    "smoke": SMOKE_THRESHOLDS,
    "perf": PERF_THRESHOLDS,
    "nightly": NIGHTLY_THRESHOLDS,
}


def with_limits(section: type[Strict]) -> type[Strict]:
    """Return the section with every limit as an optional key of the same range."""
    keys: dict[str, Any] = {}
    for name, field in Thresholds.model_fields.items():
        written: Any = Real if field.annotation is float else field.annotation
        about = Field(description=field.description)
        keys[name] = (Annotated[(written | None, about, *field.metadata)], None)
    return create_model(
        section.__name__,
        __base__=section,
        __doc__=section.__doc__,
        __module__=section.__module__,
        **keys,
    )


@with_limits
class ThresholdsConfig(Strict):
    """Limits of a later comparison: a tier, and the limits that differ from it."""

    base_tier: TierName = "default"
    """Tier of the limits that you do not set here."""
