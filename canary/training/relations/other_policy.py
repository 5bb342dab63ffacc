"""Another policy that the same process trains: preference training may follow a supervised one.

Only what is asked of references, KL terms and advantages is asked about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from canary.training.relations.calls import KeptCall
from canary.training.relations.looking import TrainingLook
from canary.training.relations.references import Updates
from canary.training.sampling.weights import shares

RELATIONS = ("reference_start", "identities")


@dataclass
class OtherPolicy:
    """One more policy, with its optimizer."""

    look: TrainingLook
    updates: Updates
    optimizer: torch.optim.Optimizer


def calls_of_other(
    calls: Sequence[KeptCall], optimizer: torch.optim.Optimizer, policy: nn.Module
) -> list[KeptCall]:
    """Return the calls of a model that scores tokens, that an optimizer trains, and that has no
    parameter of the policy: so it is no critic and no part of it."""
    own = {id(value) for group in optimizer.param_groups for value in group["params"]}
    return [
        one
        for one in calls
        if one.scores_tokens
        and any(id(value) in own for value in one.module.parameters())
        and not shares(one.module, policy)
    ]
