"""Two ranks against one: which rows they saw, and how far their losses may be apart."""

from __future__ import annotations

from typing import Any

import pytest

from canary.relations import fused_optimizer, ranks

LOSSES = [2.0, 1.9, 1.8, 1.7]


def recorded(
    shift: float = 0.0, rows: int = 64, seen: list[list[str]] | None = None
) -> dict[str, Any]:
    """A launch whose losses are off by more and more."""
    losses = [value + shift * step for step, value in enumerate(LOSSES, start=1)]
    seen = seen or [[f"row{4 * step + one}" for one in range(4)] for step in range(4)]
    batches = [
        [{"rows": {"input_ids": step[:2]}}, {"rows": {"input_ids": step[2:]}}] for step in seen
    ]
    return {
        "trajectory": {"losses": losses, "grad_norms": [1.0] * 4, "learning_rates": [1e-3] * 4},
        "batches": batches,
        "data": {"rows": rows},
    }


def test_losses_within_rounding_hold() -> None:
    found = ranks.judge(recorded(), recorded(), recorded(1e-4), recorded(-5e-4))
    assert found["status"] == "holds", found


def test_losses_beyond_rounding_are_broken() -> None:
    found = ranks.judge(recorded(), recorded(), recorded(1e-4), recorded(1e-2))
    assert found["status"] == "broken", found
    assert found["place"] == "update 1"
    assert found["tolerance"] == pytest.approx(8e-4)


def test_rows_seen_twice_are_counted() -> None:
    both = [[f"row{2 * step}", f"row{2 * step + 1}"] * 2 for step in range(4)]
    found = ranks.judge(recorded(), recorded(), recorded(1e-4), recorded(seen=both))
    assert found["status"] == "broken", found
    assert found["message"] == "of 4 rows, 2 are missing and 2 are seen twice"


def test_what_comes_after_the_data_ends_is_not_compared() -> None:
    """Accelerate gives some rows twice there, so that ranks have equally many."""
    padded = [[f"row{one}" for one in range(4)]] + [["row0"] * 4] * 3
    assert (
        ranks.judge({}, recorded(rows=4), recorded(rows=4), recorded(seen=padded))["status"]
        == "holds"
    )
    alone = ranks.judge({}, recorded(rows=2), recorded(rows=2), recorded(seen=padded))
    assert alone["status"] == "not applicable"


def test_a_fused_optimizer_of_other_settings_is_broken() -> None:
    plain, moved = recorded(), recorded(1e-6)
    assert fused_optimizer.judge({}, plain, moved, recorded(4e-6))["status"] == "holds"
    assert fused_optimizer.judge({}, plain, moved, recorded(1e-4))["status"] == "broken"
