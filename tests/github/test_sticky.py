"""The one comment under trouble: late answers, other runs, an App's token."""

from __future__ import annotations

import pytest

from canary.compare.report import Comparison
from canary.config.token import Token
from canary.github.client import Hub, connect
from canary.github.comment import comment_of, parse, sections_of
from canary.github.status import Answer, Source
from canary.github.sticky import BOT, Sticky, marker, write_comment
from tests.github.gatehouse import NAME
from tests.github.server import GitHub
from tests.github.state import Comment, Pull, Repository

OLD = "a" * 40
GATE = "rlhf-canary"
APP = "gate-of-org[bot]"


@pytest.fixture
def repository(github: GitHub) -> Repository:
    return github.state.add_repository(NAME)


def hub_of(github: GitHub) -> Hub:
    return connect(
        Token(github.token),
        github.url,
        sleep=lambda seconds: github.clock.sleep(seconds),
        clock=github.clock.time,
        seconds_between_writes=0.0,
        backoff_s=0.0,
    )


def leg(github: GitHub, pull: Pull, name: str, run: int = 7, gate: str = GATE) -> Sticky:
    """The answer of a workflow run, of one canary."""
    answer = Answer(name, Comparison("pass", "Pass: nothing got worse."), f"{name}.yaml")
    sections = sections_of([answer], Source(pull.head_sha, "", run))
    hub = hub_of(github)
    target = hub.github.get_repo(NAME)
    return write_comment(hub, target, pull.number, sections, BOT, gate)


def names(comments: list[Comment]) -> list[list[str]]:
    return [[one.name for one in parse(comment.body)] for comment in comments]


def earlier_comment(repository: Repository, pull: Pull, name: str = "gone") -> Comment:
    """Our comment on the commit before."""
    answer = Answer(name, Comparison("pass", "Pass."), f"{name}.yaml")
    body = comment_of(sections_of([answer], Source(OLD, "", 1)))
    return repository.add_comment(pull.number, f"{marker(GATE)}{body}", BOT)


def test_legs_of_a_matrix_have_a_comment_each(github: GitHub, repository: Repository) -> None:
    pull = repository.add_pull()
    leg(github, pull, "a", gate="gate-a")
    leg(github, pull, "b", gate="gate-b")
    repository.push(pull)
    leg(github, pull, "a", run=8, gate="gate-a")
    assert names(repository.comments_on(pull.number)) == [["a"], ["b"]]


def test_the_answer_on_a_new_commit_replaces_all_of_the_older_one(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    old = earlier_comment(repository, pull)
    leg(github, pull, "a")
    assert names(repository.comments_on(pull.number)) == [["a"]]
    assert repository.comments_on(pull.number) == [old]


def test_an_earlier_run_of_the_commit_changes_nothing(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    later = leg(github, pull, "a", run=9)
    earlier = leg(github, pull, "b", run=8)
    assert (earlier.url, "a later run" in earlier.note) == (later.url, True)
    assert names(repository.comments_on(pull.number)) == [["a"]]


def test_our_comment_is_found_behind_120_others(github: GitHub, repository: Repository) -> None:
    pull = repository.add_pull()
    for number in range(70):
        repository.add_comment(pull.number, f"remark {number}")
    first = leg(github, pull, "a")
    for number in range(50):
        repository.add_comment(pull.number, f"remark {number}")
    repository.push(pull)
    assert leg(github, pull, "a", run=8).url == first.url
    assert len(repository.comments_on(pull.number)) == 121


def test_a_comment_that_came_later_still_goes_with_the_next_run(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    github.trouble.late("POST", "/comments", 600)
    first = leg(github, pull, "a")
    github.carry_out(all=True)
    assert len(repository.comments_on(pull.number)) == 2
    again = leg(github, pull, "a", run=8)
    assert names(repository.comments_on(pull.number)) == [["a"]]
    assert again.url == first.url


def test_a_comment_of_another_that_begins_like_ours_is_left(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    forged = repository.add_comment(pull.number, f"{marker(GATE)}mine", "mallory")
    leg(github, pull, "a")
    assert forged.body == f"{marker(GATE)}mine"
    assert len(repository.comments_on(pull.number)) == 2


def test_a_comment_that_another_job_removes_meanwhile_is_written_anew(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    old = earlier_comment(repository, pull)
    github.trouble.before("PATCH", "/comments/", lambda: repository.comments.pop(old.id))
    leg(github, pull, "a")
    assert names(repository.comments_on(pull.number)) == [["a"]]


def test_an_apps_token_learns_its_own_name_and_keeps_to_one_comment(
    github: GitHub, repository: Repository
) -> None:
    github.login = APP
    pull = repository.add_pull()
    forged = repository.add_comment(pull.number, f"{marker(GATE)}mine", "mallory")
    first = leg(github, pull, "a")
    repository.push(pull)
    second = leg(github, pull, "a", run=8)
    comments = repository.comments_on(pull.number)
    assert [one.author for one in comments] == ["mallory", APP]
    assert comments[0] is forged
    assert forged.body == f"{marker(GATE)}mine"
    assert second.url == first.url
    assert [one.sha for one in parse(comments[1].body)] == [pull.head_sha]
