"""The one comment under trouble: jobs that write at once, late answers, an App's token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from canary.compare.report import Comparison
from canary.config.token import Token
from canary.github.client import Hub, connect
from canary.github.comment import comment_of, parse, sections_of
from canary.github.status import Answer, Source
from canary.github.sticky import BOT, MARKER, Written, write_comment
from tests.github.gatehouse import NAME
from tests.github.server import GitHub
from tests.github.state import Comment, Pull, Repository
from tests.github.turns import Turns

OLD = "a" * 40
APP = "gate-of-org[bot]"


@pytest.fixture
def repository(github: GitHub) -> Repository:
    return github.state.add_repository(NAME)


def hub_of(github: GitHub) -> Hub:
    return connect(
        Token(github.token),
        github.url,
        NAME,
        sleep=lambda seconds: github.clock.sleep(seconds),
        clock=github.clock.time,
        seconds_between_writes=0.0,
        backoff_s=0.0,
    )


def leg(github: GitHub, pull: Pull, name: str, run: int = 7, jobs: int = 1) -> Written:
    """One job of a workflow run, of one canary."""
    answer = Answer(name, Comparison("pass", "Pass: nothing got worse."), f"{name}.yaml")
    sections = sections_of([answer], Source(pull.head_sha, "", run))
    return write_comment(hub_of(github), pull.number, sections, BOT, jobs)


def side_by_side(github: GitHub, *deeds: Callable[[], Written]) -> list[Written]:
    return Turns(github.clock).run(*deeds)


def names(comments: list[Comment]) -> list[list[str]]:
    return [[one.name for one in parse(comment.body)] for comment in comments]


def earlier_comment(repository: Repository, pull: Pull, name: str = "gone") -> Comment:
    """Our comment on the commit before."""
    answer = Answer(name, Comparison("pass", "Pass."), f"{name}.yaml")
    body = comment_of(sections_of([answer], Source(OLD, "", 1)))
    return repository.add_comment(pull.number, f"{MARKER}{body}", BOT)


def test_legs_of_a_matrix_share_one_comment(github: GitHub, repository: Repository) -> None:
    pull = repository.add_pull()
    for name in ("b", "a"):
        leg(github, pull, name, jobs=2)
    assert names(repository.comments_on(pull.number)) == [["a", "b"]]


@pytest.mark.parametrize(("count", "round_"), [(2, 0), (4, 3)])
def test_jobs_that_write_at_once_lose_no_section_when_edits_come_ten_seconds_late(
    github: GitHub, repository: Repository, count: int, round_: int
) -> None:
    pull = repository.add_pull()
    legs = [f"leg{number}" for number in range(count)]
    if round_ % 2:
        earlier_comment(repository, pull, legs[0])
    for number in range(round_ % 5):
        github.trouble.hold("PATCH|POST", "/comments", 10 + number)
    said = side_by_side(github, *(partial(leg, github, pull, name, jobs=count) for name in legs))
    assert names(repository.comments_on(pull.number)) == [legs]
    assert [one.note for one in said] == [""] * count


def test_an_edit_that_is_carried_out_after_it_was_given_up_costs_no_section(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    earlier_comment(repository, pull)
    github.trouble.late("PATCH", "/comments/", 35)
    side_by_side(github, *(partial(leg, github, pull, name, jobs=2) for name in ("a", "b")))
    assert names(repository.comments_on(pull.number)) == [["a", "b"]]


def test_two_jobs_without_a_matrix_see_from_the_comment_that_they_are_not_alone(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    leg(github, pull, "a")
    leg(github, pull, "b")
    repository.push(pull)
    github.trouble.hold("PATCH", "/comments/", 10)
    side_by_side(github, *(partial(leg, github, pull, name, run=8) for name in ("a", "b")))
    assert names(repository.comments_on(pull.number)) == [["a", "b"]]


def test_a_job_that_is_alone_waits_for_nobody(github: GitHub, repository: Repository) -> None:
    pull = repository.add_pull()
    before = github.clock.time()
    leg(github, pull, "a")
    repository.push(pull)
    leg(github, pull, "a", run=8)
    assert github.clock.time() - before < 10


def test_the_answer_on_a_new_commit_replaces_all_of_the_older_one(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    old = earlier_comment(repository, pull)
    leg(github, pull, "a")
    assert names(repository.comments_on(pull.number)) == [["a"]]
    assert repository.comments_on(pull.number) == [old]


def test_an_earlier_run_never_overwrites_a_later_ones_answer(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    later = leg(github, pull, "a", run=9)
    earlier = leg(github, pull, "a", run=8)
    assert (earlier.url, "a later run" in earlier.note) == (later.url, True)
    leg(github, pull, "b", run=8)
    (comment,) = repository.comments_on(pull.number)
    assert [(one.name, one.age[0]) for one in parse(comment.body)] == [("a", 9), ("b", 8)]


def test_an_earlier_and_a_later_run_that_write_at_once_leave_the_later_answer(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    github.trouble.hold("POST", "/comments", 10)
    runs = (partial(leg, github, pull, "a", run=run, jobs=2) for run in (9, 8))
    side_by_side(github, *runs)
    (comment,) = repository.comments_on(pull.number)
    assert [one.age[0] for one in parse(comment.body)] == [9]


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


def test_sections_of_a_second_comment_of_ours_are_kept_and_those_of_others_left(
    github: GitHub, repository: Repository
) -> None:
    pull = repository.add_pull()
    leg(github, pull, "a")
    (ours,) = repository.comments_on(pull.number)
    forged = repository.add_comment(pull.number, f"{MARKER}mine", "mallory")
    second = ours.body.replace('"name":"a"', '"name":"b"').replace("a.yaml", "b.yaml")
    repository.add_comment(pull.number, second, BOT)
    leg(github, pull, "c")
    assert names([ours]) == [["a", "b", "c"]]
    assert repository.comments_on(pull.number) == [ours, forged]


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
    forged = repository.add_comment(pull.number, f"{MARKER}mine", "mallory")
    first = leg(github, pull, "a")
    repository.push(pull)
    second = leg(github, pull, "a", run=8)
    comments = repository.comments_on(pull.number)
    assert [one.author for one in comments] == ["mallory", APP]
    assert comments[0] is forged
    assert forged.body == f"{MARKER}mine"
    assert second.url == first.url
    assert [one.sha for one in parse(comments[1].body)] == [pull.head_sha]
