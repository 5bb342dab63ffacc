"""Optimizer: learning rate, clipping, update, and state that lasts from step to step."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of, evidence_of_check
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.diagnosis.updates import (
    LEFTOVER,
    first_other_update,
    gradient_cut,
    norm_change,
    unclipped,
)
from canary.compare.exact.learning_stages import CUT
from canary.compare.exact.tolerances import relative_difference
from canary.compare.report import Difference
from canary.record.exact import Series


def findings(facts: Facts) -> Iterator[Finding]:
    """Changes of the learning rate, of clipping, of the first update, or of later steps."""
    yield from _rates(facts)
    if facts.clipping is not None:
        yield _clipping(facts, facts.clipping)
        return
    yield from _first_update(facts)
    yield from _later(facts)


def _clipping(facts: Facts, found: Difference) -> Finding:
    """The gradient is equal after backward, but the optimizer gets a different one."""
    step = found.step or 1
    whole = facts.now.exact["clipping"]["before"][step - 1]
    was, now = (
        isinstance(norm, int | float) and relative_difference(whole, norm) > CUT
        for norm in (found.baseline, found.current)
    )
    how = {
        (True, False): "is no longer clipped before the update",
        (False, True): "is now clipped before the update",
    }.get((was, now), "is clipped differently before the update")
    action = (
        "compare the code between backward and optimizer.step: clip_grad_norm_, its limit and its "
        "arguments"
    )
    if found.current == 0 and found.baseline:
        how = "is zero at the optimizer, so nothing is learned"
        action = (
            "look between backward and optimizer.step for zero_grad, which must come before "
            "backward or after the step"
        )
    return Finding(
        C.OPTIMIZER,
        0.95,
        f"the gradient of step {step} is equal after backward, but {how}",
        (evidence_of(found),),
        (action,),
        equal=("batches", "first_gradient"),
    )


def _rates(facts: Facts) -> Iterator[Finding]:
    rates = facts.difference("first_update", "learning_rate")
    zero = facts.failed("learning_rate_positive")
    was, now = facts.exact(lambda exact: exact.get("trajectory", {}).get("learning_rates", []))
    if rates is not None:
        before = facts.entry in ("first_update", "first_gradient", "first_loss")
        yield Finding(
            C.OPTIMIZER,
            0.97 if before else 0.45,
            _rate_words(was, now),
            (evidence_of(rates), *([evidence_of_check(zero)] if zero else [])),
            (
                "compare learning_rate, lr_scheduler_type, warm-up and the number of steps",
                "the scheduler must step once per optimizer step",
            ),
        )
    elif zero is not None and not (was and now):
        # If both sides recorded rates and they are equal, both are 0: no change.
        yield Finding(
            C.OPTIMIZER,
            0.9,
            "the learning rate is 0 at a step that should train",
            (evidence_of_check(zero),),
            ("look at the schedule's length and its warm-up",),
        )


def _rate_words(was: Series, now: Series) -> str:
    pairs = [(a, b) for a, b in zip(was, now, strict=False) if a and b]
    factors = [b / a for a, b in pairs]
    if factors and min(factors) > 0 and max(factors) / min(factors) < 1.001:
        return f"the learning rate is {factors[0]:.3g} times as large at every step"
    place = next(i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b)
    return f"the learning rate differs from step {place + 1} on"


def _first_update(facts: Facts) -> Iterator[Finding]:
    """The gradient is equal, but its update differs."""
    if facts.entry != "first_update" or facts.difference("first_update", "learning_rate"):
        return
    size = facts.difference("first_update", "delta_norm")
    tensors = facts.difference("first_update", "tensors_changed")
    found = [d for d in (size, tensors) if d is not None]
    if not found:
        return
    # Adam's first step has one size for any gradient. If it differs, other parameters are updated.
    yield Finding(
        C.OPTIMIZER,
        0.93 if size is not None else 0.7,
        "the first update differs for the same gradient",
        tuple(evidence_of(d) for d in found),
        (
            "compare optimizer class, betas, epsilon, weight decay and parameter groups",
            "every trainable parameter must be in exactly one group",
        ),
        equal=("first_gradient",),
    )


def _other_gradient(facts: Facts, step: int, actions: tuple[str, ...]) -> Iterator[Finding]:
    """The loss is equal, but its gradient differs, as with leftovers of an earlier step."""
    if gradient_cut(facts) is not None:
        return
    large = norm_change(facts, step) > LEFTOVER
    more = ": it may include gradients of an earlier step" if large else ""
    yield Finding(
        C.OPTIMIZER,
        0.72 if large else 0.4,
        f"at step {step} the loss is equal, but its gradient differs{more}",
        facts.first_evidence(),
        ("every step must start with zeroed gradients", *actions),
        equal=("batches", "trajectory"),
    )


def _later(facts: Facts) -> Iterator[Finding]:
    """The first update is equal, but later steps differ: the optimizer's state."""
    if facts.entry != "trajectory" or facts.failed("frozen_unchanged"):
        return
    if facts.rollout_signal is not None:
        return
    loss, norm = facts.first_step("losses"), facts.first_step("grad_norms")
    same, update = facts.same_parameters_after_first_update, first_other_update(facts)
    actions = (
        "compare betas, epsilon, weight decay, clipping and zero_grad of both sides",
        "look for state that is kept from one step to the next",
    )
    if same is False:
        yield Finding(
            C.OPTIMIZER,
            0.85,
            "the first update differs, but too little for its size to show it",
            (
                Evidence("signal", "parameters after the first update are not bit-equal"),
                *facts.first_evidence(),
            ),
            actions,
        )
    elif norm is not None and (loss is None or norm < loss):
        yield from _other_gradient(facts, norm, actions)
    elif update is not None and update >= 3 and unclipped(facts) is None:
        yield Finding(
            C.OPTIMIZER,
            0.8,
            f"the first update is equal, but the loss differs from update {update} of step 1 on. "
            "The optimizer's state may differ",
            facts.first_evidence(),
            actions,
            equal=("batches", "first_update"),
        )
    elif loss is not None and loss >= 3:
        yield Finding(
            C.OPTIMIZER,
            0.85,
            f"the first update is equal, but the loss differs from step {loss} on. The optimizer's "
            "state may differ",
            facts.first_evidence(),
            actions,
            equal=("batches", "first_update"),
        )
