"""Tolerances of a comparison, by tier. Every one of them is read by a check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from canary.config.schema import CanaryConfig
from canary.config.source import read_chain
from canary.config.threshold_keys import ThresholdsConfig
from canary.errors import ConfigError, did_you_mean, nearest

TierName = Literal["default", "smoke", "perf", "nightly"]


def _plain_float(value: Any) -> Any:
    """A whole number is a number; text and booleans are not."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


Real = Annotated[float, BeforeValidator(_plain_float)]


class Thresholds(BaseModel):
    """What may change before a check fails. Percentages are of the baseline."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    max_step_time_increase_pct: Real = Field(10.0, gt=0)
    """Step time, mean and median, as long as the change is real."""
    max_cpu_time_increase_pct: Real = Field(10.0, gt=0)
    """CPU time per step of all processes that train, on a CPU with one thread in each."""
    max_tps_drop_pct: Real = Field(8.0, gt=0, lt=100)
    """Tokens per second, derived from step time and token counts."""
    sensitivity: Literal["fixed", "adaptive"] = "fixed"
    """`adaptive` gates at what the measured noise lets one see, 2% at best, instead of the step
    time's tolerance."""

    max_mem_increase_mb: Real = Field(500.0, gt=0)
    """Peak memory in MB; whichever of this and the next is reached first."""
    max_mem_increase_pct: Real = Field(20.0, gt=0)
    """Peak memory in percent."""
    max_mem_growth_mb_per_step: Real = Field(0.5, gt=0)
    """Steady growth of memory while training, over the baseline's own."""
    max_gpu_utilization_drop: Real = Field(10.0, gt=0, le=100)
    """Percentage points; a larger drop warns."""

    max_nan_steps: int = Field(0, ge=0)
    """Steps whose loss was NaN."""
    max_inf_steps: int = Field(0, ge=0)
    """Steps whose loss was infinite."""
    max_loss_rise: Real = Field(1.5, gt=1)
    """The last tenth of the losses over the first tenth: above it, the loss diverged."""
    max_final_loss_increase_pct: Real = Field(10.0, gt=0)
    """Mean of the last tenth of the losses."""
    max_final_loss_drop_pct: Real = Field(20.0, gt=0, lt=100)
    """A larger drop warns: better than before for no known reason is a finding too."""
    max_grad_norm_ratio: Real = Field(5.0, gt=1)
    """Largest gradient norm over the largest of the baseline."""
    max_kl_ratio: Real = Field(5.0, gt=1)
    """Mean KL to the reference over the baseline's."""
    max_reward_drop_std: Real = Field(1.0, gt=0)
    """Drop of the mean reward, in standard deviations of the baseline's steps."""
    max_margin_drop_pct: Real = Field(50.0, gt=0)
    """Drop of the mean margin between chosen and rejected."""
    max_entropy_drop_pct: Real = Field(50.0, gt=0, le=100)
    """Drop of the mean entropy of the policy."""

    max_flops_increase_pct: Real = Field(25.0, gt=0)
    """Floating-point operations of one step."""
    max_operators_increase_pct: Real = Field(20.0, gt=0)
    """Operator calls of one step."""
    max_tokens_fed_increase_pct: Real = Field(10.0, gt=0)
    """Token positions that enter the model in one step, generation included."""
    max_host_reads_increase: int = Field(1, ge=0)
    """Reads of a tensor's value by Python (`.item()`), a micro-batch."""
    max_collectives_increase: int = Field(0, ge=0)
    """Collective operations of one step."""
    max_recompiles_increase: int = Field(0, ge=0)
    """Recompilations during the counted step."""
    max_live_tensors_per_step: Real = Field(0.5, gt=0)
    """Tensors more alive after each step than after the one before, over the baseline's."""
    max_files_increase: int = Field(10, ge=0)
    """Files opened for writing in the probe."""
    max_bytes_written_increase_mb: Real = Field(1.0, gt=0)
    """Bytes written in the probe, in MB."""
    max_tokenizer_calls_increase_pct: Real = Field(10.0, gt=0)
    """Tokenizer calls in a launch; from zero, in percent of one call per step."""
    max_dataset_maps_increase: int = Field(0, ge=0)
    """Passes over the dataset that were not found in the cache."""


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


def tier_thresholds(name: str) -> Thresholds:
    """The tolerances of a tier.

    Raises:
        ConfigError: no such tier.
    """
    for tier, thresholds in TIER_THRESHOLDS.items():
        if tier == name:
            return thresholds
    raise ConfigError(f"no threshold tier {name!r}", f"one of {', '.join(TIER_THRESHOLDS)}")


def from_config(config: ThresholdsConfig) -> Thresholds:
    """The tier that a config names, with what the config sets over it."""
    given = config.model_dump(exclude={"base_tier"}, exclude_none=True)
    return check_values(tier_thresholds(config.base_tier), given, "the config")


def load_thresholds(path: Path | str, tier: str | None = None) -> Thresholds:
    """Reads a YAML file of thresholds: `base_tier` and any of the keys of `Thresholds`, at the top
    or under `thresholds:` (so that a canary's config serves too). `tier` replaces `base_tier`.

    Raises:
        ConfigError: not readable, an unknown key, or a wrong value; names file and key.
    """
    file = Path(path)
    document, _ = read_chain(file)
    values = dict(document)
    if isinstance(values.get("thresholds"), dict):
        beside = {k: value for k, value in values.items() if k not in CanaryConfig.model_fields}
        check_values(DEFAULT_THRESHOLDS, beside, str(file))
        for key in beside:
            raise ConfigError(
                f"{key} in {file} is beside `thresholds:`, where nothing reads it",
                "move it under `thresholds:`",
                file=file,
                key=key,
            )
        values = dict(values["thresholds"])
    named = str(values.pop("base_tier", "default"))
    try:
        base = tier_thresholds(tier or named)
    except ConfigError as error:
        if tier:
            raise
        raise ConfigError(
            f"base_tier in {file}: {error.message}", error.hint, file=file, key="base_tier"
        ) from error
    return check_values(base, values, str(file))


def check_values(base: Thresholds, values: dict[str, Any], source: str) -> Thresholds:
    """`base` with `values` over it.

    Raises:
        ConfigError: a key that no check reads, or a value out of range.
    """
    for key in values:
        if key not in Thresholds.model_fields:
            hint = did_you_mean(nearest(key, Thresholds.model_fields), "no check reads it")
            raise ConfigError(
                f"unknown threshold {key!r} in {source}", hint, file=source, key=str(key)
            )
    try:
        return Thresholds.model_validate(base.model_dump() | values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"][0].lower() + first["msg"][1:]
        raise ConfigError(
            f"{key} in {source}: {message}, got {first['input']!r}",
            file=source,
            key=key,
        ) from error
