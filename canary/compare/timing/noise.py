"""The measured noise of one canary on one type of machine, as `canary calibrate` writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canary.compare.timing.estimate import Spread
from canary.errors import InputError
from canary.record import jsonio

NOISE_SCHEMA_VERSION: Literal[1] = 1
LARGEST = 1 << 20
"""Bytes of a noise model; ours have some thousand."""


class MetricNoise(BaseModel):
    """Standard deviations of the logarithm of one metric over equal launches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_sd: float = Field(ge=0)
    """Of one launch about the mean."""
    run_df: int = Field(ge=1)
    pair_sd: float | None = Field(None, ge=0)
    """Of the difference of two consecutive launches, about zero."""
    pair_df: int | None = Field(None, ge=1)


class NoiseModel(BaseModel):
    """How much each metric and exact signal varies between equal launches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = NOISE_SCHEMA_VERSION
    canary: str
    machine_key: str
    created: str
    """ISO 8601, UTC."""
    runs: int = Field(ge=2)
    metrics: dict[str, MetricNoise]
    inexact: dict[str, float] = Field(default_factory=dict)
    """Exact-lane signals that differed between equal runs, with the largest relative difference;
    1.0 if the signal is not a number."""
    detectable_pct: dict[str, dict[str, float]] = Field(default_factory=dict)
    """For readers: the smallest change in percent that four of five comparisons find, by metric
    and number of pairs (`history`: one run against twenty stored ones)."""

    def run_spread(self, metric: str) -> Spread | None:
        """Return the spread of one launch; None if the model lacks the metric."""
        noise = self.metrics.get(metric)
        if noise is None:
            return None
        return Spread(noise.run_sd, noise.run_df, f"noise model of {self.runs} runs")

    def pair_spread(self, metric: str) -> Spread | None:
        """Return the spread of a pair's difference, from single launches if no pairs were kept."""
        noise = self.metrics.get(metric)
        if noise is None:
            return None
        source = f"noise model of {self.runs} runs"
        if noise.pair_sd is None or noise.pair_df is None:
            return Spread(math.sqrt(2.0) * noise.run_sd, noise.run_df, source)
        return Spread(noise.pair_sd, noise.pair_df, source)


def metric_noise(logs: Sequence[float]) -> MetricNoise:
    """Return the spread of at least two equal launches, given in the order in which they ran."""
    count = len(logs)
    mean = sum(logs) / count
    run_sd = math.sqrt(sum((value - mean) ** 2 for value in logs) / (count - 1))
    pairs = [logs[i + 1] - logs[i] for i in range(0, count - 1, 2)]
    pair_sd = math.sqrt(sum(pair * pair for pair in pairs) / len(pairs))
    return MetricNoise(run_sd=run_sd, run_df=count - 1, pair_sd=pair_sd, pair_df=len(pairs))


def load_noise(path: Path) -> NoiseModel:
    """Read a noise model.

    Raises:
        InputError: the file is missing, unreadable, or of another schema.
    """
    try:
        document: Any = jsonio.loads(jsonio.content_of(path, LARGEST))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not a noise model: {error}") from error
    try:
        return NoiseModel.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "document"
        raise InputError(
            f"{path} is not a noise model: {key}: {first['msg']}",
            "write one with: canary calibrate",
        ) from error


def save_noise(model: NoiseModel, path: Path) -> None:
    """Write a noise model; the file is replaced as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    jsonio.replace_file(path, jsonio.dumps(model.model_dump(), indent=1) + "\n")
