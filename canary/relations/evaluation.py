"""Evaluation in between."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds
from canary.relations.trajectory import Recorded, equal_steps

RELATION = Relation(
    "evaluation",
    "start and end",
    "an evaluation during training does not change the training",
    "the loop calls eval() and never train() again, or an evaluation changes weights or buffers",
    "https://arxiv.org/abs/2506.14813",
    moment="last",
    variations=({"name": "with evaluations", "evaluate_every": 2},),
    no_loop="only a transformers Trainer can be told to evaluate",
)


def judge(base: Recorded, evaluated: Recorded) -> Outcome:
    """Compare a launch that evaluates with one that does not."""
    return equal_steps(RELATION, base, evaluated)


def ask(look: Look) -> Outcome:
    """Compare the mode of the first update with those of later ones."""
    if len(look.modes) < 2:
        raise CannotAsk("the training had one update")
    if not look.modes[0]:
        raise CannotAsk("the model trains in evaluation mode from the start")
    later = [place for place, training in enumerate(look.modes, start=1) if not training]
    if not later:
        return holds(RELATION, f"the model was in training mode in all {len(look.modes)} updates")
    return broken(
        RELATION,
        f"from update {later[0]} on, the model trains in evaluation mode",
        f"update {later[0]}",
    )
