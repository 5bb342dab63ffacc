"""The learning-rate schedule."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "schedule",
    "start and end",
    "the scheduler steps once per update",
    "the scheduler steps per micro-batch or twice, or never",
    "https://arxiv.org/abs/2506.14813",
    moment="last",
)


def ask(look: Look) -> Outcome:
    """Compare the number of steps of each scheduler with the number of updates."""
    if not look.schedulers:
        raise CannotAsk("the loop has no scheduler of torch")
    if look.updates < 2:
        raise CannotAsk("the training had one update")
    # Parts of a chain, and schedulers that are not used, step less often.
    steps = max(count for _, count in look.schedulers)
    # The last update may end the training before the scheduler steps.
    if look.updates - 1 <= steps <= look.updates:
        return holds(RELATION, f"{steps} steps of the scheduler in {look.updates} updates")
    if steps < look.updates - 1 and steps * 2 < look.updates:
        raise CannotAsk(
            f"the scheduler stepped {steps} times in {look.updates} updates, as if once per epoch"
        )
    return broken(
        RELATION,
        f"the scheduler stepped {steps} times in {look.updates} updates",
        values=(steps, look.updates),
    )
