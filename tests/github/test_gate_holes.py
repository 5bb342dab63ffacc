"""Ways around the gate, and ways to leave a commit without an answer: each was open once."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from canary.gate.records import Manifest, Part, write_manifest
from canary.gate.report_job import plan
from tests.contract.git_server import git
from tests.github.gatehouse import (
    BASE_CONFIG,
    CONFIG,
    FORK,
    Gatehouse,
    artifact,
    pull_event,
    records_folder,
    workflow_run_event,
)
from tests.github.server import GitHub

LABEL = "canary:accept"
SLOW = 0.2
pytestmark = pytest.mark.usefixtures("stored")


# Acceptance.


@pytest.mark.parametrize("comment", ["always", "changes", "never"])
def test_a_label_does_not_serve_a_commit_that_is_pushed_back(
    house: Gatehouse, comment: str
) -> None:
    pull = house.pull()
    evil = pull.head_sha
    house.judge(pull, house.changed("one"), comment=comment)
    house.push_to(pull)
    house.judge(pull, house.changed("two"), comment=comment)
    house.hub_repository.label(pull, LABEL, "ada")
    labelled: dict[str, Any] = {"action": "labeled", "label": (LABEL, "ada"), "comment": comment}
    assert house.judge(pull, house.changed("three"), **labelled).code == 0
    pull.head_sha = evil
    assert house.judge(pull, house.changed("four"), comment=comment).code == 1
    assert house.judge(pull, house.changed("five"), comment=comment).code == 1
    assert house.status(evil)[0] == "failure"


def test_an_accepted_commit_stays_accepted_when_its_run_is_repeated(house: Gatehouse) -> None:
    pull = house.pull()
    house.judge(pull, house.changed("one"))
    house.hub_repository.label(pull, LABEL, "ada")
    assert house.judge(pull, house.changed("two")).code == 0, "the fork pair has no label event"
    assert house.judge(pull, house.changed("three")).code == 0


def test_acceptance_is_found_after_a_merge_with_statuses_alone(house: Gatehouse) -> None:
    only: dict[str, Any] = {"comment": "never"}
    pull = house.pull()
    house.judge(pull, house.changed("one"), **only)
    house.hub_repository.label(pull, LABEL, "ada")
    labelled = {"action": "labeled", "label": (LABEL, "ada"), **only}
    assert house.judge(pull, house.changed("two"), **labelled).code == 0
    sha = house.commit()
    pull.state, pull.merge_commit_sha = "closed", sha
    pull.merged = house.github.clock.stamp()
    assert house.push_main(house.changed("three"), sha=sha, **only).code == 0


# One commit, several pull requests.


def test_a_pull_request_into_a_looser_branch_does_not_turn_another_green(house: Gatehouse) -> None:
    loose = house.commit("loose", {"canary.yaml": BASE_CONFIG + "thresholds: {base_tier: smoke}\n"})
    pull = house.pull()
    house.judge(pull, house.run(SLOW))
    other = house.hub_repository.add_pull(pull.head_sha, base_sha=loose)
    other.base_branch = "loose"
    house.judge(other, house.run())
    assert house.status(pull.head_sha)[0] == "failure"
    contexts = {one.context for one in house.hub_repository.statuses_of(pull.head_sha)}
    assert contexts == {"rlhf-canary", "rlhf-canary (loose)"}


def test_of_two_pull_requests_of_a_fork_the_one_into_the_default_branch_is_judged(
    house: Gatehouse, tmp_path: Path
) -> None:
    bare = house.hub_repository.add_commit({}, branch="pages")
    main = house.pull(head_repository=FORK)
    other = house.hub_repository.add_pull(main.head_sha, base_sha=bare, head_repository=FORK)
    other.base_branch = "pages"
    house.hub_repository.pulls = {1: other, 2: main}
    other.number, main.number = 1, 2
    run = house.hub_repository.add_run(main.head_sha, id=50, head_repository=FORK)
    content = artifact(tmp_path / "made", [house.run(SLOW)])
    house.hub_repository.add_artifact(run, "rlhf-canary-records", content)
    house.report("workflow_run", workflow_run_event(main.head_sha, 50, FORK), None)
    assert house.status(main.head_sha)[0] == "failure"
    assert len(house.comments(main)) == 1
    assert not house.comments(other)


# Nothing that was not judged is green.


def test_a_base_commit_that_github_does_not_find_is_no_new_config(
    house: Gatehouse, github: GitHub
) -> None:
    pull = house.pull()
    said = "No commit found for the ref"
    github.trouble.fail("GET", "/contents/", times=9, status=404, message=said)
    assert house.judge(pull, house.run(SLOW)).outputs["verdict"] == "error"


@pytest.mark.spread(1)
@pytest.mark.parametrize("other", ["processor", "ranks"])
def test_a_run_on_another_machine_is_no_first_run(house: Gatehouse, other: str) -> None:
    run = house.run(5.0)
    if other == "processor":
        run.env["cpu"] = "another processor"
    else:
        run.env["world_size"] = 2
    said = house.judge(house.pull(), run)
    assert said.outputs["verdict"] == "error"
    assert "the baseline ran on" in said.log


def test_records_of_a_run_that_failed_later_are_not_believed(
    house: Gatehouse, tmp_path: Path
) -> None:
    pull = house.fork(artifact(tmp_path / "made", [house.run()]))
    event = workflow_run_event(pull.head_sha, 50, FORK, conclusion="cancelled")
    house.report("workflow_run", event, None)
    assert house.status(pull.head_sha)[0] == "error"
    assert "cancelled" in house.status(pull.head_sha)[1]


def test_records_of_another_comparison_than_the_workflow_asks_for_are_refused(
    house: Gatehouse,
) -> None:
    said = house.judge(house.pull(), house.run(), compare="ab")
    assert said.outputs["verdict"] == "error"
    assert "the training job has compare: baseline, the reporting job has compare: ab" in said.log


def test_a_record_that_claims_more_steps_than_it_has_is_an_error(house: Gatehouse) -> None:
    run = house.run()
    run.stability.loss_values = run.stability.loss_values[:10]
    assert house.judge(house.pull(), run).outputs["verdict"] == "error"


# Every commit gets its answer.


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("exact", "batches"), [{"shapes": 5}]),
        (("config", "description"), "\ud800"),
        (("stability", "nan_steps"), 10**400),
        (("exact", "frozen"), ["x"]),
        (("exact", "data"), {"tokenizer": "x"}),
    ],
)
def test_a_record_that_cannot_be_compared_ends_in_an_error_on_the_commit(
    house: Gatehouse, path: tuple[str, str], value: object
) -> None:
    pull = house.pull()
    run = house.run()
    house.judge(pull, house.run())
    said = house.judge_raw(pull, run, path, value)
    assert said.code in (1, 4)
    assert house.status(pull.head_sha)[0] in ("error", "failure"), "no stale success"


@pytest.mark.spread(1)
@pytest.mark.parametrize("broken", ["deflate", "name", "short"])
def test_a_broken_archive_ends_in_an_error_on_the_commit(
    house: Gatehouse, tmp_path: Path, broken: str
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("gate.json", b"{}" * 2000)
    content = bytearray(buffer.getvalue())
    if broken == "deflate":
        content[45:60] = b"\xff" * 15
    elif broken == "name":
        content[30:33] = b"\xff\xfe\xfd"
    else:
        content = content[:40] + content[60:]
    pull = house.fork(bytes(content))
    house.report("workflow_run", workflow_run_event(pull.head_sha, 50, FORK), None)
    assert house.status(pull.head_sha)[0] == "error"


def test_not_knowing_ones_own_login_does_not_cost_the_answer(
    house: Gatehouse, github: GitHub
) -> None:
    pull = house.pull()
    github.trouble.fail("GET", "/user$", times=20, status=None)
    house.judge(pull, house.run())
    assert house.status(pull.head_sha)[0] == "success"
    assert len(house.comments(pull)) == 1


def test_a_missing_baseline_branch_is_told_from_one_with_few_runs(house: Gatehouse) -> None:
    git(house.bare, "update-ref", "-d", "refs/heads/canary-baselines")
    said = house.judge(house.pull(), house.run())
    assert "branch canary-baselines holds no runs yet" in said.summary


def test_a_merge_queue_finds_the_acceptance_of_its_pull_request(house: Gatehouse) -> None:
    pull = house.pull()
    house.judge(pull, house.changed("one"))
    house.hub_repository.label(pull, LABEL, "ada")
    assert house.judge(pull, house.changed("two")).code == 0
    sha, said = house.queue(pull, house.changed("three"))
    assert said.code == 0
    assert house.status(sha)[0] == "success"


def test_every_leg_of_a_matrix_sees_the_label_that_began_it(house: Gatehouse) -> None:
    house.commit(files={"second.yaml": BASE_CONFIG.replace("sft_smoke", "other")})
    pull = house.pull()
    house.judge(pull, house.changed("one"))
    house.hub_repository.label(pull, LABEL, "ada")
    event = pull_event(pull, "labeled", (LABEL, "ada"))
    second: dict[str, Any] = {"config": "second.yaml", "name": "rlhf-canary-other"}
    house.report("pull_request", event, [house.run()], of="second.yaml", **second)
    assert house.report("pull_request", event, [house.changed("two")]).code == 0


def test_records_that_say_they_ended_early_and_hold_every_config_are_an_error(
    house: Gatehouse, tmp_path: Path
) -> None:
    """What ended early says so before the last config is done."""
    made = tmp_path / "made"
    records_folder(made, [house.run()])
    manifest = Manifest(error="no GPU", parts=[Part(config=CONFIG, folder="00-canary")])
    write_manifest(made, manifest)
    pull = house.pull()

    def forged(folder: Path) -> None:
        shutil.copy(made / "gate.json", folder / "records" / "gate.json")

    house.spoil = forged
    house.judge(pull, house.run())
    assert house.status(pull.head_sha)[0] == "error"


def test_a_branch_that_leaves_out_stored_runs_is_no_first_run(house: Gatehouse) -> None:
    """Twice as slow, on a branch cut where the baseline had two of its three runs."""
    git(house.bare, "update-ref", "-d", "refs/heads/canary-baselines")
    house.baseline(2)
    pull = house.pull()
    house.baseline(1)
    house.judge(pull, house.run(0.2))
    state, description = house.status(pull.head_sha)
    assert state == "error"
    assert "too old" in description


def test_a_record_named_as_a_stored_run_is_refused(house: Gatehouse) -> None:
    """It would take that run out of what it is compared with."""
    stored = [house.run() for _ in range(3)]
    house.store(*stored)
    pull = house.pull()
    mine = house.run(0.2).model_copy(update={"run_id": stored[-1].run_id})
    said = house.judge(pull, mine)
    assert said.outputs["verdict"] == "error"
    assert "is on both sides" in said.log


def test_the_token_goes_to_no_address_that_an_answer_names(
    house: Gatehouse, github: GitHub, tmp_path: Path
) -> None:
    pull = house.pull(head_repository=FORK)
    run = house.hub_repository.add_run(pull.head_sha, id=50, head_repository=FORK)
    content = artifact(tmp_path / "made", [house.run()])
    number = house.hub_repository.add_artifact(run, "rlhf-canary-records", content).id
    listed = {
        "total_count": 1,
        "artifacts": [
            {
                "id": number,
                "name": "rlhf-canary-records",
                "expired": False,
                "archive_download_url": f"{github.blobs}/zip",
            }
        ],
    }
    github.trouble.answers("GET", "/artifacts$", listed)
    house.report("workflow_run", workflow_run_event(pull.head_sha, 50, FORK), None)
    assert house.status(pull.head_sha)[0] == "success"


def test_a_rate_limit_with_odd_headers_is_waited_for(house: Gatehouse, github: GitHub) -> None:
    pull = house.pull()
    value = "\u00b2"
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": value, "retry-after": value}
    github.trouble.fail(
        "POST", "/statuses/", status=403, message="API rate limit exceeded", headers=headers
    )
    house.judge(pull, house.run())
    assert house.status(pull.head_sha)[0] == "success"


def test_a_repository_that_lists_no_branch_at_all_is_no_first_run(house: Gatehouse) -> None:
    """An empty page of the server looks so to git."""
    pull = house.pull()
    shutil.rmtree(house.bare)
    git(house.root, "init", "-q", "--bare", str(house.bare))
    house.judge(pull, house.run())
    assert house.status(pull.head_sha)[0] == "error"


def test_pending_knows_the_base_branch_from_the_event_where_the_token_may_not_look(
    house: Gatehouse, github: GitHub
) -> None:
    house.hub_repository.private = True
    github.permissions["pull_requests"] = "none"
    pull = house.pull()
    pull.base_branch = "release"
    house.report("pull_request", pull_event(pull, "opened", None), None, by=plan)
    (status,) = house.hub_repository.statuses_of(pull.head_sha)
    assert (status.context, status.state) == ("rlhf-canary (release)", "pending")
