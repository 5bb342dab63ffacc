"""torchtitan's losses: a line `step loss` per step, as scripts/loss_compare.py exports them.

Read in pytorch/torchtitan at b5bcd76c66d0acb1a08b176d9639425bc55e0b2a (0.2.2). The loss is the repr
of a float32 widened to a double, and has no tolerance; the steps must be the same.
"""

from __future__ import annotations

import re
from typing import Any

from canary.golden.formats.schema import NotThis, Schema, finite_number, rising, step_number
from canary.golden.model import Golden, GoldenMetric
from canary.golden.tolerance import EXACT

LINE = re.compile(r"\s*(?:[-+]?\d|$)")
"""What a file of this form begins with."""
PROJECT = "pytorch/torchtitan b5bcd76c66d0acb1a08b176d9639425bc55e0b2a"
TAG = "loss_metrics/global_avg_loss"
"""The file names no metric; this is the tag that its writer reads."""


def _recognizes(document: Any) -> bool:
    return False  # It is no JSON.


def _read(text: str) -> Golden:
    found: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        words = line.split()
        if len(words) != 2:
            raise NotThis(f"line {number} is not `step loss`")
        step = step_number(words[0])
        if step in found:
            raise NotThis(f"line {number} repeats step {step}")
        try:
            value = float(words[1])
        except ValueError as error:
            raise NotThis(f"the loss in line {number} is no number") from error
        found[step] = finite_number(value, f"the loss in line {number}")
    return Golden("torchtitan", {TAG: GoldenMetric(rising(found, "it"), EXACT, single=True)})


def _write(golden: Golden) -> str:
    (one,) = golden.metrics.values()
    return "".join(f"{step} {value!r}\n" for step, value in one.series.at().items())


SCHEMA = Schema(
    "torchtitan",
    PROJECT,
    _recognizes,
    _read,
    _write,
    tags={"loss": TAG},
    metrics=("loss",),
    required=("loss",),
    only=True,
    single=True,
)
