"""The `thresholds` section of a config. What each tier sets is in `canary.compare.thresholds`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from canary.config.strict import Real, Strict


class ThresholdsConfig(Strict):
    """Tolerances of a later comparison: a tier, and what differs from it."""

    base_tier: Literal["default", "smoke", "perf", "nightly"] = Field(
        "default", description="Tier whose tolerances apply where none is given here."
    )
    max_step_time_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="Step time, mean and median, as long as the change is real.",
    )
    max_cpu_time_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="CPU time per step of all training processes; on a CPU, with `threads: 1`.",
    )
    max_tps_drop_pct: Real | None = Field(
        None,
        gt=0,
        lt=100,
        description="Tokens per second, derived from step time and token counts.",
    )
    sensitivity: Literal["fixed", "adaptive"] | None = Field(
        None,
        description="`adaptive`: step time gates at what the measured noise shows, 2% at best.",
    )
    max_mem_increase_mb: Real | None = Field(
        None,
        gt=0,
        description="Peak memory in MB; whichever of this and the next is reached first.",
    )
    max_mem_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="Peak memory in percent.",
    )
    max_mem_growth_mb_per_step: Real | None = Field(
        None,
        gt=0,
        description="Steady growth of memory while training, over the baseline's own.",
    )
    max_gpu_utilization_drop: Real | None = Field(
        None,
        gt=0,
        le=100,
        description="Percentage points; a larger drop warns.",
    )
    max_nan_steps: int | None = Field(
        None,
        ge=0,
        description="Steps whose loss was NaN.",
    )
    max_inf_steps: int | None = Field(
        None,
        ge=0,
        description="Steps whose loss was infinite.",
    )
    max_loss_rise: Real | None = Field(
        None,
        gt=1,
        description="Mean of the last tenth of the losses over that of the first.",
    )
    max_final_loss_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="Mean of the last tenth of the losses.",
    )
    max_final_loss_drop_pct: Real | None = Field(
        None,
        gt=0,
        lt=100,
        description="A larger drop warns: better than before for no known reason is a finding too.",
    )
    max_grad_norm_ratio: Real | None = Field(
        None,
        gt=1,
        description="Largest gradient norm over the largest of the baseline.",
    )
    max_kl_ratio: Real | None = Field(
        None,
        gt=1,
        description="Mean KL to the reference over the baseline's.",
    )
    max_reward_drop_std: Real | None = Field(
        None,
        gt=0,
        description="Drop of the mean reward, in standard deviations of the baseline's steps.",
    )
    max_margin_drop_pct: Real | None = Field(
        None,
        gt=0,
        description="Drop of the mean margin between chosen and rejected.",
    )
    max_entropy_drop_pct: Real | None = Field(
        None,
        gt=0,
        le=100,
        description="Drop of the mean entropy of the policy.",
    )
    max_flops_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="Floating-point operations of one step.",
    )
    max_operators_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="Operator calls of one step.",
    )
    max_tokens_fed_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="Token positions that enter the model in one step, generation included.",
    )
    max_host_reads_increase: int | None = Field(
        None,
        ge=0,
        description="Reads of a tensor's value by Python (`.item()`), a micro-batch.",
    )
    max_collectives_increase: int | None = Field(
        None,
        ge=0,
        description="Collective operations of one step.",
    )
    max_recompiles_increase: int | None = Field(
        None,
        ge=0,
        description="Recompilations during the counted step.",
    )
    max_live_tensors_per_step: Real | None = Field(
        None,
        gt=0,
        description="Tensors more alive after each step, over the baseline's.",
    )
    max_files_increase: int | None = Field(
        None,
        ge=0,
        description="Files opened for writing in the probe.",
    )
    max_bytes_written_increase_mb: Real | None = Field(
        None,
        gt=0,
        description="Bytes written in the probe, in MB.",
    )
    max_tokenizer_calls_increase_pct: Real | None = Field(
        None,
        gt=0,
        description="Tokenizer calls in a launch; from zero, in percent of one call per step.",
    )
    max_dataset_maps_increase: int | None = Field(
        None,
        ge=0,
        description="Passes over the dataset that were not found in the cache.",
    )
