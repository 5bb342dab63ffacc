"""What a guard's steps do not show, and so no guard that holds vouches for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from canary.config.trainers import trainer_row
from canary.ladder.guard.on_policy import looked_at, own_gap, unfit
from canary.record.exact import Exact


def unseen(baseline: Exact, level: Exact, trainer: str) -> Iterator[str]:
    """In words, each."""
    rates = baseline.get("trajectory", {}).get("learning_rates", [])
    row = trainer_row(trainer)
    # What an update does shows in the next step's loss; of several per step also in their own's.
    shown = rates if row.own_loop else rates[:-1]
    if rates and not any(shown):
        yield "the optimizer: no update of these steps shows, its learning rate is 0 or comes last"
    if not row.online:
        return
    if unfit(baseline):
        yield (
            "generation: the baseline's own does not draw from its policy "
            f"({own_gap(baseline):.1e} apart)"
        )
    elif not looked_at(level):
        yield "generation: it is not the model's own `generate`"
