"""Objective: the loss function differs for the same batch and parameters."""

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
from canary.compare.exact.inputs_stages import not_seen
from canary.compare.exact.rollout_stage import apart_at_step
from canary.compare.invariants.parts import FIRST_LOSSES
from canary.record.exact import EVALUATION_MODE

ACTIONS = (
    "compare loss_type, beta, weights and the normalisation of the loss",
    "compute the loss of the first batch by hand on both sides",
)
CLIPPING = "check whether clipping changed, and record the baseline again"
LOOK_FOR_CUTS = "look for detach() and for terms with value 0 but a gradient"
OR_CLIPPED = (
    "the first loss is equal, but its gradient differs. One side's record is older and may hold "
    "the gradient after clipping"
)
OF_UNSEEN = 0.6
"""Largest strength if a part of the batch was not seen: it may differ, and not the loss."""
CUT = ": a step computes less, so part of the graph is cut"


def findings(facts: Facts) -> Iterator[Finding]:
    """Changes of the rollout's signals, of loss or gradient at step 1, or of a later loss."""
    yield from _made_of_rollout(facts)
    yield from _mode(facts)
    if facts.entry == "first_loss":
        yield from _first_loss(facts)
    elif facts.entry == "first_gradient":
        yield from _first_gradient(facts)
    elif facts.entry == "trajectory" and not (facts.rollout_signal or facts.clipping):
        yield from _trajectory(facts)
        yield from _later_updates(facts)
    yield from _impossible(facts)


def _mode(facts: Facts) -> Iterator[Finding]:
    """One side trains in evaluation mode, without dropout, and that side learns otherwise."""
    change = next((one for one in facts.settings if one.key == EVALUATION_MODE), None)
    if change is None or facts.entry not in ("first_loss", "first_gradient", "trajectory"):
        return
    step = change.current or change.baseline
    words = "is no longer" if change.current is None else "is"
    yield Finding(
        C.OBJECTIVE,
        0.95,
        f"the model {words} in evaluation mode from step {step} on: dropout is off there, and "
        "batch norms keep their statistics",
        facts.first_evidence(),
        ("call model.train() before training and after each evaluation",),
        equal=("batches",),
    )


MADE = {
    "values": ((), "different values"),
    "rewards": (
        ("scores", "logprobs", "reference_logprobs"),
        "different rewards: check the KL penalty, whitening and the position of the score",
    ),
    "advantages": (
        ("rewards", "values"),
        "different advantages: check gamma, lambda, the value after the last token and whitening",
    ),
    "returns": (
        ("rewards", "values"),
        "different returns: check gamma, lambda, the value after the last token and what is added "
        "to the values",
    ),
}
"""Signal: (the signals that it is computed from, the change in words)."""
ROUNDING = 1e-6
"""Signals that differ by at most this share of their root mean square count as equal."""


def _made_of_rollout(facts: Facts) -> Iterator[Finding]:
    """Rewards, advantages and returns are computed from the samples by a formula that changed."""
    signal = facts.rollout_signal
    if signal is None or signal.signal not in MADE or facts.failed("frozen_unchanged"):
        return
    broken = facts.failed("rewards_add_up", "advantages_sum_to_zero", "advantages_scaled")
    of_values = signal.signal == "values"
    yield Finding(
        C.OBJECTIVE,
        0.6 if of_values else 0.93,
        _made_otherwise(facts, signal.signal, signal.step or 1),
        (evidence_of(signal), *([evidence_of_check(broken)] if broken else [])),
        VALUES_ACTIONS
        if of_values
        else (
            "compute rewards, advantages and returns of one completion by hand on both sides",
            "compare gamma, lam, the weight and sign of the KL penalty, whitening, and the masks",
        ),
    )


VALUES_ACTIONS = (
    "compare the value loss: its weight, clip range and mask, and whether its gradient reaches "
    "the model",
    "compare the value head: its input, initial weights and learning rate",
)


def _made_otherwise(facts: Facts, signal: str, step: int) -> str:
    """Describe the change, and how closely the signals agree that it is computed from."""
    of, words = MADE[signal]
    if signal == "values" and step == 1:
        return f"the same tokens and parameters give {words}"
    if signal == "values":
        return f"the same tokens give {words} after {_steps(step - 1)} with equal losses"
    apart = max((apart_at_step(facts.before, facts.now, name, step) for name in of), default=0.0)
    how = "are equal" if apart <= ROUNDING else f"agree to {apart:.0e}"
    inputs = f"{', '.join(of[:-1])} and {of[-1]}".replace("_", " ")
    found = f"{inputs} {how} but give {words}"
    if signal == "returns":
        found += ". The recorded advantages agree, but they are whitened: without shift and scale"
    return found


def _steps(count: int) -> str:
    return "one step" if count == 1 else f"{count} steps"


def _later_updates(facts: Facts) -> Iterator[Finding]:
    """The first update of step 1 is equal, but a later one on the same rollout differs."""
    update = first_other_update(facts)
    if update is None or update < 2 or facts.same_parameters_after_first_update is False:
        return
    clipped = unclipped(facts)
    strength = 0.88 if update == 2 else (0.8 if clipped is not None else 0.4)
    yield Finding(
        C.OBJECTIVE,
        strength,
        f"the first update is equal, but the loss differs from update {update} of step 1 on. A "
        "term or clip range without effect at first may have changed",
        (*facts.first_evidence(), *([clipped] if clipped else [])),
        ("look at ratios, the clip ranges of ratios and values, and the masks", *ACTIONS),
        equal=("first_update",),
    )


def _first_loss(facts: Facts) -> Iterator[Finding]:
    factor = facts.gradient_factor
    scale = f": the gradient is {factor:.3g} times as large" if factor is not None else ""
    evidence = list(facts.first_evidence())
    strength = 0.75
    if facts.failed("starts_at_ratio_one"):
        strength = 0.4
    elif facts.rollout and not facts.metric_moved("reward") and facts.advantages == "others":
        strength = 0.93
        evidence.append(Evidence("signal", "rewards are equal, but advantages differ"))
        broken = facts.failed("advantages_scaled", "advantages_sum_to_zero")
        evidence += [evidence_of_check(broken)] if broken else []
    elif facts.rollout and (
        facts.metric_moved("reward")
        or facts.metric_moved("entropy")
        or facts.advantages == "exchanged"
    ):
        strength = 0.4
    elif factor is not None:
        strength = 0.88
    description = f"the loss differs for the same batch and parameters{scale}"
    if unseen := not_seen(facts.before, facts.now):
        strength = min(strength, OF_UNSEEN)
        description = (
            f"the loss differs{scale}; parameters and batches are the same as far as seen, but "
            f"{unseen}"
        )
    yield Finding(
        C.OBJECTIVE,
        strength,
        description,
        tuple(evidence),
        ACTIONS,
        equal=("batches", "model"),
    )


def _first_gradient(facts: Facts) -> Iterator[Finding]:
    factor = facts.gradient_factor
    if facts.clipping_unknown:
        yield Finding(C.OBJECTIVE, 0.4, OR_CLIPPED, facts.first_evidence(), (CLIPPING, *ACTIONS))
        return
    if factor is not None:
        yield Finding(
            C.OBJECTIVE,
            0.9,
            f"the first loss is equal, but its gradient is {factor:.3g} times as large in every "
            "module",
            facts.first_evidence(),
            ("look for a coefficient of the loss: beta, a weight, a divisor", *ACTIONS),
            equal=("batches", "first_loss"),
        )
        return
    rollout = facts.rollout and facts.metric_moved("entropy")
    cut = gradient_cut(facts)
    yield Finding(
        C.OBJECTIVE,
        0.4 if rollout else (0.85 if cut else 0.72),
        f"the first loss is equal, but its gradient differs{CUT if cut else ''}",
        (*facts.first_evidence(), *([cut] if cut else [])),
        (LOOK_FOR_CUTS, *ACTIONS),
        equal=("batches", "first_loss"),
    )


def _trajectory(facts: Facts) -> Iterator[Finding]:
    if facts.failed("frozen_unchanged") or facts.failed("raw_loss_finite"):
        return
    loss, norm = facts.first_step("losses"), facts.first_step("grad_norms")
    same = facts.same_parameters_after_first_update
    other = facts.batches.steps_differ_from
    if facts.rollout and other is not None and loss is not None and other <= loss:
        return  # the completions differ first
    if loss == 2 and same is not False and (norm is None or norm >= 2):
        yield Finding(
            C.OBJECTIVE,
            0.85 if same else 0.65,
            "the first update is equal, but equal parameters give a different loss at step 2. A "
            "term that is 0 at the start may have changed",
            (
                *facts.first_evidence(),
                *(
                    [Evidence("signal", "parameters after the first update are bit-equal")]
                    * bool(same)
                ),
            ),
            ("look at terms that compare policy and reference: KL, margins, ratios", *ACTIONS),
            equal=("batches", "first_update"),
        )
    elif norm is not None and (loss is None or norm < loss):
        cut = gradient_cut(facts)
        small = norm_change(facts, norm) <= LEFTOVER
        yield Finding(
            C.OBJECTIVE,
            0.85 if cut else (0.6 if small else 0.4),
            f"at step {norm} the loss is equal, but its gradient differs{CUT if cut else ''}",
            (*facts.first_evidence(), *([cut] if cut else [])),
            (LOOK_FOR_CUTS, *ACTIONS) if cut or small else ACTIONS,
            equal=("batches", "trajectory"),
        )


def _impossible(facts: Facts) -> Iterator[Finding]:
    """A loss that its formula cannot give."""
    broken = facts.failed("loss_not_negative", *FIRST_LOSSES)
    if broken is not None and facts.entry in (None, "first_loss", "first_gradient", "trajectory"):
        yield Finding(C.OBJECTIVE, 0.6, broken.message, (evidence_of_check(broken),), ACTIONS)
