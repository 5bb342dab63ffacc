"""The table of the exact lane's signals of learning, in the order in which training makes them.

A new signal needs a row here, a key in `canary.record.exact` and a line in the look. Its number is
that of its stage (`canary.compare.exact.stages`). Counts of work have a table of their own, in
`canary.compare.exact.counts`.
"""

from __future__ import annotations

from canary.compare.exact.inputs_stages import (
    batch_differences,
    data_differences,
    model_differences,
)
from canary.compare.exact.learning_stages import (
    APPLIED_GRADIENT,
    applied_gradient,
    first_gradient,
    gradient_norms,
    learning_rate,
    loss_floor,
    losses,
    metrics,
    micro_losses,
    tensors_changed,
    tensors_without_gradient,
)
from canary.compare.exact.rollout_stage import rollout_differences
from canary.compare.exact.signal_kinds import EVERY_KEY, Signal, number

SIGNALS: tuple[Signal, ...] = (
    Signal("data", EVERY_KEY, data_differences),
    Signal("batches", EVERY_KEY, batch_differences),
    Signal("model", EVERY_KEY, model_differences),
    Signal("rollout", EVERY_KEY, rollout_differences),
    Signal(
        "first_loss",
        "loss",
        number(
            lambda exact: exact.get("first_loss", {}).get("loss"),
            lambda tolerance: tolerance.first_loss,
            loss_floor,
        ),
    ),
    Signal("first_loss", "micro_losses", micro_losses),
    Signal("first_gradient", "total", first_gradient),
    Signal("first_gradient", "tensors_without_gradient", tensors_without_gradient),
    Signal("first_update", APPLIED_GRADIENT, applied_gradient),
    Signal("first_update", "learning_rate", learning_rate),
    Signal(
        "first_update",
        "delta_norm",
        number(
            lambda exact: exact.get("first_update", {}).get("delta_norm"),
            lambda tolerance: tolerance.update,
        ),
    ),
    Signal("first_update", "tensors_changed", tensors_changed),
    Signal("trajectory", "loss", losses),
    Signal("trajectory", "grad_norm", gradient_norms),
    Signal("trajectory", EVERY_KEY, metrics),
)
"""Equal, or within the tolerance of rounding."""
