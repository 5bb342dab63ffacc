"""A broken resume names what the checkpoint lacks."""

from __future__ import annotations

from typing import Any

import pytest

from canary.relations import resume

LOSSES = [2.0, 1.9, 1.8, 1.7, 1.6, 1.5]
NORMS = [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
RATES = [6e-4, 5e-4, 4e-4, 3e-4, 2e-4, 1e-4]


def recorded(first: int = 1, **changed: dict[int, float]) -> dict[str, Any]:
    """The launch from step `first` on; `changed`: other values by step."""
    found = {}
    for name, values in (("losses", LOSSES), ("grad_norms", NORMS), ("learning_rates", RATES)):
        line = [changed.get(name, {}).get(at, value) for at, value in enumerate(values, start=1)]
        found[name] = line[first - 1 :]
    rows = [[{"rows": {"input_ids": [f"row{step}"]}}] for step in range(first, 7)]
    return {"trajectory": found, "batches": rows}


def test_equal_launches_hold() -> None:
    assert resume.judge(recorded(), recorded(), recorded(4))["status"] == "holds"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"learning_rates": {4: 6e-4}, "losses": {5: 1.65}}, "the scheduler was not restored"),
        ({"losses": {4: 1.75, 5: 1.65}}, "random states (dropout) or some parameters"),
        ({"losses": {5: 1.65}, "grad_norms": {5: 0.3}}, "the state of the optimizer"),
        ({"grad_norms": {4: 0.5}, "losses": {5: 1.65}}, "a gradient scaler"),
    ],
)
def test_what_was_lost_is_named(changed: dict[str, dict[int, float]], words: str) -> None:
    found = resume.judge(recorded(), recorded(), recorded(4, **changed))
    assert found["status"] == "broken"
    assert words in found["message"]


def test_other_rows_come_first() -> None:
    resumed = recorded(4, losses={4: 1.75})
    resumed["batches"] = recorded()["batches"]
    found = resume.judge(recorded(), recorded(), resumed)
    assert found["status"] == "broken"
    assert "the position in the data was not restored" in found["message"]
