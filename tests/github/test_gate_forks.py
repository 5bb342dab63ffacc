"""The pair of workflows for forks, and acceptance by label."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.github.gatehouse import (
    FORK,
    NAME,
    Gatehouse,
    artifact,
    repository_payload,
    workflow_run_event,
)
from tests.github.server import GitHub
from tests.unit.comparing import altered

LABEL = "canary:accept"
pytestmark = pytest.mark.usefixtures("stored")


def test_a_fork_is_announced_then_answered_from_its_artifact(
    house: Gatehouse, tmp_path: Path
) -> None:
    pull = house.fork(artifact(tmp_path / "made", [house.run(0.2)]))
    asked = workflow_run_event(pull.head_sha, 50, FORK, "requested")
    house.report("workflow_run", asked, None)
    assert house.status(pull.head_sha)[0] == "pending"
    done = workflow_run_event(pull.head_sha, 50, FORK)
    said = house.report("workflow_run", done, None)
    assert said.outputs["verdict"] == "regression"
    assert house.status(pull.head_sha)[0] == "failure"
    assert len(house.comments(pull)) == 1
    assert len(house.entries()) == 4


def test_a_number_forged_in_the_artifact_changes_nothing(house: Gatehouse, tmp_path: Path) -> None:
    other = house.hub_repository.add_pull(house.commit("other"), base_sha="")
    forged = artifact(
        tmp_path / "made",
        [house.run()],
        **{"pr_number.txt": str(other.number).encode(), "event.json": b'{"number": 1}'},
    )
    pull = house.fork(forged)
    house.report("workflow_run", workflow_run_event(pull.head_sha, 50, FORK), None)
    assert not house.comments(other)
    assert len(house.comments(pull)) == 1


def test_a_first_half_that_left_nothing_is_an_error_that_names_its_end(
    house: Gatehouse,
) -> None:
    pull = house.fork(None, "failure")
    done = workflow_run_event(pull.head_sha, 50, FORK, conclusion="failure")
    house.report("workflow_run", done, None)
    state, description = house.status(pull.head_sha)
    assert state == "error"
    assert "failure" in description


def test_a_fork_that_pushed_again_keeps_its_newer_answer(house: Gatehouse, tmp_path: Path) -> None:
    pull = house.fork(artifact(tmp_path / "made", [house.run(0.2)]))
    old = pull.head_sha
    house.push_to(pull)
    house.report("workflow_run", workflow_run_event(old, 50, FORK), None)
    assert not house.comments(pull)
    assert house.status(old)[0] in ("failure", "error")


def test_a_run_of_a_branch_in_the_repository_goes_the_same_way(
    house: Gatehouse, tmp_path: Path
) -> None:
    pull = house.pull()
    run = house.hub_repository.add_run(pull.head_sha, id=51)
    content = artifact(tmp_path / "made", [house.run()])
    house.hub_repository.add_artifact(run, "rlhf-canary-records", content)
    house.report("workflow_run", workflow_run_event(pull.head_sha, 51, NAME), None)
    assert len(house.comments(pull)) == 1


@pytest.mark.parametrize("permission", ["read", "none"])
def test_pending_and_answer_of_another_base_branch_agree_in_a_private_repository(
    house: Gatehouse, tmp_path: Path, github: GitHub, permission: str
) -> None:
    house.hub_repository.private = True
    pull = house.fork(artifact(tmp_path / "made", [house.run()]))
    pull.base_branch = "release"
    asked = workflow_run_event(pull.head_sha, 50, FORK, "requested")
    github.permissions["pull_requests"] = permission
    said = house.report("workflow_run", asked, None)
    github.permissions["pull_requests"] = "write"
    statuses = house.hub_repository.statuses_of(pull.head_sha)
    assert [one.context for one in statuses] == ["rlhf-canary (release)"] * (permission == "read")
    assert ("`pull-requests: read`" in said.log) == (permission == "none")
    house.report("workflow_run", workflow_run_event(pull.head_sha, 50, FORK), None)
    left = {one.context: one.state for one in house.hub_repository.statuses}
    assert left["rlhf-canary (release)"] == "success"
    assert "pending" not in left.values()


# Acceptance.


def test_a_label_by_a_writer_after_the_answer_accepts(house: Gatehouse) -> None:
    pull, run = house.pull(), house.changed()
    assert house.judge(pull, run).outputs["verdict"] == "changed"
    state, description = house.status(pull.head_sha)
    assert (state, description[:17]) == ("failure", "Needs acceptance:")
    assert f"can set the label {LABEL}." in house.comments(pull)[0].body
    house.hub_repository.label(pull, LABEL, "ada")
    again = altered(run, "run_id", to="again")
    said = house.judge(pull, again, action="labeled", label=(LABEL, "ada"))
    assert said.code == 0
    state, description = house.status(pull.head_sha)
    assert state == "success"
    assert description.startswith("Changed and accepted (label canary:accept by ada on #1")


def test_a_label_by_someone_without_write_permission_accepts_nothing(house: Gatehouse) -> None:
    pull, run = house.pull(), house.changed()
    house.judge(pull, run)
    house.hub_repository.label(pull, LABEL, "mallory")
    said = house.judge(pull, altered(run, "run_id", to="again"))
    assert said.code == 1
    marked = house.comments(pull)[0].body.splitlines()
    (said_in,) = (number for number, line in enumerate(marked) if "mallory" in line)
    assert "mallory has no write permission" in marked[said_in]
    folded = next(number for number, line in enumerate(marked) if line.startswith("<details>"))
    assert said_in < folded


def test_a_label_set_before_the_head_was_judged_is_of_an_older_commit(house: Gatehouse) -> None:
    pull, run = house.pull(), house.changed()
    house.judge(pull, run)
    house.hub_repository.label(pull, LABEL, "ada")
    house.push_to(pull)
    said = house.judge(pull, altered(run, "run_id", to="again"))
    assert said.code == 1
    assert "remove the label and set it again" in house.comments(pull)[0].body


def test_a_label_that_was_taken_off_accepts_nothing(house: Gatehouse) -> None:
    pull, run = house.pull(), house.changed()
    house.judge(pull, run)
    house.hub_repository.label(pull, LABEL, "ada")
    house.hub_repository.unlabel(pull, LABEL, "ada")
    assert house.judge(pull, altered(run, "run_id", to="again")).code == 1


def test_a_label_does_not_accept_a_regression(house: Gatehouse) -> None:
    pull = house.pull()
    house.judge(pull, house.run(0.2))
    house.hub_repository.label(pull, LABEL, "ada")
    assert house.judge(pull, house.run(0.2)).code == 1


def test_acceptance_is_found_again_after_a_squash_merge(house: Gatehouse) -> None:
    pull, run = house.pull(), house.changed()
    house.judge(pull, run)
    house.hub_repository.label(pull, LABEL, "ada")
    sha = house.commit()
    pull.state, pull.merge_commit_sha = "closed", sha
    pull.merged = house.github.clock.stamp()
    said = house.push_main(altered(run, "run_id", to="merged"), sha=sha)
    assert said.code == 0
    assert said.outputs["verdict"] == "changed"
    assert [name for name in house.entries() if name.endswith("+accepted.json")]
    later = altered(run, "run_id", to="after")
    assert house.push_main(later).outputs["verdict"] == "no-baseline", "a new period begins"


def test_a_merge_without_acceptance_stays_red(house: Gatehouse) -> None:
    run = house.changed()
    said = house.push_main(run)
    assert said.code == 1
    assert [name for name in house.entries() if "+red" in name]


def test_a_reason_given_by_hand_begins_a_period_whatever_the_verdict(house: Gatehouse) -> None:
    said = house.dispatch(house.run(0.2), accept="a larger model")
    assert said.code == 0
    state, description = house.status(house.heads["main"])
    assert state == "success"
    assert description.startswith("Accepted (a larger model, by ada): Regression: median step")
    assert [name for name in house.entries() if name.endswith("+accepted.json")]
    assert house.push_main(house.run(0.2)).outputs["verdict"] == "no-baseline"


def test_what_is_accepted_by_hand_is_said_once(house: Gatehouse) -> None:
    house.dispatch(house.changed(), accept="a larger model")
    description = house.status(house.heads["main"])[1]
    assert description.count("ccepted (a larger model, by ada)") == 1
    assert "loss" in description


def test_of_several_runs_that_are_accepted_the_first_begins_the_period(house: Gatehouse) -> None:
    runs = [house.run(0.2) for _ in range(3)]
    house.dispatch(*runs, task="bootstrap", accept="another machine")
    assert sum(name.endswith("+accepted.json") for name in house.entries()) == 1
    assert house.push_main(house.run(0.2)).outputs["verdict"] == "pass"


def test_a_reason_given_by_hand_on_another_branch_accepts_nothing(house: Gatehouse) -> None:
    sha, before = house.commit("other"), house.entries()
    inputs = {"accept": "let me in"}
    payload = {"repository": repository_payload(), "ref": "refs/heads/other", "inputs": inputs}
    house.report("workflow_dispatch", payload, [house.changed()], head=sha)
    assert house.entries() == before
    assert not house.hub_repository.statuses_of(sha)
