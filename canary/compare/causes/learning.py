"""How it is learned: precision, the objective and the optimizer."""

from __future__ import annotations

import re
from functools import partial

from canary.compare.causes.parameters import SHOWN
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.changes import named
from canary.compare.exact.learning_stages import CUT
from canary.compare.exact.tolerances import relative_difference
from canary.compare.report import Difference, Place
from canary.record.exact import EVALUATION_MODE, Exact

PRECISION = (
    "compare dtype, bf16, fp16, autocast and every .to(dtype) of both sides",
    "print the dtype of weights, logits, log-probabilities and loss on both sides",
)
CASTS = ("_to_copy", "aten::to", "aten::_to_copy")
MANY_CASTS = 16
"""A few casts come with many other changes."""
ROUNDING = 2e-2
"""Largest relative change of a loss that lower precision explains."""
LOSS = (
    "compute the loss of the first batch by hand on both sides",
    "compare the terms of the loss: weights, signs, normalisation, clip ranges, mask",
)
TARGETS = "compare labels, or rewards and advantages, of the first batch on both sides"
CUTS = ("look for detach(), no_grad() and terms with value 0 but a gradient", *LOSS)
AT_START = ("look at terms that are 0 at the start: KL, margins, ratios", *LOSS)
FORMULA = (
    "compute rewards, advantages and returns of one completion by hand on both sides",
    "compare gamma, lam, the KL penalty, whitening, the position of the score, the masks",
)
RATES = (
    "compare learning rate, schedule, warm-up and the number of steps",
    "count how often the scheduler steps per update",
)
UPDATE = (
    "compare optimizer class, betas, epsilon, weight decay and parameter groups",
    "count the groups of each trainable parameter: it must be exactly one",
)
LEFT = (
    "look for optimizer.zero_grad() between each update and the next backward",
    "print the gradient norm right before each backward on both sides",
)
STATE = (
    "look for state that lasts from one step to the next: gradients, moments, a scheduler",
    "print the gradient norm before and after each update of two steps on both sides",
)
LEFTOVER = 1e-2
"""Leftover gradients of an earlier step change the norm by more than this share."""
DRAWS = (
    "look for what draws between the steps: sampling, a DataLoader's order, dropout that is on",
    "give it a generator of its own, or restore the random state after it",
)
RANDOM = ("bernoulli", "dropout", "multinomial", "rand", "normal_", "uniform_", "exponential_")
"""Operators with one of these in their name draw random numbers."""
LOOKS_ON = re.compile(r"eval|valid|log|metric|sampl|generat|rand|print")
"""What code names that only looks at the training."""
FIRST = ("first_update", "first_gradient", "first_loss")


def _casts(facts: Facts) -> Evidence | None:
    """Return the casts if their number changed and the loss moved at most by rounding."""
    stages = ("rollout", "first_loss", "first_gradient")
    moved = (*facts.differences("rollout"), *facts.differences("first_loss"))[:1]
    rounded = all((one.relative or 0.0) <= ROUNDING for one in moved)
    if facts.entry not in stages or facts.differences("model") or not rounded:
        return None
    casts = facts.more_calls(*CASTS)
    words = f"casts between dtypes {casts:+.0f} per step"
    return Evidence("operators", words, unit="calls") if abs(casts) >= MANY_CASTS else None


def _nan(facts: Facts) -> object:
    """Return the checks of NaN and infinity, unless no label is left: a mean of nothing is NaN."""
    was, now = facts.exact_count("label_tokens")
    return not was > now == 0 and facts.failed("nan_steps", "inf_steps", "raw_loss_finite")


def _not_finite(facts: Facts) -> str:
    at = [*facts.now.stability.nan_at, *facts.now.stability.inf_at]
    since = f" from step {min(at)} on" if at else ""
    return f"the loss or its gradient is not finite{since}"


def _dtypes(facts: Facts) -> object:
    found = facts.difference("model", "dtypes")
    trained = any(d.signal.startswith("trainable") for d in facts.differences("model"))
    return found and not trained and [found, facts.failed("trainable_changed")]


def _half(facts: Facts) -> object:
    stages = ("model", "rollout", "first_loss", "first_gradient", "trajectory")
    words = f"every value fits {facts.half_precision} without rounding, unlike the baseline's"
    return facts.entry in stages and facts.half_precision and Evidence("signal", words)


_numerics = partial(Row, C.NUMERICS)
# fmt: off
NUMERICS = (
    _numerics(_nan, _not_finite,
        ("look at the batch of that step, and at divisions and logarithms in the loss",
        "run that step under torch.autograd.set_detect_anomaly(True)",
        "check whether the log hides it: logging_nan_inf_filter"), strength=0.95),
    _numerics(_dtypes, lambda f: "parameters have a different precision"
        + (", and small updates are rounded away" if f.failed("trainable_changed") else ""),
        (*PRECISION, "count the weights that one update changes"), strength=0.95, sign="dtypes"),
    _numerics(_casts,
        "the step computes in a different precision, and the loss moved by less than rounding may",
        PRECISION),
    _numerics(lambda f: f.reference_rounded,
        "the reference's weights are rounded to {f.reference_rounded}, not the policy's",
        PRECISION, strength=0.93),
    _numerics(_half, "losses or scores are rounded to {f.half_precision}", PRECISION,
        strength=0.95),
)
# fmt: on


def _mode(facts: Facts) -> str:
    """Return how one side trains in evaluation mode, if that side learns otherwise; or ""."""
    change = next((one for one in facts.settings if one.key == EVALUATION_MODE), None)
    if change is None or facts.entry not in ("first_loss", "first_gradient", "trajectory"):
        return ""
    if change.current is None:
        return (
            f"the model is no longer in evaluation mode from step {change.baseline} on: dropout is "
            "on there, and batch norms update their statistics"
        )
    return (
        f"the model is in evaluation mode from step {change.current} on: dropout is off there, and "
        "batch norms keep their statistics"
    )


MADE_OF = {
    "values": "tokens",
    "rewards": "scores, logprobs and reference logprobs",
    "advantages": "rewards and values",
    "returns": "rewards and values",
}
"""Signal of a rollout: what it is computed from."""


def _made(facts: Facts) -> object:
    """Return the first signal that a formula makes of equal samples."""
    broken = facts.failed("rewards_add_up", "advantages_scaled")
    found = facts.signal(*MADE_OF)
    return found and not facts.failed("frozen_unchanged") and [found, broken]


def _made_words(facts: Facts) -> str:
    name = facts.rollout_signal.signal if facts.rollout_signal else ""
    return f"equal {MADE_OF[name]} give different {name}"


def _loss(facts: Facts) -> object:
    """Return what tells more of a first loss or gradient that differs."""
    return [facts.gradient_cut, facts.failed("advantages_scaled")]


def _loss_words(facts: Facts) -> str:
    factor, cut = facts.gradient_factor, facts.gradient_cut
    words = "the loss differs for the same batch and parameters"
    if facts.unseen:
        words = f"the loss differs; batch and parameters are the same, but {facts.unseen}"
    if facts.entry == "first_gradient":
        words = f"the first loss is equal, but its gradient differs{CUT_WORDS if cut else ''}"
    return words if factor is None else f"{words}: the gradient is {factor:.3g} times as large"


def _later(facts: Facts) -> bool:
    """Whether training is the same through step 1, and loss or gradient differ then."""
    explained = facts.rollout_signal or facts.clipping or facts.failed("frozen_unchanged")
    return facts.entry == "trajectory" and not explained


def _other_gradient(facts: Facts) -> int | None:
    """Return the first later step whose gradient differs while its loss is equal."""
    loss, norm = facts.first_step("loss"), facts.first_step("grad_norm")
    before = norm is not None and (loss is None or norm < loss)
    return norm if _later(facts) and before else None


def _norm_change(facts: Facts) -> float:
    """Return the relative change of that gradient's norm."""
    step = _other_gradient(facts) or 1
    was, now = facts.exact(lambda exact: exact.get("trajectory", {}).get("grad_norms", []))
    return relative_difference(was[step - 1], now[step - 1])


def _later_update(facts: Facts) -> int:
    """Return the first update of step 1 whose loss differs, if the first is equal; else 0."""
    update = facts.first_other_update or 0
    same = facts.same_parameters_after_first_update is not False
    return update if _later(facts) and update > 1 and same else 0


def _other_loss(facts: Facts) -> int:
    """Return the first step with another loss, if all is equal before as far as it was recorded;
    else 0."""
    step, rows = facts.first_step("loss") or 0, facts.batches.steps_differ_from
    sampled = facts.rollout and rows is not None and rows <= step == 2
    explained = _other_gradient(facts) or _later_update(facts) or facts.failed("raw_loss_finite")
    same = facts.same_parameters_after_first_update is not False
    return step if _later(facts) and same and step > 1 and not (sampled or explained) else 0


def _drawn_elsewhere(facts: Facts) -> object:
    """Return what an evaluation or a log changed, if the first step with another loss draws random
    numbers."""
    code = [place for place in facts.report.places.code if place.phase != "setup"]
    settings = [one.evidence() for one in facts.settings if one.category is C.IO]
    more = facts.more_calls(*RANDOM)
    words = f"operators that draw random numbers {more:+.0f} per step"
    drawn = [Evidence("operators", words, unit="calls")] * bool(more)
    found = drawn or ((settings or code) and all(map(_beside, code)))
    return found and _other_loss(facts) and all(facts.exact(_draws)) and [*drawn, *settings, True]


def _drawn_words(facts: Facts) -> str:
    return (
        "other code, such as an evaluation or a log, draws random numbers. So the dropout or the "
        f"sampling of step {_other_loss(facts)} gets others for the same batch"
    )


def _draws(exact: Exact) -> bool:
    names = exact.get("work", {}).get("operators", {})
    return any(part in name for name in names for part in RANDOM)


def _beside(place: Place) -> bool:
    """Whether changed code only looks at the training: an evaluation, a log or a checkpoint."""
    text = " ".join((place.function, *place.removed, *place.added))
    looks = place.phase in ("other", "data") and LOOKS_ON.search(text)
    return place.phase in ("logging", "evaluation", "checkpoint") or bool(looks)


CUT_WORDS = ": a step computes less, so part of the graph is cut"
LATER_GRADIENT = "the loss of a later step is equal, but its gradient differs"
LATER_UPDATE = (
    "the first update is equal, but the loss differs from update {f.first_other_update} on"
)
_objective = partial(Row, C.OBJECTIVE)
# fmt: off
OBJECTIVE = (
    _objective(_mode, _mode,
        ("look for the calls of model.train() and model.eval(), also after an evaluation",),
        strength=0.95, equal=("batches",)),
    _objective(_made, _made_words, FORMULA, strength=0.93),
    # A part of the batch that was not seen may differ instead.
    _objective(lambda f: f.entry == "first_loss" and _loss(f), _loss_words,
        lambda f: (TARGETS, *LOSS) if "targets" in f.unseen else LOSS,
        strength=lambda f: 0.6 if f.unseen else 0.78, equal=("batches", "model")),
    _objective(lambda f: f.entry == "first_gradient" and _loss(f), _loss_words, CUTS,
        strength=0.78, equal=("batches", "first_loss")),
    Row(C.DATA, _drawn_elsewhere, _drawn_words, DRAWS, strength=0.9,
        equal=("batches", "first_update"), group="steps"),
    _objective(lambda f: _other_loss(f) == 2,
        "the first update is equal, but the loss of step 2 differs",
        AT_START, strength=0.75, equal=("batches", "first_update"), group="steps"),
    Row(C.OPTIMIZER, lambda f: _other_gradient(f) and f.failed("gradients_start_empty"),
        lambda f: f"the gradient of step {_other_gradient(f)} adds to that of the step before: it "
        "is not set to zero in between", LEFT, strength=0.97, equal=("batches",),
        group="later gradient"),
    _objective(lambda f: _other_gradient(f) and (f.gradient_cut or _norm_change(f) <= LEFTOVER),
        lambda f: f"{LATER_GRADIENT}{CUT_WORDS if f.gradient_cut else ' a little'}", CUTS,
        strength=0.75, equal=("batches",), group="later gradient"),
    Row(C.OPTIMIZER, _other_gradient,
        f"{LATER_GRADIENT}: it may include gradients of an earlier step", (*STATE, LEFT[0]),
        strength=0.72, equal=("batches",), group="later gradient"),
    _objective(lambda f: _later_update(f) == 2 or (_later_update(f) and f.unclipped), LATER_UPDATE,
        AT_START, strength=0.85, equal=("first_update",), group="later update"),
    Row(C.OPTIMIZER, _later_update, f"{LATER_UPDATE}. The optimizer's state may differ", STATE,
        strength=0.8, equal=("first_update",), group="later update"),
)
# fmt: on


def _clipping(facts: Facts) -> str:
    """Describe what reaches the optimizer of a gradient that backward made as before."""
    found = facts.clipping
    assert found is not None
    step = found.step or 1
    whole = facts.now.exact["clipping"]["before"][step - 1]
    was, now = (
        isinstance(norm, int | float) and relative_difference(whole, norm) > CUT
        for norm in (found.baseline, found.current)
    )
    how = "is no longer clipped before the update" if was and not now else "is clipped differently"
    how = "is now clipped before the update" if now and not was else how
    if facts.failed("clip_before_step"):
        how += ": the clip comes after it"
    if found.current == 0 and found.baseline:
        how = "is zero at the optimizer, so nothing is learned"
    return f"the gradient of step {step} is equal after backward, but {how}"


def _rates(facts: Facts) -> object:
    rates = facts.difference("first_update", "learning_rate")
    return facts.entry in FIRST and rates and [rates, facts.failed("learning_rate_positive")]


def _rate_words(facts: Facts) -> str:
    was, now = facts.exact(lambda exact: exact.get("trajectory", {}).get("learning_rates", []))
    factors = [b / a for a, b in zip(was, now, strict=False) if a and b]
    if factors and min(factors) > 0 and max(factors) / min(factors) < 1.001:
        return f"the learning rate is {factors[0]:.3g} times as large at every step"
    place = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    return f"the learning rate differs from step {place + 1} on"


def _update(facts: Facts) -> list[Difference]:
    """Return what differs in the first update with one learning rate. Adam's first step has one
    size for any gradient. If it differs, other parameters are updated."""
    names = ("delta_norm", "tensors_changed")
    if facts.entry != "first_update" or facts.difference("first_update", "learning_rate"):
        return []
    return [d for d in facts.differences("first_update") if d.signal in names]


def _update_words(facts: Facts) -> str:
    was, now = facts.exact(lambda exact: exact.get("first_update", {}))
    if now.get("tensors_changed") == 0:
        return "the first update changes no parameter, although the gradient is the same"
    names = (now.get("tensors_unchanged", []), was.get("tensors_unchanged", []))
    for words, here, there in (("no longer changes", *names), ("now changes", *names[::-1])):
        if found := [name for name in here if name not in there]:
            return f"the first update {words} {named(found, SHOWN)}"
    return "the first update differs for the same gradient"


_optimizer = partial(Row, C.OPTIMIZER)
# fmt: off
OPTIMIZER = (
    _optimizer(_rates, _rate_words, RATES, strength=0.97),
    _optimizer(lambda f: f.entry == "first_gradient" and f.failed("clip_before_step"), lambda f:
        getattr(f.failed("clip_before_step"), "message", ""),
        ("clip once per update: after its last backward, before optimizer.step()",), strength=0.95),
    _optimizer(lambda f: f.clipping, _clipping,
        ("compare the code between backward and optimizer.step: clipping, its limit and its "
        "arguments, and where gradients are set to zero",), strength=0.95, equal=("batches",
        "first_gradient")),
    _optimizer(_update, _update_words, UPDATE,
        equal=("first_gradient",)),
    _optimizer(lambda f: _later(f) and f.same_parameters_after_first_update is False,
        "the first update differs, but too little for its size to show it", (UPDATE[0], *STATE),
        strength=0.85),
    _optimizer(lambda f: _other_loss(f) > 2,
        "the first updates are equal, but the loss of a later step differs. The optimizer's state "
        "may differ", (UPDATE[0], *STATE), strength=0.85, equal=("batches", "first_update"),
        group="steps"),
)
# fmt: on

ROWS = (*NUMERICS, *OBJECTIVE, *OPTIMIZER)
