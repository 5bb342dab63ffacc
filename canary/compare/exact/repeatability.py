"""Says what makes a training start differently each time: repeated runs of one program show it."""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.report import Check, Difference

SEEDS = {
    "data": "the rows differ: seed how the rows are chosen",
    "batches": "the batches differ: seed the split, the shuffle and the sampler",
    "model": "the initial parameters differ: set the seed before the model is created",
}
"""The seed that is missing, by the first stage that repeated runs do not share."""


def follows_a_seed(found: Difference) -> bool:
    """Whether a missing seed alone can cause this difference."""
    if found.stage == "data":
        return not found.signal.startswith("tokenizer")
    if found.stage == "model":
        return found.signal in ("parameters_sha256", "reference_sha256")
    if found.stage == "first_update":
        return found.signal != "learning_rate"
    return found.signal != "tensors_without_gradient"


def not_reproducible(unsteady: Sequence[Difference]) -> Check | None:
    """Return the check of a baseline without a seed, None if its runs begin alike.

    `unsteady`: differences of the sides that repeated runs of the baseline show too.
    """
    stages = {found.stage for found in unsteady if follows_a_seed(found)}
    seed = next((words for stage, words in SEEDS.items() if stage in stages), None)
    if seed is None:
        return None
    return Check(
        "repeatability",
        "correctness",
        "exact",
        "inconclusive",
        f"the training is not reproducible: in repeated runs of the baseline {seed}",
        delta=float(len(unsteady)),
    )
