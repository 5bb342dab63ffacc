"""Live detection on rows of PPO: what its trainer tells reaches the detectors by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from canary.training.anomaly.observation import Observation, from_row
from tests.unit.observing import types
from tests.unit.ppo_records import ppo

STEPS = 120
Change = Callable[[int, Any], Any]


def first_row() -> Any:
    """A row of step 1 as the canary of PPO has it."""
    exact = ppo().exact
    trajectory = exact["trajectory"]
    return {
        "step": 1,
        "loss": trajectory["losses"][0],
        "grad_norm": trajectory["grad_norms"][0],
        "learning_rate": trajectory["learning_rates"][0],
        "samples": 8,
        "rl": {name: series[0] for name, series in trajectory["rl"].items()},
    }


def test_the_metrics_of_ppo_reach_their_detectors() -> None:
    row = first_row()
    found = from_row(row)
    rl = row["rl"]
    assert (found.kl, found.entropy, found.clip_fraction) == tuple(
        rl[name] for name in ("kl", "entropy", "clip_ratio")
    )
    assert found.rewards is not None
    assert (found.rewards.mean, found.rewards.std) == (rl["reward"], rl["reward_std"])
    assert not found.kl_of_sequence, "a mean a token"
    assert found.loss == row["loss"]
    assert found.surrogate, "the loss of a policy has no level"
    assert from_row(row | {"rl": {"loss/policy_avg": 0.1}}).surrogate


def run(change: Change = lambda step, row: row, steps: int = STEPS) -> list[Observation]:
    """A healthy run that scatters about what a real step told, with something else in it."""
    start, dice = first_row(), random.Random(7)
    observations = []
    for step in range(1, steps + 1):
        rl = {name: value * (1 + 0.1 * dice.gauss(0, 1)) for name, value in start["rl"].items()}
        rl["kl"] = 0.002 * dice.gauss(0, 1)
        row = start | {
            "step": step,
            "loss": 0.05 * dice.gauss(0, 1),
            "grad_norm": 1.2 * (1 + 0.2 * dice.gauss(0, 1)),
            "rl": rl,
        }
        observations.append(from_row(change(step, row)))
    return observations


def test_a_healthy_run_raises_nothing() -> None:
    assert types(run()) == set()


def later(**values: Any) -> Change:
    """From step 80 on, metrics are these; of a function, what it makes of them."""

    def change(step: int, row: Any) -> Any:
        if step < 80:
            return row
        known = {
            name: value(row["rl"][name]) if callable(value) else value
            for name, value in values.items()
        }
        return row | {"rl": row["rl"] | known}

    return change


def values_explode(step: int, row: Any) -> Any:
    """The value loss doubles every other step, and loss and gradient with it."""
    if step < 80:
        return row
    grown = 2.0 ** ((step - 79) / 2)
    rl = row["rl"] | {"value_loss": row["rl"]["value_loss"] * grown}
    return row | {
        "rl": rl,
        "loss": row["loss"] + 0.1 * rl["value_loss"],
        "grad_norm": row["grad_norm"] * grown,
    }


def test_the_kl_of_a_preference_trainer_is_that_of_whole_completions() -> None:
    row = first_row()
    assert from_row(row | {"rl": {"kl": 4.0, "logps/chosen": -20.0}}).kl_of_sequence


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (later(kl=4.0), "kl_blowup"),
        (values_explode, "gradient_explosion"),
    ],
)
def test_what_goes_wrong_in_ppo_is_told(change: Change, wanted: str) -> None:
    assert wanted in types(run(change))


def test_a_loss_of_ppo_that_rises_is_no_divergence() -> None:
    """The value loss falls while the policy's part cancels: learning runs end with a larger sum."""

    def change(step: int, row: Any) -> Any:
        level = 0.004 if step < 80 else 0.015 if step < 115 else 0.2
        return row | {"loss": level * (1 + 0.01 * (step % 3))}

    assert types(run(change)) == set()
    of_sft = [from_row(change(n, {"step": n})) for n in range(1, STEPS + 1)]
    assert types(of_sft) == {"convergence_divergence", "loss_spike"}
