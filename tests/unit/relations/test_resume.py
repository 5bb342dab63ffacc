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
    assert resume.judge(recorded(), recorded(), recorded(5))["status"] == "holds"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"learning_rates": {5: 6e-4}, "losses": {6: 1.65}},
            "the scheduler, or the rate in the optimizer, was not restored",
        ),
        ({"losses": {5: 1.75, 6: 1.65}}, "random states (dropout) or some parameters were not"),
        ({"losses": {6: 1.65}, "grad_norms": {6: 0.3}}, "the state of the optimizer"),
        ({"grad_norms": {5: 0.5}, "losses": {6: 1.65}}, "a gradient scaler"),
    ],
)
def test_what_was_lost_is_named(changed: dict[str, dict[int, float]], words: str) -> None:
    found = resume.judge(recorded(), recorded(), recorded(5, **changed))
    assert found["status"] == "broken"
    assert words in found["message"]


def test_other_rows_come_first() -> None:
    resumed = recorded(5, losses={5: 1.75})
    resumed["batches"] = recorded()["batches"]
    found = resume.judge(recorded(), recorded(), resumed)
    assert found["status"] == "broken"
    assert "the position in the data was not restored" in found["message"]


def test_completions_that_are_sampled_again_are_undecided() -> None:
    whole, resumed = recorded(), recorded(5)
    for launch, first in ((whole, 1), (resumed, 5)):
        for step, (micro,) in enumerate(launch["batches"], start=first):
            micro["rows"] = {"prompt_ids": [f"p{step}"], "completion_ids": [f"c{step}-{first}"]}
    found = resume.judge(whole, whole, resumed)
    assert (found["status"], found["place"]) == ("undecided", "update 5")


def test_a_trainer_that_does_not_resume_is_not_judged() -> None:
    """As the canary's own PPO, which always starts from the beginning."""
    found = resume.judge(recorded(), recorded(), recorded())
    assert found["status"] == "not applicable"
    assert "begins anew" in found["message"]


def by_itself(at: int) -> dict[str, Any]:
    """The launch that saved a checkpoint by itself after an update, and was killed."""
    found = recorded()
    for name, line in found["trajectory"].items():
        found["trajectory"][name] = line[:at]
    return found | {"batches": found["batches"][:at], "varied": {"saved_at": at, "saved": ["x.pt"]}}


@pytest.mark.parametrize("at", [2, 5])
def test_a_loop_goes_on_after_its_own_checkpoint(at: int) -> None:
    found = resume.judge(recorded(), by_itself(at), recorded(at + 1))
    assert found["status"] == "holds"
    assert found["message"] == f"losses and gradient norms of updates {at + 1} to 6 are equal"


def test_a_loop_may_go_on_from_an_older_checkpoint() -> None:
    found = resume.judge(recorded(), by_itself(4), recorded(3))
    assert found["status"] == "holds"
    assert "updates 3 to 6" in found["message"]


def test_a_loop_that_begins_anew_is_not_judged() -> None:
    found = resume.judge(recorded(), by_itself(2), recorded())
    assert found["status"] == "not applicable"
    assert "begins anew" in found["message"]


def test_a_resumed_loop_that_reads_its_data_again_is_broken() -> None:
    again = recorded(3)
    again["batches"] = recorded()["batches"]
    found = resume.judge(recorded(), by_itself(2), again)
    assert (found["status"], found["place"]) == ("broken", "update 3")
    assert found["message"].startswith("the rows of update 1 come again")


def test_a_command_that_never_repeats_itself_is_undecided() -> None:
    other = by_itself(2)
    other["trajectory"]["losses"][1] = 1.95
    found = resume.judge(recorded(), other, recorded(3))
    assert (found["status"], found["place"]) == ("undecided", "update 2")
