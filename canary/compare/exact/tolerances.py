"""Tolerances of exact signals: how far rounding alone moves them, as relative differences.

The largest differences that another attention kernel caused:
- float32 (embedded canaries, SFT and DPO, CPU), 100 steps: losses 7e-7, group gradients 5e-7,
  gradient norms 1.1e-6;
- bfloat16 (the same canaries), 12 steps: losses 1.2e-2;
- packed weights (4 or 8 bits; trl keeps adapters in bfloat16), 12 steps: losses 5.4e-6, group
  gradients 3.3e-5, updates 3e-6;
- float16: not measured.

If step 1 is equal to the bit (`begins_alike`), the tolerance is that of float32: another kernel
would show there, so what differs later is no rounding.

Another thread count moved nothing. Reward, KTO, ORPO and CPO stayed within the float32 tolerances
for 12 steps. The smallest real faults (beta2, weight decay) reach 2.9e-6 in 10 steps, 3e-5 in 60.

PPO's values of a rollout, as shares of their root mean square: up to 2.9e-7 over 6 steps in
float32 (threads, attention kernel, micro-batches, order, width, two forwards instead of one);
4.8e-3 in bfloat16 (kernel, micro-batches, order); packed weights were not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

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
    """As a share of a signal's root mean square."""

    def at_step(self, step: int, of: Literal["trajectory", "rollout"] = "trajectory") -> float:
        """Return the tolerance of a step: constant at first, then growing with step^2."""
        first: float = getattr(self, of)
        return first * max(1.0, step / TIGHT_STEPS) ** 2


TOLERANCES: dict[str, Tolerance] = {
    "float32": Tolerance(5e-7, gradient=1e-5, update=2e-6, trajectory=1.5e-6, rollout=1.5e-5),
    "bfloat16": Tolerance(3e-3, gradient=5e-2, update=5e-3, trajectory=3e-2, rollout=3e-2),
    "quantized": Tolerance(1e-6, gradient=1e-4, update=1e-5, trajectory=2e-5, rollout=2e-4),
    "float16": Tolerance(5e-4, gradient=1e-2, update=1e-3, trajectory=5e-3, rollout=5e-3),
}
"""The first value is for the first loss."""


BITS = Tolerance(0.0, gradient=0.0, update=0.0, trajectory=0.0, rollout=0.0)
"""Shows what rounding moves too."""


def arithmetic_of(record: RunRecord) -> str:
    """Return the dtype whose rounding shows: the config's, by default float32.

    For `mixed` parameters, `quantized` if some are packed integers, else the narrowest dtype."""
    name = str(record.config.get("dtype", "float32"))
    if name != "mixed":
        return name
    found = [key.removeprefix("torch.") for key in record.exact.get("model", {}).get("dtypes", {})]
    if any("int" in key for key in found):
        return "quantized"
    return next((key for key in ("bfloat16", "float16") if key in found), "float32")


def tolerance_for(record: RunRecord) -> Tolerance:
    """Return the tolerance for the record's dtype, `quantized` if a float32 base is packed."""
    name = arithmetic_of(record)
    packed = record.config.get("load_in_4bit") or record.config.get("load_in_8bit")
    if packed and name == "float32":
        name = "quantized"
    return TOLERANCES.get(name, TOLERANCES["float32"])


def repeats_bitwise(record: RunRecord) -> bool:
    """Whether equal programs give equal bits: on a CPU."""
    device = record.env.get("device") or {}
    return device.get("type", "cpu") == "cpu" and not record.env.get("gpus")


def begins_alike(before: RunRecord, after: RunRecord) -> bool:
    """Whether rounding cannot explain what differs later. That is so if both sides repeat to the
    bit, and the look's batches and all of step 1 are equal.

    Another kernel, order or precision of the same arithmetic shows in the bits of step 1."""
    was, now = before.exact, after.exact
    updated = was.get("first_update", {}).get("after_sha256")
    return (
        bool(updated and was.get("batches"))
        and was.get("first_update") == now.get("first_update")
        and was.get("first_gradient") == now.get("first_gradient")
        and was.get("first_loss") == now.get("first_loss")
        and was.get("batches") == now.get("batches")
        and repeats_bitwise(before)
        and repeats_bitwise(after)
    )


def relative_difference(before: Any, after: Any, floor: float = 0.0) -> float:
    """Return |a - b| / max(|a|, |b|, floor); infinite if they differ and one is not a number."""
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return 0.0 if before == after else float("inf")
    if before != before or after != after:
        return 0.0 if before != before and after != after else float("inf")
    scale = max(abs(before), abs(after), floor)
    difference = abs(before - after)
    if difference == 0.0 or scale == 0.0:
        return 0.0
    return difference / scale if scale != float("inf") else float("inf")
