"""`canary check`: one look of a training, in which its model is asked a second time; and pairs of
looks that must learn the same, which the ordinary comparison judges."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.config.load import LoadedConfig
from canary.errors import RunFailed, UsageError
from canary.protocol.job import Listener, Variation
from canary.record.exact import Exact
from canary.record.types import RunRecord
from canary.runner.run import run_canary

Way = Literal["resume", "workers"]
LEARNED = ("batches", "trajectory")
"""What two looks are compared by that do not begin at the same step."""


@dataclass(frozen=True)
class Checks:
    """What `canary check` is asked for beside the rules."""

    resume: bool = False
    workers: int | None = None

    def ways(self) -> tuple[Way, ...]:
        """Return the pairs to run.

        Raises:
            UsageError: a number is too small.
        """
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be at least 1, got {self.workers}")
        workers: tuple[Way, ...] = () if self.workers is None else ("workers",)
        return ("resume", *workers) if self.resume else workers


def checked(
    loaded: LoadedConfig,
    listener: Listener,
    output_dir: Path | None,
    variation: Variation | None = None,
) -> tuple[RunRecord, Path]:
    """Run the look of a training; return its record and its folder. What another program records
    runs whole: there is no look.

    Raises:
        RunFailed: the training does not complete, or cannot be varied.
        As `run_canary`.
    """
    config = loaded.config
    change: dict[str, object] = {"repeats": 1}
    if config.imports is None:
        profiler = config.profiler.model_copy(update={"enabled": False})
        change |= {"exact": True, "profiler": profiler}
    loaded = replace(loaded, config=config.model_copy(update=change))
    record, folder, result = run_canary(
        loaded, listener, output_dir, asks_again=variation is None, variation=variation
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if record.status != "completed":
        why = f"the training does not complete: {record.reason}"
        raise RunFailed(why, record.status, f"look at {folder / 'log.txt'}")
    if result.not_varied is not None:
        raise UsageError(result.not_varied)
    return record, folder


def compared_ways(
    loaded: LoadedConfig, checks: Checks, listener: Listener, output_dir: Path | None
) -> Iterator[tuple[str, Comparison]]:
    """Run each pair of looks and compare them. Yields what was done, for people, and the answer.

    Raises:
        UsageError: a pair is not possible for this training.
        As `checked`.
    """
    if checks.resume:
        yield "resumed", _resumed(loaded, listener, output_dir)
    if checks.workers is not None:
        without, sides = (
            checked(loaded, listener, output_dir, {"workers": count})[0]
            for count in (0, checks.workers)
        )
        yield f"with {checks.workers} data workers", compare_to_baseline(sides, without)


def _resumed(loaded: LoadedConfig, listener: Listener, output_dir: Path | None) -> Comparison:
    """Compare the second half of a look with a training that resumes there."""
    steps = loaded.config.look_steps
    half = max(1, min(steps, loaded.config.max_steps or steps) // 2)
    whole, folder = checked(loaded, listener, output_dir, {"save_at": half})
    saved = next(iter(sorted(folder.glob("checkpoint-*"))), None)
    if saved is None:
        raise UsageError("the training saves no checkpoint", "only a transformers Trainer can")
    shorter = loaded.config.model_copy(update={"look_steps": half})
    try:
        resumed, _ = checked(
            replace(loaded, config=shorter), listener, output_dir, {"resume": str(saved)}
        )
    finally:
        shutil.rmtree(saved, ignore_errors=True)
    return compare_to_baseline(_learned(resumed, 0, half), _learned(whole, half, half))


def _learned(record: RunRecord, first: int, steps: int) -> RunRecord:
    """Return a record with some steps of its look alone, counted from 1."""
    exact: Mapping[str, Any] = record.exact
    kept = {name: _steps(exact[name], first, steps) for name in LEARNED if name in exact}
    made: Exact = {"steps": steps, "data": record.exact.get("data", {}), **kept}  # type: ignore[typeddict-item]
    # The curve is that of all steps.
    stability = record.stability.model_copy(update={"loss_values": []})
    return record.model_copy(update={"exact": made, "first_step": 1, "stability": stability})


def _steps(value: Any, first: int, steps: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _steps(one, first, steps) for name, one in value.items()}
    return value[first : first + steps]
