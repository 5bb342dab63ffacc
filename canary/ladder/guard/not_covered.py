"""What a guard's steps do not show, and so no guard that holds vouches for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from canary.collect.exact_record import Exact
from canary.config.schema import ONLINE_TRAINERS
from canary.ladder.guard.on_policy import looked_at, own_gap, unfit


def unseen(baseline: Exact, level: Exact, trainer: str) -> Iterator[str]:
    """In words, each."""
    rates = baseline.get("trajectory", {}).get("learning_rates", [])
    # What an update does shows in the next step's loss; of PPO also in its own step's.
    shown = rates if trainer == "ppo" else rates[:-1]
    if rates and not any(shown):
        yield "the optimizer: no update of these steps shows, its learning rate is 0 or comes last"
    if trainer not in ONLINE_TRAINERS:
        return
    if unfit(baseline):
        yield (
            "generation: the baseline's own does not draw from its policy "
            f"({own_gap(baseline):.1e} apart)"
        )
    elif not looked_at(level):
        yield "generation: it is not the model's own `generate`"
