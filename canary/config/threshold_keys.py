"""The limits of a comparison: of each its key, default, range and meaning.

The config's section `thresholds`, `--set`, the table in the documentation and what the checks read
all come from here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from canary.config.strict import Real, Strict

TierName = Literal["default", "smoke", "perf", "nightly"]


class Thresholds(BaseModel):
    """What may change before a check fails. Percentages are of the baseline."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    max_step_time_increase_pct: float = Field(
        10.0, gt=0, description="Step time, mean and median, as long as the change is real."
    )
    max_cpu_time_increase_pct: float = Field(
        10.0,
        gt=0,
        description="CPU time per step of all training processes; on a CPU, with `threads: 1`.",
    )
    max_tps_drop_pct: float = Field(
        8.0, gt=0, lt=100, description="Tokens per second, derived from step time and token counts."
    )
    sensitivity: Literal["fixed", "adaptive"] = Field(
        "fixed",
        description="`adaptive`: step time gates at what the measured noise shows, 2% at best.",
    )

    max_mem_increase_mb: float = Field(
        500.0,
        gt=0,
        description="Peak memory in MB; whichever of this and the next is reached first.",
    )
    max_mem_increase_pct: float = Field(20.0, gt=0, description="Peak memory in percent.")
    max_mem_growth_mb_per_step: float = Field(
        0.5, gt=0, description="Steady growth of memory while training, over the baseline's own."
    )
    max_gpu_utilization_drop: float = Field(
        10.0, gt=0, le=100, description="Percentage points; a larger drop warns."
    )

    max_nan_steps: int = Field(0, ge=0, description="Steps whose loss was NaN.")
    max_inf_steps: int = Field(0, ge=0, description="Steps whose loss was infinite.")
    max_loss_rise: float = Field(
        1.5, gt=1, description="Mean of the last tenth of the losses over that of the first."
    )
    max_final_loss_increase_pct: float = Field(
        10.0, gt=0, description="Mean of the last tenth of the losses."
    )
    max_final_loss_drop_pct: float = Field(
        20.0,
        gt=0,
        lt=100,
        description="A larger drop warns: better than before for no known reason is a finding too.",
    )
    max_grad_norm_ratio: float = Field(
        5.0, gt=1, description="Largest gradient norm over the largest of the baseline."
    )
    max_kl_ratio: float = Field(
        5.0, gt=1, description="Mean KL to the reference over the baseline's."
    )
    max_reward_drop_std: float = Field(
        1.0,
        gt=0,
        description="Drop of the mean reward, in standard deviations of the baseline's steps.",
    )
    max_margin_drop_pct: float = Field(
        50.0, gt=0, description="Drop of the mean margin between chosen and rejected."
    )
    max_entropy_drop_pct: float = Field(
        50.0, gt=0, le=100, description="Drop of the mean entropy of the policy."
    )

    max_flops_increase_pct: float = Field(
        25.0, gt=0, description="Floating-point operations of one step."
    )
    max_operators_increase_pct: float = Field(20.0, gt=0, description="Operator calls of one step.")
    max_tokens_fed_increase_pct: float = Field(
        10.0,
        gt=0,
        description="Token positions that enter the model in one step, generation included.",
    )
    max_host_reads_increase: int = Field(
        1, ge=0, description="Reads of a tensor's value by Python (`.item()`), a micro-batch."
    )
    max_collectives_increase: int = Field(0, ge=0, description="Collective operations of one step.")
    max_recompiles_increase: int = Field(
        0, ge=0, description="Recompilations during the counted step."
    )
    max_live_tensors_per_step: float = Field(
        0.5, gt=0, description="Tensors more alive after each step, over the baseline's."
    )
    max_files_increase: int = Field(10, ge=0, description="Files opened for writing in the probe.")
    max_bytes_written_increase_mb: float = Field(
        1.0, gt=0, description="Bytes written in the probe, in MB."
    )
    max_tokenizer_calls_increase_pct: float = Field(
        10.0,
        gt=0,
        description="Tokenizer calls in a launch; from zero, in percent of one call per step.",
    )
    max_dataset_maps_increase: int = Field(
        0, ge=0, description="Passes over the dataset that were not found in the cache."
    )


DEFAULT_THRESHOLDS = Thresholds()
SMOKE_THRESHOLDS = Thresholds(
    max_step_time_increase_pct=15.0,
    max_cpu_time_increase_pct=15.0,
    max_tps_drop_pct=12.0,
    max_mem_increase_mb=1000.0,
)
PERF_THRESHOLDS = Thresholds(
    max_step_time_increase_pct=8.0,
    max_cpu_time_increase_pct=8.0,
    max_tps_drop_pct=5.0,
    max_mem_increase_mb=300.0,
)
NIGHTLY_THRESHOLDS = Thresholds(
    max_step_time_increase_pct=5.0,
    max_cpu_time_increase_pct=5.0,
    max_tps_drop_pct=3.0,
    max_mem_increase_mb=200.0,
)

TIER_THRESHOLDS: dict[TierName, Thresholds] = {
    "default": DEFAULT_THRESHOLDS,
    "smoke": SMOKE_THRESHOLDS,
    "perf": PERF_THRESHOLDS,
    "nightly": NIGHTLY_THRESHOLDS,
}


def with_limits(section: type[Strict]) -> type[Strict]:
    """The section with every limit as a key of the same range that need not be set."""
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
    """Tolerances of a later comparison: a tier, and what differs from it."""

    base_tier: TierName = Field(
        "default", description="Tier whose tolerances apply where none is given here."
    )
