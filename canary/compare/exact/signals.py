"""The table of the exact lane's signals of learning, in the order in which training makes them.

A new signal needs a line here, a key in `canary.record.exact` and a line in the look. Its number is
that of its stage (`canary.compare.exact.stages`). Counts of work have a table of their own, in
`canary.compare.exact.counts`.
"""

from __future__ import annotations

from collections.abc import Callable

from canary.compare.exact.inputs_stages import (
    batch_differences,
    data_differences,
    model_differences,
)
from canary.compare.exact.learning_stages import (
    applied_gradient,
    first_gradient,
    first_loss,
    gradient_norms,
    learning_rate,
    losses,
    metrics,
    micro_losses,
    tensors_changed,
    tensors_without_gradient,
    update_norm,
)
from canary.compare.exact.rollout_stage import rollout_differences
from canary.compare.exact.sides import Sides
from canary.compare.report import Difference

SIGNALS: tuple[Callable[[Sides], list[Difference]], ...] = (
    data_differences,
    batch_differences,
    model_differences,
    rollout_differences,
    first_loss,
    micro_losses,
    first_gradient,
    tensors_without_gradient,
    applied_gradient,
    learning_rate,
    update_norm,
    tensors_changed,
    losses,
    gradient_norms,
    metrics,
)
"""Equal, or within the tolerance of rounding."""
