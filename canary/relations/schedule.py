"""The learning-rate schedule."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "schedule",
    "start and end",
    "the scheduler steps once per update, and gives the rates of the trainer's arguments",
    "the scheduler steps per micro-batch or twice, or never, or counts other steps than the config",
    "https://arxiv.org/abs/2506.14813",
    moment="last",
)
ROUNDING = 1e-9
"""Relative; both sides compute in double precision, in another order."""


def ask(look: Look) -> Outcome:
    """Compare the number of steps of each scheduler with the number of updates, then the rates."""
    if not look.schedulers:
        raise CannotAsk("the loop has no scheduler of torch")
    if look.updates < 2:
        raise CannotAsk("the training had one update")
    # Parts of a chain, and schedulers that are not used, step less often.
    steps = max(count for _, count in look.schedulers)
    # The last update may end the training before the scheduler steps.
    if look.updates - 1 <= steps <= look.updates:
        return _rates(look, f"the scheduler stepped {steps} times in {look.updates} updates")
    if steps < look.updates - 1 and steps * 2 <= look.updates:
        raise CannotAsk(
            f"the scheduler stepped {steps} times in {look.updates} updates, "
            "as if once per epoch or rollout"
        )
    return broken(
        RELATION,
        f"the scheduler stepped {steps} times in {look.updates} updates",
        values=(steps, look.updates),
    )


def _rates(look: Look, words: str) -> Outcome:
    """Compare the learning rates with those of the trainer's arguments."""
    wanted = look.wanted_rates()
    if wanted is None:
        return holds(RELATION, words)
    for update, (rate, other) in enumerate(zip(look.rates, wanted, strict=False), start=1):
        if abs(rate - other) > ROUNDING * max(abs(rate), abs(other)):
            what = f"the learning rate is {rate:.6g}, but the trainer's arguments give {other:.6g}"
            return broken(RELATION, what, f"update {update}", (rate, other))
    return holds(RELATION, f"{words}, with the configured learning rates")
