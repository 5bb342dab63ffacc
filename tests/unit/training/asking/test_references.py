"""`reference` finds references that are the policy or are random."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from canary.record.exact import Asked
from tests.unit.training.asking.preferences import (
    Known,
    Preferences,
    Rows,
    by,
    hinge,
    log_probs,
    rows_of,
)
from tests.unit.training.asking.tiny import llama


def asked(made: Preferences) -> Asked:
    return made.run()["reference"]


def frozen(model: Any) -> Any:
    return copy.deepcopy(model).eval().requires_grad_(False)


def adapted(dropout: float = 0.0, tuned: float = 0.0, **changed: Any) -> Any:
    """A model with a LoRA adapter that was trained before, if `tuned` is above 0."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=dropout
    )
    model = get_peft_model(llama(**changed), config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_B" in name:
                value.normal_(std=tuned) if tuned else None
    return model


def without_adapter(model: Any) -> Callable[[Rows], Known]:
    def known(rows: Rows) -> Known:
        with torch.no_grad(), model.disable_adapter():
            return log_probs(model, rows)

    return known


def itself() -> Preferences:
    policy = llama()
    return Preferences(policy, by(policy))


def itself_with_adapters() -> Preferences:
    policy = adapted()
    return Preferences(policy, by(policy))


@pytest.mark.parametrize("made", [itself, itself_with_adapters])
def test_the_policy_as_its_own_reference_is_broken(made: Callable[[], Preferences]) -> None:
    found = asked(made())
    assert found["status"] == "broken", found
    assert "the policy itself is the reference: in updates 2 to 3" in found["words"]


# Healthy trainings that call the policy without gradients.


def watched_margins() -> Preferences:
    """A reference of its own, hinge, and a call of the policy for metrics."""
    policy = llama()
    metrics = by(policy)
    return Preferences(policy, by(frozen(policy)), hinge, lambda update, rows: metrics(rows))


def stored_reference() -> Preferences:
    """Reference log-probabilities of all rows, by the policy before it trains; metrics later."""
    policy = llama()
    stored = [by(policy)(rows_of(update)) for update in range(5)]
    metrics = by(policy)
    updates = iter(range(5))
    return Preferences(
        policy, lambda rows: stored[next(updates)], hinge, lambda update, rows: metrics(rows)
    )


def moving_average() -> Preferences:
    policy = llama()
    teacher = frozen(policy)

    def follow() -> None:
        for own, other in zip(policy.parameters(), teacher.parameters(), strict=True):
            other.lerp_(own.detach(), 0.5)

    return Preferences(policy, by(teacher), after=follow)


def in_training_mode_without_dropout() -> Preferences:
    policy = llama()
    return Preferences(policy, by(frozen(policy).train()))


def new_adapter() -> Preferences:
    policy = adapted(dropout=0.1)
    return Preferences(policy, without_adapter(policy))


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (watched_margins, "holds"),
        (stored_reference, "not asked"),
        (moving_average, "holds"),
        (in_training_mode_without_dropout, "holds"),
        (new_adapter, "holds"),
    ],
)
def test_healthy_references_are_not_broken(made: Callable[[], Preferences], status: str) -> None:
    found = asked(made())
    assert found["status"] == status, found


def test_a_reference_with_active_dropout_is_broken_and_stays_as_it_is() -> None:
    policy = llama(attention_dropout=0.1)
    other = frozen(policy).train()
    found = asked(Preferences(policy, by(other)))
    assert found["status"] == "broken", found
    assert "is in training mode and has dropout" in found["words"]
    assert other.training


def test_questions_leave_the_training_as_it_was() -> None:
    def trained(wanted: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        policy = adapted(dropout=0.1, tuned=0.5, attention_dropout=0.1)
        made = Preferences(policy, without_adapter(policy))
        if wanted:
            made.run()
            return [*policy.parameters()]
        policy.train()
        kept = [value for value in policy.parameters() if value.requires_grad]
        optimizer = torch.optim.AdamW(kept, lr=3e-3)
        for update in range(5):
            rows = rows_of(update)
            known = made.reference(rows)
            made.loss(log_probs(policy, rows), known).backward()
            optimizer.step()
            optimizer.zero_grad()
        return [*policy.parameters()]

    pairs = zip(trained(True), trained(False), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
