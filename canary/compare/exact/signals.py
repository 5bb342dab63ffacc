"""The table of the exact lane's signals, in the order in which training produces them.

A new signal needs an entry here, a key in `canary.record.exact` and a line in the look. Its number
is that of its stage (`canary.compare.exact.stages`).
"""

from __future__ import annotations

from canary.compare.exact.counts import (
    Count,
    growth_of_live_tensors,
    held_mb,
    host_reads,
    live_memory,
    live_tensors,
    of_step,
    tokenizer_calls,
    written_mb,
)
from canary.compare.exact.inputs_stages import (
    batch_differences,
    data_differences,
    model_differences,
)
from canary.compare.exact.learning_stages import SIGNAL as APPLIED_GRADIENT
from canary.compare.exact.learning_stages import (
    applied_gradient,
    before_clipping,
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
from canary.compare.exact.rollout_stage import SIGNALS as MADE_OF_ROLLOUT
from canary.compare.exact.rollout_stage import rollout_differences
from canary.compare.exact.signal_kinds import EVERY_KEY, Signal, number

SIGNALS: tuple[Signal, ...] = (
    Signal(
        "data",
        EVERY_KEY,
        lambda exact: exact.get("data"),
        lambda _, sides: data_differences(sides.baseline, sides.current),
        "the dataset or the tokenizer",
    ),
    Signal(
        "batches",
        EVERY_KEY,
        lambda exact: exact.get("batches"),
        lambda _, sides: batch_differences(sides.baseline, sides.current),
        "the content of the batches",
    ),
    Signal(
        "model",
        EVERY_KEY,
        lambda exact: exact.get("model"),
        lambda _, sides: model_differences(sides.baseline, sides.current),
        "the initial parameters, their dtypes, or the trainable part",
    ),
    Signal(
        "rollout",
        EVERY_KEY,
        lambda exact: exact.get("rollout", {}).get("signals"),
        lambda _, sides: rollout_differences(sides.baseline, sides.current, sides.tolerance),
        f"a value computed from the completions: {', '.join(MADE_OF_ROLLOUT)}",
    ),
    Signal(
        "first_loss",
        "loss",
        lambda exact: exact.get("first_loss", {}).get("loss"),
        number(lambda tolerance: tolerance.first_loss, loss_floor),
        "the loss of step 1",
    ),
    Signal(
        "first_loss",
        "micro_losses",
        lambda exact: exact.get("first_loss", {}).get("micro_losses"),
        micro_losses,
        "the loss of a micro-batch (not of its step)",
    ),
    Signal(
        "first_gradient",
        "total",
        lambda exact: exact.get("first_gradient", {}).get("total"),
        before_clipping(first_gradient),
        "the gradient of the first loss, before clipping",
    ),
    Signal(
        "first_gradient",
        "tensors_without_gradient",
        lambda exact: exact.get("first_gradient", {}).get("tensors_without_gradient"),
        before_clipping(tensors_without_gradient),
        "the part of the model that the gradient reaches",
    ),
    Signal(
        "first_update",
        APPLIED_GRADIENT,
        lambda exact: exact.get("clipping"),
        applied_gradient,
        "the clipping of equal gradients",
    ),
    Signal(
        "first_update",
        "learning_rate",
        lambda exact: exact.get("trajectory", {}).get("learning_rates"),
        learning_rate,
        "the learning rate or its schedule",
    ),
    Signal(
        "first_update",
        "delta_norm",
        lambda exact: exact.get("first_update", {}).get("delta_norm"),
        number(lambda tolerance: tolerance.update),
        "the size of the first update",
    ),
    Signal(
        "first_update",
        "tensors_changed",
        lambda exact: exact.get("first_update", {}).get("tensors_changed"),
        tensors_changed,
        "the tensors that the optimizer updates",
    ),
    Signal(
        "trajectory",
        "loss",
        lambda exact: exact.get("trajectory", {}).get("losses"),
        losses,
        "the loss after the first update, or after several",
    ),
    Signal(
        "trajectory",
        "grad_norm",
        lambda exact: exact.get("trajectory", {}).get("grad_norms"),
        gradient_norms,
        "the gradient after the first update, or after several",
    ),
    Signal(
        "trajectory",
        EVERY_KEY,
        lambda exact: exact.get("trajectory", {}).get("rl"),
        metrics,
        "a metric of the trainer",
    ),
)
"""Signals of learning: equal, or within the tolerance of rounding."""

COUNTS: tuple[Count, ...] = (
    of_step(
        "tokens_fed",
        lambda work: work.get("tokens_fed"),
        lambda limits: limits.max_tokens_fed_increase_pct,
        percent=True,
    ),
    of_step(
        "host_reads",
        lambda work: work.get("host_reads"),
        lambda limits: limits.max_host_reads_increase,
        taken=host_reads,
    ),
    of_step(
        "collectives",
        lambda work: work.get("collectives"),
        lambda limits: limits.max_collectives_increase,
    ),
    of_step(
        "recompiles",
        lambda work: work.get("recompiles"),
        lambda limits: limits.max_recompiles_increase,
    ),
    of_step(
        "operators",
        lambda work: work.get("operator_total"),
        lambda limits: limits.max_operators_increase_pct,
        percent=True,
    ),
    of_step(
        "flops",
        lambda work: work.get("flops"),
        lambda limits: limits.max_flops_increase_pct,
        percent=True,
    ),
    Count(
        "memory",
        "live_tensors",
        growth_of_live_tensors,
        lambda limits: limits.max_live_tensors_per_step,
        unit="tensors/step",
        quiet_below=0.05,
        taken=live_tensors,
    ),
    Count(
        "memory",
        "live_memory",
        held_mb,
        lambda limits: limits.max_mem_increase_pct,
        percent=True,
        unit="MB",
        taken=live_memory,
    ),
    Count(
        "calls",
        "dataset_maps",
        lambda record: record.exact.get("calls", {}).get("dataset_maps_unhashable"),
        lambda limits: limits.max_dataset_maps_increase,
    ),
    Count(
        "calls",
        "tokenizer_calls",
        lambda record: record.exact.get("calls", {}).get("tokenizer_calls"),
        lambda limits: limits.max_tokenizer_calls_increase_pct,
        percent=True,
        taken=tokenizer_calls,
    ),
    Count(
        "calls",
        "files_written",
        lambda record: record.exact.get("calls", {}).get("files_opened"),
        lambda limits: limits.max_files_increase,
    ),
    Count(
        "calls",
        "bytes_written",
        written_mb,
        lambda limits: limits.max_bytes_written_increase_mb,
        unit="MB",
        quiet_below=0.05,  # includes the log of the training, whose length varies
    ),
)
"""Counts of work: a rise above the limit fails, a smaller one warns."""
