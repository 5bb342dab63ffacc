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


SHARE = {
    "rows": 64,
    "replicas": 2,
    "rank": 0,
    "seed": 1,
    "epoch": 0,
    "shuffle": True,
    "drop_last": False,
}


def of_loop(base: dict[str, Any] | None = None, **found: Any) -> str:
    """Judge two ranks of a loop; return the status."""
    return str(ranks.judge(base or recorded(), {**recorded(), **found})["status"])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "broken"),
        ({"rank": 1}, "holds"),
        ({"rank": 1, "seed": 2}, "broken"),
        ({"rank": 1, "epoch": 3}, "broken"),
        ({"replicas": 1}, "holds"),
        ({"rows": 8, "seed": 5}, "holds"),
    ],
    ids=["same share", "two shares", "own seed", "another epoch", "own rows", "another dataset"],
)
def test_samplers_of_a_loop_share_its_rows(changed: dict[str, Any], expected: str) -> None:
    shares = {"0": [SHARE], "1": [{**SHARE, **changed}]}
    assert of_loop(varied={"shares": shares}) == expected


def test_ranks_of_a_loop_see_each_row_once() -> None:
    both = [[f"row{2 * step}", f"row{2 * step + 1}"] * 2 for step in range(4)]
    batches = recorded(seen=both)["batches"]
    assert of_loop(batches=batches) == "broken"
    assert of_loop(recorded(seen=both), batches=batches) == "holds", "the data holds them twice"
    assert of_loop(batches=batches, data={"rows": 4}) == "holds", "the data is read again"


def test_ranks_of_a_loop_keep_equal_parameters() -> None:
    one = {"initial_parameters_sha256": {"0": "a", "1": "a"}}
    apart = {**one, "final_parameters_sha256": {"0": "b", "1": "c"}}
    assert of_loop(ranks={**one, "final_parameters_sha256": {"0": "b", "1": "b"}}) == "holds"
    assert of_loop(ranks=apart) == "broken"
    assert of_loop(ranks={"initial_parameters_sha256": {"0": "a", "1": "d"}}) == "broken"
    assert of_loop(ranks={**apart, "sharded": True}) == "not applicable"
    whole = {**recorded(), "model": {"parameters": 8}}
    assert of_loop(whole, ranks=apart, model={"parameters": 4}) == "not applicable"


def test_a_fused_optimizer_of_other_settings_is_broken() -> None:
    plain, moved = recorded(), recorded(1e-6)
    assert fused_optimizer.judge({}, plain, moved, recorded(4e-6))["status"] == "holds"
    assert fused_optimizer.judge({}, plain, moved, recorded(1e-4))["status"] == "broken"
