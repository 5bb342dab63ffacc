"""NeMo-RL's `metrics.json`: `{tag: {step: value}}`, as tests/json_dump_tb_logs.py writes it.

Read in NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909 (0.6.0). NeMo-RL compares no two
such files: its scripts check single values by expressions. So our default is exact.
"""

from __future__ import annotations

import json
from typing import Any

from canary.golden.formats.schema import NotThis, Schema, by_step, statistic_of
from canary.golden.model import Golden, GoldenMetric
from canary.golden.tolerance import EXACT

PROJECT = "NVIDIA-NeMo/RL 7ea279abfbeb698b092856d0dab61e7cf39bc909"

TAGS = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/lr",
    "reward": "train/reward",
    "step_time_s": "timing/train/total_step_time",
    "tokens_per_sec": "performance/tokens_per_sec",
    "tokens_per_sec_per_gpu": "performance/tokens_per_sec_per_gpu",
    "mismatch": "train/token_mult_prob_error",
}


def _recognizes(document: Any) -> bool:
    return bool(document) and all(isinstance(one, dict) for one in document.values())


def _read(document: dict[str, Any]) -> Golden:
    if not document:
        raise NotThis("it holds no metric")
    names = {tag: name for name, tag in TAGS.items()}
    metrics = {}
    for tag, values in document.items():
        name = names.get(tag, tag)
        metrics[tag] = GoldenMetric(
            by_step(values, tag), SCHEMA.tolerance(tag, name), statistic_of(name)
        )
    return Golden("nemo", metrics)


def _write(golden: Golden) -> str:
    document = {
        tag: {
            str(step): value
            for step, value in zip(one.series.steps, one.series.values, strict=True)
        }
        for tag, one in sorted(golden.metrics.items())
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


SCHEMA = Schema(
    "nemo",
    PROJECT,
    _recognizes,
    _read,
    _write,
    tags=TAGS,
    tolerances={"train/loss": EXACT},
)
