"""A small preference loop whose reference can be spoilt, looked at by the questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn.functional import logsigmoid

from tests.unit.training.asking.tiny import Answers, Looked, batch

Rows = dict[str, torch.Tensor]
Known: TypeAlias = torch.Tensor
"""Log-probabilities of rows: the chosen ones first, then the rejected ones."""


def rows_of(update: int) -> Rows:
    """Two chosen rows, then two rejected ones."""
    return batch(update, rows=4, width=14)


def log_probs(model: Any, rows: Rows) -> Known:
    """Return the log-probability of each row."""
    logits = model(**rows).logits[:, :-1]
    following = rows["input_ids"][:, 1:, None]
    each = logits.log_softmax(-1).gather(-1, following).squeeze(-1)
    return (each * rows["attention_mask"][:, 1:]).sum(-1)


def logistic(policy: Known, reference: Known) -> torch.Tensor:
    """The loss of DPO."""
    chosen, rejected = (policy - reference).chunk(2)
    return -logsigmoid(0.1 * (chosen - rejected)).mean()


def hinge(policy: Known, reference: Known) -> torch.Tensor:
    """The loss of SLiC: its weights stay the same while the margin is small."""
    chosen, rejected = (policy - reference).chunk(2)
    return (5 - 0.1 * (chosen - rejected)).clamp_min(0).mean()


def by(model: Any) -> Callable[[Rows], Known]:
    """Return a reference that a model is."""

    def known(rows: Rows) -> Known:
        with torch.no_grad():
            return log_probs(model, rows)

    return known


@dataclass
class Preferences:
    """Five updates of two pairs each."""

    policy: Any
    reference: Callable[[Rows], Known]
    loss: Callable[[Known, Known], torch.Tensor] = logistic
    before: Callable[[int, Rows], object] = lambda update, rows: None
    """Called before each update."""
    after: Callable[[], object] = lambda: None
    """Called after each update."""

    def run(self) -> Answers:
        """Train, and return the answers by question."""
        self.policy.train()
        trained = [value for value in self.policy.parameters() if value.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=3e-3)
        looking, losses = Looked(), []
        for update in range(5):
            rows = rows_of(update)
            self.before(update, rows)
            known = self.reference(rows)
            loss = self.loss(log_probs(self.policy, rows), known)
            loss.backward()
            losses.append(float(loss.detach()))
            optimizer.step()
            optimizer.zero_grad()
            self.after()
        return looking.answers(losses)
