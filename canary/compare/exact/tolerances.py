"""How much a healthy change may move an exact signal: arithmetic alone, nothing else.

Relative differences. The float32 and bfloat16 rows were measured on the embedded canaries (SFT and
DPO, CPU): another attention kernel moved losses by at most 7e-7 over 100 steps, group gradients by
5e-7 and gradient norms by 1.1e-6 in float32, and bfloat16 losses by 1.2e-2 over 12 steps; another
thread count moved nothing. The smallest real faults (beta2, weight decay) reach 2.9e-6 in ten steps
and 3e-5 in sixty. Reward, KTO, ORPO and CPO stayed within the float32 row over 12 steps. Over
packed weights (4 or 8 bits) trl keeps the adapters in bfloat16: another kernel moved losses by
5.4e-6, group gradients by 3.3e-5 and updates by 3e-6 over 12 steps. The float16 row was not
measured.

What PPO makes of a rollout moved by at most 2.9e-7 of its root mean square over 6 steps in float32
(threads, attention kernel, other micro-batches, orders and widths, two forwards instead of one),
and by 4.8e-3 in bfloat16 (kernel, micro-batches, orders); over packed weights it was not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from canary.compare.report import Difference
from canary.record.types import RunRecord

TIGHT_STEPS = 10


@dataclass(frozen=True)
class Tolerance:
    """Relative tolerances of one dtype, or of packed weights."""

    first_loss: float
    gradient: float
    update: float
    trajectory: float
    rollout: float
    """Of a signal's root mean square."""

    def rollout_at_step(self, step: int) -> float:
        """For what is made of a step's rollout, counted from 1: growing as the loss's does."""
        return self.rollout * self.at_step(step) / self.trajectory

    def at_step(self, step: int) -> float:
        """For the loss of a step, counted from 1: tight at first, then growing with its square."""
        return self.trajectory * max(1.0, step / TIGHT_STEPS) ** 2


TOLERANCES: dict[str, Tolerance] = {
    "float32": Tolerance(5e-7, gradient=1e-5, update=2e-6, trajectory=1.5e-6, rollout=1.5e-5),
    "bfloat16": Tolerance(3e-3, gradient=5e-2, update=5e-3, trajectory=3e-2, rollout=3e-2),
    "quantized": Tolerance(1e-6, gradient=1e-4, update=1e-5, trajectory=2e-5, rollout=2e-4),
    "float16": Tolerance(5e-4, gradient=1e-2, update=1e-3, trajectory=5e-3, rollout=5e-3),
}
"""The first value is that of the first loss."""


def arithmetic_of(record: RunRecord) -> str:
    """The dtype whose rounding shows: the record's, float32 where it says none. Of `mixed`
    parameters the narrowest, and `quantized` where some are packed integers."""
    name = str(record.config.get("dtype", "float32"))
    if name != "mixed":
        return name
    found = [key.removeprefix("torch.") for key in record.exact.get("model", {}).get("dtypes", {})]
    if any("int" in key for key in found):
        return "quantized"
    return next((key for key in ("bfloat16", "float16") if key in found), "float32")


def tolerance_for(record: RunRecord) -> Tolerance:
    """By the dtype that the record computes in, and by the base's where it is packed."""
    name = arithmetic_of(record)
    packed = record.config.get("load_in_4bit") or record.config.get("load_in_8bit")
    if packed and name == "float32":
        name = "quantized"
    return TOLERANCES.get(name, TOLERANCES["float32"])


@dataclass(frozen=True)
class Widened:
    """Signals seen to differ between equal runs, with the largest relative difference (infinite
    for what is not a number)."""

    seen: dict[str, float]

    def allows(self, stage: str, signal: str, relative: float | None) -> bool:
        """Whether such a difference has been seen between equal runs, or one a third as large."""
        known = self.seen.get(f"{stage}.{signal}")
        if known is None:
            return False
        return relative is None or relative <= 3 * known

    def with_all(self, found: Sequence[Difference]) -> Widened:
        """The same, and these whatever their size."""
        return Widened(self.seen | {f"{one.stage}.{one.signal}": float("inf") for one in found})


def relative_difference(before: Any, after: Any, floor: float = 0.0) -> float:
    """|a - b| over the larger magnitude, at least `floor`; infinite where one is not a number."""
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return 0.0 if before == after else float("inf")
    if before != before or after != after:
        return 0.0 if before != before and after != after else float("inf")
    scale = max(abs(before), abs(after), floor)
    difference = abs(before - after)
    if difference == 0.0 or scale == 0.0:
        return 0.0
    return difference / scale if scale != float("inf") else float("inf")
