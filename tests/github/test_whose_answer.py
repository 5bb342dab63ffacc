"""Whose answer stands on a commit that two pull requests share, and what an acceptance needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canary.gate.report_job import plan
from tests.github.gatehouse import (
    BASE_CONFIG,
    NAME,
    Gatehouse,
    Said,
    artifact,
    pull_event,
    workflow_run_event,
)
from tests.github.server import GitHub
from tests.github.state import Pull

FORK, STRANGER = "mona/repo", "stranger/repo"
LABEL = "canary:accept"
pytestmark = pytest.mark.usefixtures("stored")


# Acceptance needs an answer on that head, older than the label.


CHANNELS = [{}, {"comment": "never", "status": "false"}]


@pytest.mark.parametrize("inputs", CHANNELS, ids=str)
def test_a_label_that_comes_just_after_a_push_accepts_nothing(
    house: Gatehouse, inputs: dict[str, str]
) -> None:
    pull = house.pull()
    house.judge(pull, house.changed(), **inputs)
    house.push_to(pull)
    house.report("pull_request", pull_event(pull, "synchronize", None), None, by=plan, **inputs)
    house.hub_repository.label(pull, LABEL, "ada")
    said = house.judge(pull, house.changed(), action="labeled", label=(LABEL, "ada"), **inputs)
    assert said.code == 1
    assert said.outputs["verdict"] == "changed"


@pytest.mark.parametrize("inputs", CHANNELS, ids=str)
def test_a_label_where_nothing_was_ever_judged_accepts_nothing(
    house: Gatehouse, inputs: dict[str, str]
) -> None:
    pull = house.pull()
    house.hub_repository.label(pull, LABEL, "ada")
    said = house.judge(pull, house.changed(), action="labeled", label=(LABEL, "ada"), **inputs)
    assert said.code == 1
    expected = "by hand" if "status" in inputs and "comment" in inputs else "set it again"
    assert expected in said.summary


@pytest.mark.parametrize("inputs", [{"status": "false"}, {"comment": "never"}])
def test_a_label_after_the_answer_accepts_wherever_the_answer_is(
    house: Gatehouse, inputs: dict[str, str]
) -> None:
    pull = house.pull()
    house.judge(pull, house.changed(), **inputs)
    house.hub_repository.label(pull, LABEL, "ada")
    said = house.judge(pull, house.changed(), action="labeled", label=(LABEL, "ada"), **inputs)
    assert said.code == 0


def test_an_error_is_no_judgement_that_a_label_could_accept(house: Gatehouse) -> None:
    pull = house.pull()
    assert house.judge(pull).outputs["verdict"] == "error"
    house.hub_repository.label(pull, LABEL, "ada")
    said = house.judge(pull, house.changed(), action="labeled", label=(LABEL, "ada"))
    assert said.code == 1


def test_an_answer_in_the_same_second_as_the_label_is_not_older(house: Gatehouse) -> None:
    pull = house.pull()
    house.judge(pull, house.changed())
    house.hub_repository.label(pull, LABEL, "ada")
    (event,), (comment,) = pull.events, house.comments(pull)
    comment.updated = event.created
    for status in house.hub_repository.statuses:
        status.created = event.created
    labelled: dict[str, Any] = {"action": "labeled", "label": (LABEL, "ada")}
    assert house.judge(pull, house.changed(), **labelled).code == 1


def test_a_comment_by_another_that_says_accepted_accepts_nothing(house: Gatehouse) -> None:
    pull = house.pull()
    house.judge(pull, house.changed(), status="false")
    forged = house.comments(pull)[0].body.replace('"accepted":false', '"accepted":true')
    assert forged != house.comments(pull)[0].body
    house.hub_repository.comments.clear()
    house.hub_repository.add_comment(pull.number, forged, "mallory")
    house.hub_repository.label(pull, LABEL, "ada")
    assert house.judge(pull, house.changed(), status="false").code == 1


def test_a_canarys_own_name_cannot_say_that_it_was_accepted(house: Gatehouse) -> None:
    house.hub_repository.label(pull := house.pull(), LABEL, "ada")
    name = "Changed and accepted ("
    both: dict[str, Any] = {"comment": "never", "config": "canary.yaml\nnew.yaml"}
    house.judge(pull, house.run().model_copy(update={"name": name}), of="new.yaml", **both)
    assert house.judge(pull, house.changed(), comment="never").code == 1


def test_acceptance_is_found_under_the_status_of_another_base_branch(house: Gatehouse) -> None:
    pull = house.pull()
    pull.base_branch = "release"
    house.judge(pull, house.changed(), comment="never")
    house.hub_repository.label(pull, LABEL, "ada")
    labelled: dict[str, Any] = {"action": "labeled", "label": (LABEL, "ada"), "comment": "never"}
    assert house.judge(pull, house.changed(), **labelled).code == 0
    assert house.judge(pull, house.changed(), comment="never").code == 0


@pytest.fixture
def two(house: Gatehouse) -> dict[str, Any]:
    """Inputs of a second job of a matrix, with a baseline of its own."""
    text = BASE_CONFIG.replace("sft_smoke", "two_smoke")
    runs = [house.run().model_copy(update={"name": "two_smoke"}) for _ in range(4)]
    house.store(*runs, files={"two.yaml": text})
    return {"config": "two.yaml", "of": "two.yaml", "name": "two"}


def test_a_label_after_one_jobs_answer_accepts_nothing_of_another_job(
    house: Gatehouse, two: dict[str, Any]
) -> None:
    pull = house.pull()
    house.judge(pull, house.run(), name="one")
    house.hub_repository.label(pull, LABEL, "ada")
    assert house.judge(pull, house.changed(), **two).code == 1
    house.hub_repository.label(pull, LABEL, "ada")
    assert house.judge(pull, house.changed(), **two).code == 0


def test_a_change_that_one_job_has_accepted_accepts_nothing_of_another_job(
    house: Gatehouse, two: dict[str, Any]
) -> None:
    pull = house.pull()
    first: dict[str, Any] = {"name": "one"}
    house.judge(pull, house.changed(), **first)
    house.hub_repository.label(pull, LABEL, "ada")
    labelled: dict[str, Any] = {"action": "labeled", "label": (LABEL, "ada")}
    assert house.judge(pull, house.changed(), **first, **labelled).code == 0
    assert house.judge(pull, house.changed(), **two, **labelled).code == 1


def test_a_label_holds_for_no_canary_of_the_job_until_each_was_judged(
    house: Gatehouse, two: dict[str, Any]
) -> None:
    pull = house.pull()
    both = {"config": "canary.yaml\ntwo.yaml"}
    house.judge(pull, house.run(), **both)
    assert "two.yaml" in house.comments(pull)[0].body
    house.hub_repository.label(pull, LABEL, "ada")
    assert house.judge(pull, house.changed(), **{**both, "of": "two.yaml"}).code != 0
    assert "set it again" in house.comments(pull)[0].body


# A stranger's pull request with the same head commit.


class Fork:
    """The pair of workflows for one head repository."""

    def __init__(self, house: Gatehouse, name: str, tmp_path: Path) -> None:
        self.house, self.name, self.root = house, name, tmp_path
        self.count = 0

    def open(self, sha: str, author: str = "") -> Pull:
        author = author or self.name.partition("/")[0]
        base = self.house.hub_repository.branches["main"]
        repository = self.house.hub_repository
        return repository.add_pull(sha, head_repository=self.name, author=author, base_sha=base)

    def ask(self, sha: str, **inputs: Any) -> Said:
        event = workflow_run_event(sha, 1, self.name, "requested")
        return self.house.report("workflow_run", event, None, **inputs)

    def end(self, sha: str, time: float = 0.1, conclusion: str = "success", **inputs: Any) -> Said:
        run = self.house.hub_repository.add_run(
            sha, head_repository=self.name, conclusion=conclusion
        )
        if conclusion == "success":
            self.count += 1
            folder = self.root / f"{self.name.replace('/', '-')}-{self.count}"
            content = artifact(folder, [self.house.run(time)])
            self.house.hub_repository.add_artifact(run, "rlhf-canary-records", content)
        event = workflow_run_event(sha, run.id, self.name, conclusion=conclusion)
        return self.house.report("workflow_run", event, None, **inputs)


@pytest.fixture
def victim(house: Gatehouse, tmp_path: Path) -> Fork:
    return Fork(house, FORK, tmp_path)


@pytest.fixture
def stranger(house: Gatehouse, tmp_path: Path) -> Fork:
    return Fork(house, STRANGER, tmp_path)


def test_a_strangers_run_touches_no_answer_on_a_commit_of_the_repository(
    house: Gatehouse, stranger: Fork
) -> None:
    pull = house.pull()
    house.judge(pull, house.run())
    other = stranger.open(pull.head_sha)
    body = house.comments(pull)[0].body
    stranger.ask(pull.head_sha)
    assert house.status(pull.head_sha)[0] == "success"
    said = stranger.end(pull.head_sha, conclusion="cancelled")
    assert house.status(pull.head_sha)[0] == "success"
    assert NAME in said.log
    stranger.end(pull.head_sha)
    assert house.comments(pull)[0].body == body
    assert len(house.comments(other)) == 1


def test_a_stranger_turns_nothing_green(house: Gatehouse, stranger: Fork) -> None:
    pull = house.pull()
    house.judge(pull, house.run(0.2))
    stranger.open(pull.head_sha)
    stranger.end(pull.head_sha)
    assert house.status(pull.head_sha)[0] == "failure"


@pytest.mark.parametrize("ended", [True, False])
def test_a_stranger_who_came_first_is_replaced_by_the_repositorys_own_run(
    house: Gatehouse, stranger: Fork, ended: bool
) -> None:
    pull = house.pull()
    stranger.open(pull.head_sha)
    house.runs += 50
    stranger.ask(pull.head_sha)
    if ended:
        stranger.end(pull.head_sha, conclusion="cancelled")
    house.runs -= 50
    house.judge(pull, house.run())
    house.runs += 50
    assert house.status(pull.head_sha)[0] == "success"
    stranger.ask(pull.head_sha)
    assert house.status(pull.head_sha)[0] == "success"


@pytest.mark.parametrize(("first", "author"), [("victim", None), ("stranger", "mona")])
def test_of_two_forks_the_commits_author_has_the_word_then_the_older_pull_request(
    house: Gatehouse, victim: Fork, stranger: Fork, first: str, author: str | None
) -> None:
    sha = house.commit("shared")
    house.hub_repository.commits[sha].author = author
    if author:  # The stranger's pull request may be the older one: it was pushed to later.
        stranger.open(sha)
    victim.open(sha)
    if not author:
        stranger.open(sha)
    order = [victim, stranger] if first == "victim" else [stranger, victim]
    for fork in order:
        fork.ask(sha)
        if fork is victim:
            fork.end(sha)
        else:
            fork.end(sha, conclusion="cancelled")
    assert house.status(sha)[0] == "success"
    stranger.ask(sha)
    assert house.status(sha)[0] == "success"


def test_a_stranger_whose_fork_is_gone_touches_no_answer(house: Gatehouse, victim: Fork) -> None:
    sha = house.commit("shared")
    pull = victim.open(sha)
    victim.end(sha)
    event = workflow_run_event(sha, 1, STRANGER, conclusion="cancelled")
    event["workflow_run"]["head_repository"] = None
    house.report("workflow_run", event, None)
    assert house.status(sha)[0] == "success"
    assert "cancelled" not in house.comments(pull)[0].body


def test_a_run_without_a_pull_request_of_its_own_writes_into_no_other(
    house: Gatehouse, stranger: Fork
) -> None:
    pull = house.pull()
    house.judge(pull, house.run())
    body = house.comments(pull)[0].body
    stranger.end(pull.head_sha, time=0.2)
    assert house.comments(pull)[0].body == body
    assert house.status(pull.head_sha)[0] == "success"


def test_a_pull_request_that_takes_over_the_commit_of_a_closed_one_is_answered(
    house: Gatehouse, victim: Fork, stranger: Fork
) -> None:
    sha = house.commit("shared")
    closed = victim.open(sha)
    victim.end(sha, conclusion="cancelled")
    closed.state = "closed"
    stranger.open(sha)
    stranger.end(sha)
    assert house.status(sha)[0] == "success"


def test_a_strangers_pull_request_into_another_branch_has_a_status_of_its_own(
    house: Gatehouse, stranger: Fork
) -> None:
    pull = house.pull()
    house.judge(pull, house.run())
    other = stranger.open(pull.head_sha)
    other.base_branch = "release"
    stranger.ask(pull.head_sha)
    stranger.end(pull.head_sha, conclusion="cancelled")
    assert house.status(pull.head_sha)[0] == "success"
    states = {
        one.context: one.state for one in reversed(house.hub_repository.statuses_of(pull.head_sha))
    }
    assert states == {"rlhf-canary": "success", "rlhf-canary (release)": "error"}


def test_a_strangers_status_in_the_same_moment_is_taken_back(
    house: Gatehouse, stranger: Fork, github: GitHub
) -> None:
    """The stranger's run looked before the answer was there, and wrote after it."""
    pull = house.pull()
    stranger.open(pull.head_sha)
    github.trouble.before("POST", "/statuses/", lambda: house.judge(pull, house.run()))
    stranger.end(pull.head_sha, conclusion="cancelled")
    assert house.status(pull.head_sha)[0] == "success"


def test_what_is_taken_back_covers_no_answer_that_came_meanwhile(
    house: Gatehouse, stranger: Fork, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger's run covers `pending`, and has to wait before it can set it again."""
    pull = house.pull()
    stranger.open(pull.head_sha)
    event = pull_event(pull, "opened", None)
    posts: list[str] = []

    def limited() -> None:
        posts.append("the restoring one")
        github.trouble.slow_down(60, method="POST", path="/statuses/")

    def ask() -> None:
        house.report("pull_request", event, None, by=plan)
        # Its own request is still to come: the next POST but one restores.
        github.trouble.before("POST", "/statuses/", limited)

    rest = github.clock.sleep

    def meanwhile(seconds: float) -> None:
        rest(seconds)
        if seconds >= 50 and posts:
            posts.clear()
            house.judge(pull, house.run(0.2))

    monkeypatch.setattr(github.clock, "sleep", meanwhile)
    github.trouble.before("POST", "/statuses/", ask)
    stranger.end(pull.head_sha, conclusion="cancelled")
    assert house.status(pull.head_sha)[0] == "failure"


# Jobs of one run under one name.


def next_job(house: Gatehouse) -> None:
    """The next report is another job of the run of the last one."""
    for folder in house.root.glob(f"run-{house.runs}-*"):
        folder.rename(f"{folder}-of-another-job")
    house.runs -= 1


@pytest.mark.parametrize("first", [0.1, 0.2])
def test_of_the_jobs_of_one_run_the_worst_answer_stays(house: Gatehouse, first: float) -> None:
    pull = house.pull()
    runs = [house.run(first), house.run(0.3 - first)]
    for run in runs:
        house.judge(pull, run)
        next_job(house)
    assert house.status(pull.head_sha)[0] == "failure"
    house.runs += 1
    house.judge(pull, house.run())
    assert house.status(pull.head_sha)[0] == "success"


@pytest.mark.parametrize("time", [0.1, 0.2])
def test_pending_covers_no_answer_of_another_job_of_the_run(house: Gatehouse, time: float) -> None:
    pull = house.pull()
    house.judge(pull, house.run(time))
    next_job(house)
    event = pull_event(pull, "opened", None)
    house.report("pull_request", event, None, by=plan)
    assert house.status(pull.head_sha)[0] == ("success" if time == 0.1 else "failure")


def test_a_job_that_passes_in_the_same_moment_covers_no_regression_of_another(
    house: Gatehouse, github: GitHub
) -> None:
    pull = house.pull()
    good, bad = house.run(), house.run(0.2)

    def other() -> None:
        next_job(house)
        house.judge(pull, bad)

    github.trouble.before("POST", "/statuses/", other)
    house.judge(pull, good)
    assert house.status(pull.head_sha)[0] == "failure"
