"""Losses: finite, known at the start, each row with its own target."""

from __future__ import annotations

import functools
import math
import re

from canary.compare.exact.tolerances import arithmetic_of
from canary.compare.rules.facts import (
    arguments,
    by_step,
    micro_batches,
    overridden_loss,
    starts_at_reference,
    trainer_of,
    warned,
)
from canary.compare.rules.rule import Answer, Rule, answer, holds, not_asked, only_for, rule
from canary.config.trainers import TRAINERS, TrainerRow
from canary.record.types import RunRecord

ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-3}
"""How far it alone may move a first loss."""
EXPLODES = 100
"""Times the first losses: more than any step of a training that learns."""
SIZES = "Using a target size"
"""Begins what torch says of a loss whose shapes differ."""


@rule(
    "raw_loss_finite",
    "losses and gradients of the look are finite",
    "",
    "look at the rows of the first such step: an empty label row, a division by 0, or an overflow "
    "in half precision",
    "https://github.com/unslothai/unsloth/issues/3006",
)
def raw_loss_finite(record: RunRecord) -> Answer:
    """Look at the raw losses, before a filter of the trainer hides one."""
    losses = by_step(record, "loss")
    bad = [
        f"{what} of step {step}"
        for what, series in (("loss", losses), ("gradient norm", by_step(record, "grad_norm")))
        for step, value in series
        if value is not None and not math.isfinite(value)
    ]
    if all(value is None for _, value in losses):
        return not_asked("no loss was recorded")
    words = "losses and gradient norms are finite"
    if bad:
        times = f", {len(bad)} times" if len(bad) > 1 else ""
        words = f"a loss or gradient norm is not finite{times}"
    return answer(words, broken=bool(bad), items=bad, place=bad[0] if bad else "")


@rule(
    "loss_bounded",
    f"no loss is {EXPLODES} times as large as the first ones",
    "a supervised loss; of another one it is a note",
    "lower the learning rate or clip gradients, and look at the step before the first such loss",
    "https://arxiv.org/abs/2204.02311",
)
def loss_bounded(record: RunRecord) -> Answer:
    """Compare all losses with those before and after the first update; below 1, with 1."""
    losses = record.exact.get("trajectory", {}).get("losses", [])
    sizes = [abs(value or 0.0) for value in losses]
    if trainer_of(record).online:
        return only_for("supervised losses")
    if len(sizes) < 3:
        return not_asked("too few losses were recorded")
    bound = EXPLODES * max(1.0, *sizes[:2])
    beyond = [f"step {step}" for step, size in enumerate(sizes, start=1) if size > bound]
    if not beyond:
        return holds(f"the largest loss is {max(sizes):.4g}, the first one {sizes[0]:.4g}")
    supervised = record.config.get("training_type") in TRAINERS or any(
        "label_tokens" in micro for micro in micro_batches(record)
    )
    return answer(
        f"the loss grows from {sizes[0]:.4g} to {max(sizes):.4g}",
        broken=True,
        items=beyond,
        place=beyond[0],
        doubt="" if supervised else "do its targets grow?",
    )


def _first_loss(row: TrainerRow, record: RunRecord) -> Answer:
    """Compare the first loss with its known value."""
    if trainer_of(record) is not row:
        return only_for(row.title)
    expected = row.first_loss
    assert expected is not None
    other = expected.unless(arguments(record))
    if other:
        return not_asked(other)
    if not starts_at_reference(record):
        return not_asked("policy and reference model differ at the start")
    if record.config.get("lora_dropout"):
        return not_asked("dropout makes policy and reference model differ")
    loss = record.exact.get("first_loss", {}).get("loss")
    if loss is None:
        return not_asked("the first loss was not recorded")
    off = loss - expected.value
    broken = not abs(off) <= ROUNDING.get(arithmetic_of(record), 1e-5)
    words = f"first loss {loss:.6f}, {expected.words}"
    if broken:
        words += f": policy and reference model differ before training{expected.why}"
    return answer(words, broken=broken, size=off, value=loss, doubt=overridden_loss(record))


FIRST_LOSSES = tuple(
    Rule(
        f"{name}_first_loss",
        f"the first loss is {row.first_loss.words.removesuffix(' expected').split(' is ')[0]}",
        "policy and reference are equal at the start, without dropout",
        "compare policy and reference before the first update: other weights, dropout, or another "
        "dtype",
        "https://arxiv.org/abs/2305.18290",
        functools.partial(_first_loss, row),
    )
    for name, row in TRAINERS.items()
    if row.first_loss is not None
)


@rule(
    "own_target",
    "a loss compares each row with its own target",
    "a loss that subtracts tensors of two shapes in the look, or torch's warning of it",
    "give both the same shape, by squeeze(-1) or unsqueeze(-1)",
    "https://github.com/RLinf/RLinf/issues/1568",
)
def own_target(record: RunRecord) -> Answer:
    """A loss of shapes (N, 1) and (N,) is a mean over N by N pairs: each row learns the mean of all
    targets."""
    outer = record.exact.get("work", {}).get("outer_losses")
    shapes = [tuple(map(tuple, one)) for one in outer or [] if len(one) == 2] or _warned_of(record)
    if not shapes:
        if outer is None:
            return not_asked("the operators of no step were seen")
        return holds("no loss pairs rows with the targets of others")
    rows, targets = shapes[0]
    words = f"a loss compares rows of shape {rows} with targets of shape {targets}"
    if not _grows(rows, targets):
        return answer(words, broken=True, doubt="is one target for several numbers on purpose?")
    return answer(f"{words}: each row is trained towards the targets of all", broken=True, size=1)


@rule(
    "loss_takes_logits",
    "a loss of logits or log-probabilities gets no probabilities",
    "a loss whose operators were seen in the look",
    "give cross_entropy the logits themselves, and nll_loss or kl_div those of log_softmax",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
)
def loss_takes_logits(record: RunRecord) -> Answer:
    """A second softmax flattens the gradient, and the other losses have no lower bound then."""
    found = record.exact.get("work", {}).get("losses_of_probabilities")
    if found is None:
        return not_asked("the operators of no step were seen")
    words = f"a loss is {' and '.join(found)}" if found else "no loss gets what a softmax made"
    return answer(words, broken=bool(found), size=len(found), items=tuple(found))


def _warned_of(record: RunRecord) -> list[tuple[tuple[int, ...], ...]]:
    sizes = re.findall(r"Size\(\[((?:[0-9]{1,18}(?:, |(?=\])))*)\]\)", warned(record, SIZES))
    if len(sizes) != 2:
        return []
    target, rows = (tuple(int(n) for n in one.split(",") if n.strip()) for one in sizes)
    return [(rows, target)]


def _grows(rows: tuple[int, ...], targets: tuple[int, ...]) -> bool:
    """Whether both shapes must be repeated to fit to each other."""
    width = max(len(rows), len(targets))
    one, other = ((1,) * (width - len(shape)) + tuple(shape) for shape in (rows, targets))
    pairs = [*zip(one, other, strict=True)]
    return any(a < b for a, b in pairs) and any(a > b for a, b in pairs)
