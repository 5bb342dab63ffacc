"""Records of PPO that differ in one place: a look of six steps on the embedded default."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline, load_metrics
from canary.record.types import RunRecord
from tests.unit.comparing import altered, plain

FILE = Path(__file__).parents[1] / "data" / "ppo_look.json"
SIGNALS = ("exact", "rollout", "signals")
METRICS = ("exact", "trajectory", "rl")


@cache
def _loaded() -> RunRecord:
    return load_metrics(FILE)


def ppo(number: int = 0) -> RunRecord:
    """The example; `number` orders runs in time."""
    whole = _loaded().model_copy(deep=True)
    return whole.model_copy(
        update={"run_id": f"run-{number}", "timestamp": f"2026-01-0{number + 1}"}
    )


def moved(
    whole: RunRecord, signal: str, step: int, factor: float = 1.01, *, only: str | None = None
) -> RunRecord:
    """A signal's statistics of a step, from 1, and all later ones, times a factor."""
    for key in ("mean", "rms", "placed"):
        if only in (None, key):
            series = whole.exact["rollout"]["signals"][signal][key]
            later = [v if place + 1 < step else factor * v for place, v in enumerate(series)]
            whole = altered(whole, *SIGNALS, signal, key, to=later)
    return whole


def later(whole: RunRecord, step: int, factor: float = 1.01) -> RunRecord:
    """Losses from a step on times a factor."""
    losses = plain(whole)["trajectory"]["losses"]
    other = [v if place + 1 < step else factor * v for place, v in enumerate(losses)]
    return altered(whole, "exact", "trajectory", "losses", to=other)


def other_completions(whole: RunRecord, step: int) -> RunRecord:
    """From a step on, one completion is another."""
    for place in range(step - 1, len(whole.exact["batches"])):
        micro = ("exact", "batches", place, 0)
        rows = whole.exact["batches"][place][0]["rows"]
        others = rows | {"completion_ids": ["other", *rows["completion_ids"][1:]]}
        whole = altered(altered(whole, *micro, "rows", to=others), *micro, "sha256", to="f" * 64)
    return whole


def compared(current: RunRecord, baseline: RunRecord | None = None) -> Comparison:
    return compare_to_baseline(current, baseline or ppo(), gates=())


def altered_config(whole: RunRecord, key: str, value: Any) -> RunRecord:
    """With another value in the `ppo` section."""
    return altered(whole, "config", "ppo", key, to=value)
