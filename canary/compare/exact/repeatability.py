"""Finds out from one record whether training is reproducible.

Measured launch and probe both start at step 1. If every seed is set, both have the same tokens in
each step and the same loss in step 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.exact.learning_stages import loss_floor
from canary.compare.exact.tolerances import relative_difference, tolerance_for
from canary.compare.report import Check, Difference
from canary.record.types import RunRecord

OTHER_KERNELS = 1e-3
"""First losses of equal batches differ by less: the probe runs deterministic kernels, in true
float32."""
SAME_KERNELS = 1e-5
"""On a CPU both run the same kernels; the largest difference seen was 1e-7."""
TIMES_TOLERANCE = 4
"""In a narrow dtype, this many times the tolerance of two equal probes is allowed."""

SEEDS = {
    "data": "the rows differ: seed how the rows are chosen",
    "batches": "the batches differ: seed the split, the shuffle and the sampler",
    "model": "the initial parameters differ: set the seed before the model is created",
}
EQUAL_SO_FAR = "batches and initial parameters are equal: seed dropout and sampling"


@dataclass(frozen=True)
class MissingSeed:
    """A number that differs between measured launch and probe of the same training."""

    figure: str
    launched: float
    probed: float

    def check(self, differences: Sequence[Difference]) -> Check:
        """Return the check for a baseline: nothing that depends on a seed is judged."""
        stages = [found.stage for found in differences]
        seed = next((words for stage, words in SEEDS.items() if stage in stages), EQUAL_SO_FAR)
        return Check(
            "repeatability",
            "correctness",
            "exact",
            "inconclusive",
            f"the training is not reproducible: {self.figure} is {self.launched:,.6g} in "
            f"the baseline's measured launch and {self.probed:,.6g} in its probe; {seed}",
            delta=float(len(differences)),
        )

    def warning(self) -> Check:
        """Return the check for a current side whose baseline is reproducible."""
        return Check(
            "repeatability",
            "correctness",
            "exact",
            "warn",
            f"{self.figure} is {self.launched:,.6g} in the measured launch and {self.probed:,.6g} "
            "in the probe, but the baseline is reproducible: set the missing seed",
            delta=self.probed - self.launched,
        )


def follows_a_seed(found: Difference) -> bool:
    """Whether a missing seed alone can cause this difference."""
    if found.stage == "data":
        return not found.signal.startswith("tokenizer")
    if found.stage == "model":
        return found.signal in ("parameters_sha256", "reference_sha256")
    if found.stage == "first_update":
        return found.signal != "learning_rate"
    return found.signal != "tensors_without_gradient"


def missing_seed(record: RunRecord, others: Sequence[RunRecord] = ()) -> MissingSeed | None:
    """Return how a record's measured launch and probe differ at their start; None if reproducible.

    It counts as reproducible if another record starts like one of the two."""
    if is_rollout(record):
        return None
    rest = [other for other in others if other is not record]
    return _token_mismatch(record, rest) or _loss_mismatch(record, rest)


def _token_mismatch(record: RunRecord, others: Sequence[RunRecord]) -> MissingSeed | None:
    launched, probed = record.first_step_tokens, _probed_tokens(record)
    pairs = [*zip(launched, probed, strict=False)]
    first = next((place for place, (one, two) in enumerate(pairs) if one != two), None)
    if first is None:
        return None
    if any(o.first_step_tokens == launched or _probed_tokens(o) == probed for o in others):
        return None
    return MissingSeed(f"the number of tokens in step {first + 1}", *pairs[first])


def _probed_tokens(record: RunRecord) -> list[int]:
    """Return the probe's tokens per step; empty with several ranks, as their launch counts all."""
    if record.env.get("world_size", 1) > 1:
        return []
    batches = record.exact.get("batches", [])
    counts = [[micro.get("input_tokens", 0) for micro in step] for step in batches]
    return [sum(step) for step in counts] if all(all(step) for step in counts) else []


def _loss_mismatch(record: RunRecord, others: Sequence[RunRecord]) -> MissingSeed | None:
    launched, probed = _launched(record), _probed(record)
    if launched is None or probed is None or _equal(record, launched, probed):
        return None
    for other in others:
        pairs = ((_launched(other), launched), (_probed(other), probed))
        if any(theirs is not None and _equal(record, theirs, ours) for theirs, ours in pairs):
            return None
    return MissingSeed("the loss of step 1", launched, probed)


def _equal(record: RunRecord, one: float, other: float) -> bool:
    on_cpu = record.env.get("device", {}).get("type") == "cpu"
    kernels = SAME_KERNELS if on_cpu else OTHER_KERNELS
    allowed = max(kernels, TIMES_TOLERANCE * tolerance_for(record).first_loss)
    return relative_difference(one, other, loss_floor(record)) <= allowed


def _launched(record: RunRecord) -> float | None:
    losses = record.stability.loss_values
    return losses[0] if losses and math.isfinite(losses[0]) else None


def _probed(record: RunRecord) -> float | None:
    loss = next(iter(record.exact.get("trajectory", {}).get("losses", [])), None)
    return loss if loss is not None and math.isfinite(loss) else None
