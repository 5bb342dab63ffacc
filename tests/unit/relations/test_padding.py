"""More padding of all batches: losses are compared within measured rounding."""

from __future__ import annotations

from typing import Any

from canary.relations import padding


def recorded(shift: float = 0.0) -> dict[str, Any]:
    """A launch whose losses are off by a value."""
    return {"trajectory": {"losses": [value + shift for value in (2.0, 1.9, 1.8)]}}


def test_losses_within_rounding_hold() -> None:
    found = padding.judge({}, recorded(4e-6), recorded(), recorded(1e-6))
    assert found["status"] == "holds", found


def test_a_loss_that_counts_padding_is_broken() -> None:
    found = padding.judge({}, recorded(1e-2), recorded(), recorded(1e-6))
    assert (found["status"], found["place"]) == ("broken", "update 1")
    assert found["message"].startswith("with 7 more columns of padding, the loss 2 becomes 2.01")
