"""Adapter: the trainable and frozen parameters, and their initial values."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of, evidence_of_check
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.diagnosis.updates import gradient_cut

TRAINABLE = ("trainable_parameters", "trainable_tensors", "trainable_names_sha256")
ACTIONS = (
    "compare target_modules, modules_to_save and every requires_grad_ of both commits",
    "print the trainable parameters of both sides by name",
)


def findings(facts: Facts) -> Iterator[Finding]:
    """Trainable parameters, frozen parameters, initial values, and missing gradients."""
    yield from _trainable(facts)
    yield from _moved(facts)
    yield from _start(facts)
    yield from _gradients(facts)


def _trainable(facts: Facts) -> Iterator[Finding]:
    changed = [d for d in facts.differences("model") if d.signal in TRAINABLE]
    if changed:
        was, now = facts.exact(lambda exact: exact.get("model", {}).get("trainable_parameters", 0))
        yield Finding(
            C.ADAPTER,
            0.96,
            f"the trainable parameters changed: {was:,} -> {now:,}",
            tuple(evidence_of(d) for d in changed[:3]),
            ACTIONS,
            sign="trained_parameters" if now > was else "",
        )


def _moved(facts: Facts) -> Iterator[Finding]:
    """Frozen or reference parameters that change, and trainable ones that do not."""
    broken = facts.failed("frozen_unchanged")
    if broken is not None:
        yield Finding(
            C.ADAPTER,
            0.95,
            "the reference model or a frozen parameter changes during training",
            (evidence_of_check(broken), *facts.first_evidence()),
            (
                "give the trainer a separate reference model: a copy, or the base without adapter",
                "look for a model that is used in two places, and for tied weights",
            ),
        )
    signal = facts.rollout_signal
    if signal is not None and signal.signal == "reference_logprobs":
        yield Finding(
            C.ADAPTER,
            0.85,
            "the reference's log-probabilities of the same completions differ, the policy's do not",
            (evidence_of(signal),),
            ("compare the reference's weights and adapter, and look for code that changes them",),
        )
    reference = facts.difference("model", "reference_sha256")
    if reference is not None:
        yield Finding(
            C.ADAPTER,
            0.35 if facts.reference_rounded else 0.85,
            "the reference model has different weights",
            (evidence_of(reference),),
            ("compare where policy and reference are loaded from",),
        )
    if facts.entry in ("first_update", "trajectory") and facts.failed("trainable_changed"):
        stalled = facts.failed("trainable_changed")
        assert stalled is not None
        yield Finding(
            C.ADAPTER,
            0.6,
            "trainable parameters do not change",
            (evidence_of_check(stalled),),
            ACTIONS,
        )


def _start(facts: Facts) -> Iterator[Finding]:
    """The same parameters are trained from different initial values."""
    if facts.entry != "model":
        return
    changed = facts.differences("model")
    if any(d.signal in (*TRAINABLE, "dtypes") for d in changed):
        return
    start = next((d for d in changed if d.signal != "reference_sha256"), None)
    if start is not None:
        yield Finding(
            C.ADAPTER,
            0.72,
            "training starts from different parameters",
            (evidence_of(start),),
            (
                "compare the checkpoint, its revision and the seed of new weights",
                "look for an adapter that is merged or loaded twice",
            ),
        )


def _gradients(facts: Facts) -> Iterator[Finding]:
    if facts.entry not in ("first_gradient", "first_loss"):
        return
    missing = facts.difference("first_gradient", "tensors_without_gradient")
    if missing is not None:
        # Without an adapter, a graph that is cut leaves parameters of the model without a gradient.
        cut = not facts.now.config.get("use_peft") and gradient_cut(facts)
        yield Finding(
            C.ADAPTER,
            0.4 if cut else 0.85,
            "trainable parameters receive no gradient",
            (evidence_of(missing),),
            ("look for detach(), no_grad() and modules that the forward pass no longer reaches",),
        )
        return
    differing, groups = facts.groups_with_other_gradient
    same_loss = facts.entry == "first_gradient"
    if same_loss and 0 < differing <= groups / 2:
        yield Finding(
            C.ADAPTER,
            0.7,
            f"the gradient differs in {differing} of {groups} module groups, and only there",
            facts.first_evidence(),
            ("look for code that scales, hooks or freezes these modules", ACTIONS[1]),
        )
