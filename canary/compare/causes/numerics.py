"""Numerics: precision, and values that are not finite."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of, evidence_of_check
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C

CASTS = ("_to_copy", "aten::to", "aten::_to_copy")
ROUNDING = 2e-2
"""Largest relative change of a loss that lower precision explains."""


def findings(facts: Facts) -> Iterator[Finding]:
    """Values that are not finite, other dtypes, casts with small differences, and rounding."""
    yield from _not_finite(facts)
    yield from _dtypes(facts)
    yield from _casts(facts)
    yield from _rounded(facts)


def _not_finite(facts: Facts) -> Iterator[Finding]:
    broken = facts.failed("nan_steps", "inf_steps", "raw_loss_finite")
    if broken is None:
        return
    early = facts.entry in ("data", "batches", "model", "first_update")
    at = [*facts.now.stability.nan_at, *facts.now.stability.inf_at]
    where = f" from step {min(at)} on" if at else ""
    yield Finding(
        C.NUMERICS,
        0.6 if early else 0.95,
        f"the loss or its gradient is not finite{where}",
        (evidence_of_check(broken), *facts.first_evidence()),
        (
            "look at the batch of that step, and at divisions and logarithms in the loss",
            "run that step under torch.autograd.set_detect_anomaly(True)",
            "set logging_nan_inf_filter=False, or the log hides it",
        ),
    )


def _dtypes(facts: Facts) -> Iterator[Finding]:
    dtypes = facts.difference("model", "dtypes")
    if dtypes is None:
        return
    trainable = any(d.signal.startswith("trainable") for d in facts.differences("model"))
    stalled = facts.failed("trainable_changed")
    yield Finding(
        C.NUMERICS,
        0.5 if trainable else 0.95,
        "parameters have a different precision"
        + (", and small updates are rounded away" if stalled else ""),
        (evidence_of(dtypes), *([evidence_of_check(stalled)] if stalled else [])),
        (
            "keep the weights that the optimizer updates in float32, and compute under autocast",
            "compare dtype, bf16 and fp16 of both sides",
        ),
        sign="dtypes",
    )


def _casts(facts: Facts) -> Iterator[Finding]:
    """The loss moves at most by rounding, and the number of casts changed."""
    if facts.entry not in ("rollout", "first_loss", "first_gradient") or facts.differs("model"):
        return
    casts = facts.more_calls(*CASTS)
    difference = next(iter((*facts.differences("rollout"), *facts.differences("first_loss"))), None)
    size = difference.relative if difference is not None and difference.relative else 0.0
    if not casts or size > ROUNDING:
        return
    # Every step has casts: a few more of them come with many other changes.
    many = abs(casts) >= 16
    yield Finding(
        C.NUMERICS,
        0.9 if many else 0.45,
        f"the step computes in a different precision: {casts:+.0f} casts, and the loss moved by "
        f"{size:.1e}",
        (
            *facts.first_evidence(),
            Evidence("operators", f"casts between dtypes {casts:+.0f} per step", unit="calls"),
        ),
        ("compare bf16, fp16, autocast and every .to(dtype) of both sides",),
    )


def _rounded(facts: Facts) -> Iterator[Finding]:
    """Values are now rounded to a narrow dtype: the reference's weights, losses or a metric."""
    if facts.reference_rounded:
        yield Finding(
            C.NUMERICS,
            0.93,
            f"the reference's weights are rounded to {facts.reference_rounded}, not the policy's",
            facts.first_evidence(),
            ("load or save the reference in the precision that the policy starts from",),
        )
    dtype = facts.half_precision
    if dtype and facts.entry in ("model", "rollout", "first_loss", "first_gradient", "trajectory"):
        yield Finding(
            C.NUMERICS,
            0.95,
            f"losses or scores are rounded to {dtype}",
            (
                *facts.first_evidence(),
                Evidence(
                    "signal", f"{dtype} holds every value without rounding; not so the baseline's"
                ),
            ),
            ("compute losses and log-probabilities in float32, even if the model does not",),
        )
