"""The whole report half, from an event file to comment, status and baseline."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from canary.gate.records import Manifest, Part, write_manifest
from canary.gate.report_job import plan
from canary.github.comment import parse
from canary.github.sticky import MARKER
from canary.record.types import RunRecord
from tests.contract.git_server import git
from tests.github.gatehouse import (
    BASE_CONFIG,
    Gatehouse,
    Said,
    pull_event,
    push_event,
    records_folder,
    workflow_run_event,
)
from tests.github.server import GitHub
from tests.github.turns import Turns
from tests.unit.comparing import altered

SLOW = 0.2


def test_pushes_to_the_default_branch_fill_the_baseline(house: Gatehouse) -> None:
    first, second, third = house.pushes(3)
    assert first.outputs["verdict"] == "no-baseline"
    assert [said.code for said in (first, second, third)] == [0, 0, 0]
    assert len(house.entries()) == 3
    assert git(house.bare, "rev-list", "--count", "canary-baselines") == "1"
    head = house.heads["main"]
    assert house.status(head) == (
        "success",
        "No baseline yet: 2 of 3 runs are stored. Store 1 more of the default branch.",
    )


def test_a_pull_request_gets_pending_then_comment_and_status(house: Gatehouse) -> None:
    house.baseline()
    pull = house.pull()
    house.report("pull_request", pull_event(pull, "opened", None), None, by=plan)
    assert house.status(pull.head_sha) == ("pending", "no result yet")
    said = house.judge(pull, house.run(SLOW), action="opened")
    state, description = house.status(pull.head_sha)
    (comment,) = house.comments(pull)
    assert said.code == 1
    assert said.outputs["verdict"] == "regression"
    assert state == "failure"
    assert description.startswith("Regression: median step time +100.0%")
    assert comment.body.startswith(MARKER)
    assert comment.body.splitlines()[2].startswith("**❌ Regression: median step time")
    assert said.outputs["comment-url"].endswith(f"issuecomment-{comment.id}")
    assert said.outputs["baseline-sha"] == pull.base_sha
    assert "Regression: median step time" in said.summary
    assert Path(said.outputs["report-path"], "sft_smoke", "comparison.json").exists()
    assert len(house.entries()) == 3, "a pull request never writes the baseline"


def test_the_plan_names_the_jobs_of_each_event(house: Gatehouse) -> None:
    pull = house.pull()
    assert house.plan(pull).outputs == {"jobs": "run report"}
    assert house.plan(pull, "labeled", "canary:accept").outputs == {"jobs": "run report"}
    main = push_event(house.commit())
    assert house.report("push", main, None, by=plan).outputs == {"jobs": "run record"}
    payload = {"repository": main["repository"], "ref": "refs/heads/main"}
    for task, jobs in (("bootstrap", "run record"), ("prefetch", "prefetch")):
        asked = payload | {"inputs": {"task": task}}
        head = house.heads["main"]
        said = house.report("workflow_dispatch", asked, None, by=plan, head=head)
        assert said.outputs == {"jobs": jobs}


@pytest.mark.parametrize("why", ["label", "draft", "fork"])
def test_what_asks_for_nothing_gets_one_notice_and_nothing_else(house: Gatehouse, why: str) -> None:
    pull = house.pull(
        draft=why == "draft", head_repository="mona/repo" if why == "fork" else "org/repo"
    )
    said = house.plan(pull, "labeled" if why == "label" else "opened", "bug")
    assert said.outputs == {"jobs": ""}
    assert said.log.count("::notice") == 1
    assert len(said.log.splitlines()) == 1
    assert not house.hub_repository.statuses_of(pull.head_sha)
    assert not house.comments(pull)


def test_a_commit_that_is_not_the_head_any_more_is_not_trained(house: Gatehouse) -> None:
    """Its training would begin after that of the newer commit, and cancel it."""
    pull = house.pull()
    event = pull_event(pull, "synchronize", None)
    house.push_to(pull)
    said = house.report("pull_request", event, None, by=plan)
    assert said.outputs == {"jobs": ""}
    assert said.log.count("::notice") == 1
    assert house.plan(pull, "synchronize").outputs == {"jobs": "run report"}


def test_no_run_of_another_workflow_starts_a_training(house: Gatehouse) -> None:
    """The plan of a workflow_run has the rights of the default branch."""
    pull = house.pull(head_repository="mona/repo")
    house.hub_repository.add_run(pull.head_sha, id=50, head_repository="mona/repo")
    done = workflow_run_event(pull.head_sha, 50, "mona/repo")
    said = house.report("workflow_run", done, None, by=plan)
    assert said.outputs == {"jobs": "report"}


def test_the_nightly_run_judges_the_longer_canary_where_there_is_one(house: Gatehouse) -> None:
    payload = {"schedule": "23 3 * * *"}
    sha = house.commit()
    event: dict[str, Any] = {"ref": "refs/heads/main", **payload}
    said = house.report("schedule", event, [house.run()], head=sha)
    assert said.outputs["verdict"] == "no-baseline"
    longer = BASE_CONFIG.replace("sft_smoke", "sft_nightly")
    sha = house.commit(files={"canary-nightly.yaml": longer})
    said = house.report("schedule", event, [house.run()], of="canary-nightly.yaml", head=sha)
    assert len(house.entries()) == 2
    assert "the run left no record of canary.yaml" in said.summary


def test_a_second_push_edits_the_same_comment(house: Gatehouse) -> None:
    house.baseline(5)
    pull = house.pull()
    house.judge(pull, house.run(SLOW))
    house.push_to(pull)
    said = house.judge(pull, house.run())
    (comment,) = house.comments(pull)
    assert [one.sha for one in parse(comment.body)] == [pull.head_sha]
    assert said.code == 0
    assert house.status(pull.head_sha)[0] == "success"


def test_comment_changes_leaves_the_comment_while_nothing_is_new(house: Gatehouse) -> None:
    """A red answer is written for each commit: somebody may accept it."""
    house.baseline(5)
    pull = house.pull()

    def written_for(run: RunRecord, comment: str = "changes") -> list[str]:
        house.judge(pull, run, comment=comment)
        written = [one.sha for body in house.comments(pull) for one in parse(body.body)]
        house.push_to(pull)
        return written

    assert written_for(house.run(), "never") == []
    first = pull.head_sha
    assert written_for(house.run()) == [first]
    assert written_for(house.run()) == [first]
    for _ in range(2):
        red = pull.head_sha
        assert written_for(house.run(SLOW)) == [red]
    healed = pull.head_sha
    assert written_for(house.run()) == [healed]


def test_a_502_that_was_carried_out_leaves_one_comment(house: Gatehouse, github: GitHub) -> None:
    house.baseline()
    pull = house.pull()
    github.trouble.fail("POST", "/comments", applied=True)
    github.trouble.fail("POST", "/statuses/", applied=True)
    house.judge(pull, house.run())
    assert len(house.comments(pull)) == 1
    assert len(house.hub_repository.statuses_of(pull.head_sha)) == 1


def test_a_read_only_token_is_a_notice_and_no_red_build(house: Gatehouse, github: GitHub) -> None:
    house.baseline(4)
    pull = house.pull()
    github.read_only()
    said = house.judge(pull, house.run())
    assert said.code == 0
    assert not house.comments(pull)
    assert said.log.count("::notice") == 2
    for scope in ("pull-requests: write", "statuses: write"):
        assert scope in said.log
    assert "Verdict" in said.summary


def test_a_rate_limit_is_waited_for(house: Gatehouse, github: GitHub) -> None:
    pull = house.pull()
    github.trouble.rate_limit(90, method="POST", path="/comments")
    before = github.clock.time()
    house.judge(pull, house.run())
    assert len(house.comments(pull)) == 1
    assert github.clock.time() - before >= 90


def test_a_pause_that_github_asks_for_is_made(house: Gatehouse, github: GitHub) -> None:
    pull = house.pull()
    github.trouble.slow_down(45, method="POST", path="/statuses/")
    house.judge(pull, house.run())
    assert house.status(pull.head_sha)[0] == "success"


def test_an_endless_rate_limit_is_not_waited_for(house: Gatehouse, github: GitHub) -> None:
    pull = house.pull()
    github.trouble.rate_limit(3000, times=9, method="POST", path="/comments")
    before = github.clock.time()
    said = house.judge(pull, house.run())
    assert github.clock.time() - before < 600
    assert "rate limit" in said.log
    assert not house.comments(pull)


def test_an_older_run_overwrites_nothing_of_a_newer_commit(house: Gatehouse) -> None:
    house.baseline()
    pull = house.pull()
    old = pull.head_sha
    event = pull_event(pull, "synchronize", None)
    house.push_to(pull)
    house.judge(pull, house.run())
    (comment,) = house.comments(pull)
    before = comment.body
    house.report("pull_request", event, [house.run(SLOW)])
    assert comment.body == before
    assert house.status(old)[0] == "failure"
    assert house.status(pull.head_sha)[0] == "success"


def test_an_older_run_of_the_same_commit_changes_neither_comment_nor_status(
    house: Gatehouse,
) -> None:
    house.baseline()
    pull = house.pull()
    first = house.runs
    house.judge(pull, house.run())
    house.runs, later = first - 50, house.runs
    house.judge(pull, house.run(SLOW))
    house.runs = later
    (comment,) = house.comments(pull)
    assert "Regression: " not in comment.body
    assert house.status(pull.head_sha)[0] == "success"


def test_a_run_that_died_is_an_error_on_the_commit(house: Gatehouse) -> None:
    house.baseline()
    pull = house.pull()
    house.report("pull_request", pull_event(pull, "opened", None), None, by=plan)
    said = house.judge(pull)
    assert said.code == 4
    assert house.status(pull.head_sha) == (
        "error",
        "Error: the training job left no record (read the log of that job).",
    )
    assert "left no record" in house.comments(pull)[0].body


def test_a_broken_baseline_branch_is_an_error_and_stays_as_it_is(house: Gatehouse) -> None:
    house.baseline()
    tip = house.commit("elsewhere", {"v2/sft_smoke/cpu/run.json": "{"})
    git(house.bare, "update-ref", "refs/heads/canary-baselines", tip)
    said = house.push_main(house.run())
    assert said.code == 4
    assert said.outputs["verdict"] == "error"
    assert git(house.bare, "rev-parse", "canary-baselines") == tip


def test_a_regression_on_the_default_branch_is_kept_and_not_compared_with(
    house: Gatehouse,
) -> None:
    house.baseline(4)
    said = house.push_main(house.run(SLOW))
    assert said.code == 1
    assert sum("+red" in name for name in house.entries()) == 1
    assert house.push_main(house.run()).code == 0


def test_a_ghes_is_reached_under_its_own_address(tmp_path: Path, github: GitHub) -> None:
    house = Gatehouse(tmp_path, github, ghes=True)
    house.commit()
    pull = house.pull()
    house.judge(pull, house.run())
    assert len(house.comments(pull)) == 1


def test_thresholds_come_from_the_base_branch(house: Gatehouse) -> None:
    house.baseline()
    pull = house.pull()
    said = house.judge(pull, house.run())
    (comment,) = house.comments(pull)
    assert "limits: default" in comment.body
    assert said.code == 0


def test_strict_makes_an_inconclusive_answer_block(house: Gatehouse) -> None:
    house.baseline(3)
    pull = house.pull()
    run = house.run()
    del run.exact["trajectory"]
    assert house.judge(pull, run).outputs["verdict"] == "inconclusive"
    said = house.judge(pull, run, strict="true")
    assert said.code == 3
    assert house.status(pull.head_sha)[0] == "failure"


def test_a_merge_queue_is_answered_on_its_own_commit(house: Gatehouse) -> None:
    house.baseline()
    sha, _ = house.queue(house.pull(), house.run())
    assert house.status(sha)[0] == "success"
    assert len(house.entries()) == 3


def second(house: Gatehouse, name: str) -> dict[str, Any]:
    """A second canary of that name beside the first, on the base branch."""
    house.commit(files={"second.yaml": BASE_CONFIG.replace("sft_smoke", name)})
    return {"config": "second.yaml"}


@pytest.mark.parametrize("name", ["rlhf-canary", "rlhf-canary-other"])
def test_legs_of_a_matrix_share_one_comment(house: Gatehouse, name: str) -> None:
    inputs = second(house, "other") | {"name": name}
    pull = house.pull()
    house.github.trouble.hold("POST|PATCH", "/comments", 10)

    def leg(inputs: dict[str, Any]) -> Said:
        of = inputs.get("config", "canary.yaml")
        return house.judge(pull, house.run(), of=of, jobs="2", **inputs)

    said = Turns(house.github.clock).run(*(partial(leg, given) for given in ({}, inputs)))
    assert [one.code for one in said] == [0, 0]
    (comment,) = house.comments(pull)
    other = "other" if name == "rlhf-canary" else f"other-{name}"
    assert [one.name for one in parse(comment.body)] == [other, "sft_smoke"]
    assert comment.body.splitlines()[1] == f"**🆕 no-baseline: `{other}`, `sft_smoke`**"
    contexts = {one.context for one in house.hub_repository.statuses_of(pull.head_sha)}
    assert contexts == {"rlhf-canary", name}


def test_legs_that_train_one_config_keep_their_sections(house: Gatehouse) -> None:
    """As on two kinds of GPU: the name tells them apart."""
    house.baseline()
    pull = house.pull()
    assert house.judge(pull, house.run(0.2), name="canary-a100", jobs="2").code == 1
    assert house.judge(pull, house.run(), name="canary-h100", jobs="2").code == 0
    (comment,) = house.comments(pull)
    assert [(one.name, one.verdict) for one in parse(comment.body)] == [
        ("sft_smoke-canary-a100", "regression"),
        ("sft_smoke-canary-h100", "pass"),
    ]


def test_a_run_without_records_leaves_no_section_behind(house: Gatehouse) -> None:
    pull = house.pull()
    config = "configs/canary.yaml"
    said = house.judge(pull, config=config)
    assert said.outputs["verdict"] == "error"
    house.judge(pull, house.run(), config=config, of=config)
    (comment,) = house.comments(pull)
    assert [(one.name, one.verdict) for one in parse(comment.body)] == [
        ("sft_smoke", "no-baseline")
    ]


def test_two_new_configs_of_one_long_name_have_a_report_each(house: Gatehouse) -> None:
    configs = ["one.yaml", "two.yaml"]
    pull = house.pull()
    run = house.run(SLOW).model_copy(update={"name": "x" * 230})

    def both(folder: Path) -> None:
        records_folder(folder / "records", [run])
        parts = [Part(config=one, folder=f"{at:02}-canary") for at, one in enumerate(configs)]
        source = folder / "records" / "00-canary"
        shutil.copytree(source, folder / "records" / "01-canary")
        write_manifest(folder / "records", Manifest(parts=parts))

    house.spoil = both
    said = house.judge(pull, config="\n".join(configs))
    reports = list(Path(said.outputs["report-path"]).iterdir())
    assert len(reports) == 2
    assert all(len(one.name) <= 100 for one in reports)
    assert len(parse(house.comments(pull)[0].body)) == 2


def test_two_configs_of_one_name_do_not_overwrite_each_other(house: Gatehouse) -> None:
    second(house, "sft_smoke")
    pull = house.pull()
    said = house.judge(pull, house.run(), config="canary.yaml\nsecond.yaml")
    (comment,) = house.comments(pull)
    assert len(parse(comment.body)) == 2
    assert said.code == 4, "the second left no record"


def test_the_diagnosis_names_the_line_that_the_pull_request_changed(house: Gatehouse) -> None:
    house.baseline()
    pull = house.pull()
    patch = "@@ -3,2 +3,2 @@\n name: x\n-learning_rate: 0.0005\n+learning_rate: 0.001"
    pull.patches["configs/sft.yaml"] = patch
    run = house.run()
    rates = [0.001 for _ in run.exact["trajectory"]["learning_rates"]]
    run = altered(run, "exact", "trajectory", "learning_rates", to=rates)
    said = house.judge(pull, altered(run, "config", "learning_rate", to=0.001))
    assert "::error title=RLHF Canary,file=configs/sft.yaml,line=4::" in said.log
    (comment,) = house.comments(pull)
    assert "Likely cause" in comment.body
    assert "4: learning\\_rate: 0.001" in comment.body
