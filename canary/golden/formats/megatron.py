"""Megatron-LM's golden values: per metric start, end and interval of the steps, and the values.

Read in NVIDIA/Megatron-LM at d98e8a64ddf34856e74b24714e3bedb2f5a39553 (core 0.20.0), in
tests/functional_tests/python_test_utils. Its own check is looser than ours. In its approximate
tests one step is always free. A "nan" in the file equals a missing step. Steps that the file lacks
are ignored.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

from canary.golden.formats.schema import (
    NotThis,
    Schema,
    finite_number,
    rising,
    step_number,
)
from canary.golden.model import Golden, GoldenMetric
from canary.golden.tolerance import EXACT, Tolerance

PROJECT = "NVIDIA/Megatron-LM d98e8a64ddf34856e74b24714e3bedb2f5a39553"
DECIMALS = 5
KEYS = {"start_step", "end_step", "step_interval", "values"}

TAGS = {
    "loss": "lm loss",
    "grad_norm": "grad-norm",
    "learning_rate": "learning-rate",
    "step_time_s": "iteration-time",
    "max_memory_bytes": "mem-max-allocated-bytes",
    "memory_bytes": "mem-allocated-bytes",
    "num_zeros": "num-zeros",
}
FIVE_PERCENT = Tolerance("percent", 5.0)
TOLERANCES = {
    "iteration-time": FIVE_PERCENT,
    "mem-allocated-bytes": FIVE_PERCENT,
    "mem-max-allocated-bytes": FIVE_PERCENT,
    **dict.fromkeys(
        (
            *("lm loss", "mtp_1 loss", "mtp_2 loss", "total loss"),
            *("generated_tokens", "logprobs", "num-zeros"),
        ),
        EXACT,
    ),
}
"""Its deterministic tests, and its approximate ones for metrics that have no other."""
SHORT, EARLY, LATE = 25, range(5, 21), range(30, 46)
"""Files that end by step 25 have the first window of iteration times, longer ones the second."""


def _recognizes(document: Any) -> bool:
    return bool(document) and all(
        isinstance(one, dict) and "values" in one and "start_step" in one
        for one in document.values()
    )


def _read(document: dict[str, Any]) -> Golden:
    return Golden("megatron", {tag: _metric(tag, one) for tag, one in document.items()})


def _metric(tag: str, document: dict[str, Any]) -> GoldenMetric:
    missing = KEYS - document.keys()
    if missing or not isinstance(document["values"], dict):
        raise NotThis(f"{tag[:200]} lacks {', '.join(sorted(missing)) or 'a mapping of values'}")
    interval = document["step_interval"]
    if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
        raise NotThis(f"the step_interval of {tag[:200]} is no whole number from 1 on")
    found: dict[int, float] = {}
    numberless = []
    for key, value in document["values"].items():
        step = step_number(key)
        if value == "nan":
            numberless.append(step)
        else:
            found[step] = finite_number(value, f"{tag} at step {key}")
    series = rising(found, tag)
    is_time = tag == TAGS["step_time_s"]
    return GoldenMetric(
        series,
        SCHEMA.tolerance(tag, tag),
        "median" if is_time else "step",
        window=(EARLY if series.steps[-1] <= SHORT else LATE) if is_time else None,
        interval=interval,
        decimals=DECIMALS,
        numberless=tuple(numberless),
    )


def _write(golden: Golden) -> str:
    document = {}
    for tag, one in golden.metrics.items():
        steps, values = one.series.steps, one.series.values
        document[tag] = {
            "start_step": steps[0],
            "end_step": steps[-1],
            "step_interval": one.interval if one.interval > 1 else _interval(steps),
            "values": {
                str(step): _rounded(value) for step, value in zip(steps, values, strict=True)
            },
        }
    return json.dumps(document, indent=4, allow_nan=False) + "\n"


def _rounded(value: float) -> float | int:
    """Return the value as its writer rounds it: whole numbers, such as bytes, stay floats there
    too."""
    return round(value, DECIMALS)


def _interval(steps: tuple[int, ...]) -> int:
    """Return the distance of the steps; the first one does not count."""
    later = steps[1:]
    gaps = [after - before for before, after in itertools.pairwise(later)]
    return math.gcd(*gaps) if gaps else 1


SCHEMA = Schema(
    "megatron",
    PROJECT,
    _recognizes,
    _read,
    _write,
    tags=TAGS,
    decimals=DECIMALS,
    tolerances=TOLERANCES,
)
