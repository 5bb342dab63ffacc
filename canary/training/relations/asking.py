"""Ask one relation; whatever goes wrong is an answer."""

from __future__ import annotations

from types import ModuleType

import torch

from canary.protocol.failure import one_line
from canary.relations.relation import CannotAsk, Outcome, outcome
from canary.training.relations.looking import TrainingLook

SEVERAL_RANKS = "it is asked with one rank only"


def asked(name: str, module: ModuleType, look: TrainingLook) -> Outcome:
    """Return what a relation answers."""
    if several_ranks():
        return outcome(name, "not applicable", SEVERAL_RANKS)
    try:
        found: Outcome = module.ask(look)
    except CannotAsk as why:
        return outcome(name, "not applicable", str(why))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may refuse
        return outcome(name, "undecided", f"the model cannot be asked: {one_line(error)}")
    return found


def asked_again(module: ModuleType, look: TrainingLook) -> Outcome | None:
    """Return a fault that only several updates show; None without one."""
    again = getattr(module, "ask_last", None)
    if again is None or several_ranks():
        return None
    found: Outcome | None = again(look)
    return found


def several_ranks() -> bool:
    """Whether several processes train together."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return several and torch.distributed.get_world_size() > 1
