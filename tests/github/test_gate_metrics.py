"""Gates on metrics on a pull request: the base branch has them, and the comment shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.record.types import RunRecord
from tests.github.gatehouse import BASE_CONFIG, Gatehouse
from tests.github.server import GitHub
from tests.unit.gating import imported, with_curve

GATES = "metrics:\n  - {name: reward, limit: 5%}\n"


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    """The default branch gates the mean reward, and three of its runs are stored."""
    made = Gatehouse(tmp_path, github)
    made.commit(files={"canary.yaml": BASE_CONFIG + GATES})
    runs = [rewarded(made, mean) for mean in (1.0, 1.01, 0.99)]
    made.store(*runs, files={"canary.yaml": BASE_CONFIG + GATES})
    return made


def rewarded(house: Gatehouse, mean: float) -> RunRecord:
    """A run whose rewards are these, and whose config gates them."""
    run = with_curve(house.run(), [mean] * 20, "reward")
    gates = [{"name": "reward", "limit": "5%"}]
    return run.model_copy(update={"config": run.config | {"metrics": gates}})


def test_a_worse_reward_fails_the_pull_request_and_the_comment_says_why(house: Gatehouse) -> None:
    pull = house.pull()
    said = house.judge(pull, rewarded(house, 0.8))
    assert said.outputs["verdict"] == "regression"
    (comment,) = house.comments(pull)
    said_why = "mean reward over all steps 1 -> 0.8 (-20.0%), limit 5%, more than noise explains"
    assert said_why in comment.body
    assert "metrics.reward.mean" in comment.body
    state, words = house.status(pull.head_sha)
    assert state == "failure"
    assert "mean reward" in words


def test_an_equal_reward_passes(house: Gatehouse) -> None:
    said = house.judge(house.pull(), rewarded(house, 1.0))
    assert said.outputs["verdict"] == "pass"


def test_a_pull_request_cannot_drop_or_loosen_its_gate(house: Gatehouse) -> None:
    dropped = rewarded(house, 0.8)
    dropped = dropped.model_copy(update={"config": dropped.config | {"metrics": []}})
    loosened = [{"name": "reward", "limit": "90%"}]
    loose = rewarded(house, 0.8)
    loose = loose.model_copy(update={"config": loose.config | {"metrics": loosened}})
    for run in (dropped, loose):
        assert house.judge(house.pull(), run).outputs["verdict"] == "regression"


def test_a_pull_request_that_hides_the_curve_does_not_pass(house: Gatehouse) -> None:
    hidden = rewarded(house, 0.8).model_copy(update={"curves": {}})
    pull = house.pull()
    assert house.judge(pull, hidden).outputs["verdict"] == "regression"
    assert house.status(pull.head_sha)[0] == "failure"


def test_a_run_that_claims_to_be_imported_does_not_evade_the_exact_lane(house: Gatehouse) -> None:
    claims = imported(rewarded(house, 1.0))
    said = house.judge(house.pull(), claims)
    assert said.outputs["verdict"] == "error"
