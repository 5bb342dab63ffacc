"""Always an answer: whatever a record, GitHub, a config or the runner does, the commit is told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary.errors import CanaryError, Stopped, UsageError
from canary.gate import report_job
from canary.gate.gathering import World
from canary.gate.inputs import ReportSettings
from canary.gate.report_job import plan
from canary.github.comment import parse
from tests.contract.git_server import git
from tests.github.gatehouse import (
    BASE_CONFIG,
    FORK,
    Gatehouse,
    artifact,
    pull_event,
    push_event,
    workflow_run_event,
)
from tests.github.server import GitHub
from tests.github.state import Pull

DISK = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def pull(house: Gatehouse) -> Pull:
    """A pull request that an earlier run has announced."""
    made = house.pull()
    house.report("pull_request", pull_event(made, "opened", None), None, by=plan)
    return made


def judged(house: Gatehouse, pull: Pull, **values: Any) -> tuple[int, str, str]:
    """(exit code, state, description) after a report, however it ended."""
    try:
        code = house.judge(pull, house.run(), **values).code
    except CanaryError as problem:
        code = problem.exit_code
    return (code, *house.status(pull.head_sha))


# Records.


def test_deep_nesting_in_a_record_is_an_error_on_the_commit(house: Gatehouse, pull: Pull) -> None:
    def spoil(folder: Path) -> None:
        (file,) = folder.rglob("metrics.json")
        deep = '{"a":' * 3000 + "1" + "}" * 3000
        file.write_text(file.read_text().replace('"env": {', f'"env": {{"x": {deep},'))

    house.spoil = spoil
    assert house.judge(pull, house.run()).code == 4
    state, description = house.status(pull.head_sha)
    assert state == "error"
    assert "metrics.json cannot be read: nest" in description


def test_a_record_of_too_many_keys_is_an_error_on_the_commit(house: Gatehouse, pull: Pull) -> None:
    keys = {f"k{n}": n for n in range(20_000)}
    assert house.judge_raw(pull, house.run(), ("exact", "x"), keys).code == 4
    state, description = house.status(pull.head_sha)
    assert state == "error"
    assert "more than" in description


def test_a_config_with_a_path_of_hundreds_of_characters_is_answered(
    house: Gatehouse, pull: Pull
) -> None:
    deep = "/".join(["folder" * 10] * 6)
    judged(house, pull, config=f"{deep}/x/a.yaml\n{deep}/y/a.yaml")
    assert house.status(pull.head_sha)[0] == "error"


# The base branch's config.


BOMB = "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    "text",
    [
        "description: 2001-13-45",
        "trainer_args: " + "[" * 3000 + "]" * 3000,
        f"a: &a [x, x, x, x]\n{BOMB}",
        "description: \ud800",
    ],
)
def test_a_base_config_that_cannot_be_read_is_an_error_on_the_commit(
    house: Gatehouse, text: str
) -> None:
    keys = {line.split(":")[0] for line in text.splitlines()}
    own = [line for line in BASE_CONFIG.splitlines() if line.split(":")[0] not in keys]
    content = "\n".join([*own, text]).encode("utf-8", "surrogatepass")
    pull = house.pull()
    house.hub_repository.commits[pull.base_sha].files["canary.yaml"] = content
    assert house.judge(pull, house.run()).code == 4
    state, description = house.status(pull.head_sha)
    assert state == "error"
    assert "base branch" in description
    assert "unexpected" not in description


# The runner.


def full(*_: Any, **__: Any) -> None:
    raise DISK


@pytest.mark.parametrize(
    "name",
    ["canary.gate.report_job.TemporaryDirectory", "canary.report.render.replace_file"],
)
def test_a_full_disk_is_an_error_on_the_commit(
    house: Gatehouse, pull: Pull, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(name, full)
    code, state, description = judged(house, pull)
    assert (code, state) == (4, "error")
    assert "the runner's disk is full (free some space" in description
    assert house.comments(pull)


def test_outputs_that_cannot_be_written_are_an_error_on_the_commit(
    house: Gatehouse, pull: Pull
) -> None:
    house.spoil = lambda folder: (folder / "output").symlink_to("nowhere/output")
    code, state, description = judged(house, pull)
    assert (code, state) == (4, "error")
    assert "outputs" in description
    assert "free some space" not in description, "there is room; the file cannot be made"


def test_a_summary_that_cannot_be_written_costs_no_answer(house: Gatehouse, pull: Pull) -> None:
    house.spoil = lambda folder: (folder / "summary").symlink_to("nowhere/summary")
    code, state, _ = judged(house, pull)
    assert (code, state) == (0, "success")
    assert house.comments(pull)


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("_judged", RecursionError("a library's text")),
        ("_say", MemoryError()),
        ("_finish", KeyError()),
    ],
)
def test_what_nobody_foresaw_is_an_error_on_the_commit_and_in_the_comment(
    house: Gatehouse,
    pull: Pull,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    problem: Exception,
) -> None:
    def broken(*_: Any) -> None:
        raise problem

    monkeypatch.setattr(report_job, place, broken)
    code, state, description = judged(house, pull)
    assert (code, state) == (4, "error")
    assert type(problem).__name__ in description
    (comment,) = house.comments(pull)
    assert type(problem).__name__ in comment.body
    assert "a library's text" not in description + comment.body


def test_a_job_that_is_cancelled_says_so_on_the_commit(
    house: Gatehouse, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(*_: Any) -> None:
        raise Stopped(15)

    monkeypatch.setattr(report_job, "_judged", cancelled)
    with pytest.raises(Stopped):
        house.judge(pull, house.run())
    assert house.status(pull.head_sha) == (
        "error",
        "Error: the job was cancelled before it had a result.",
    )


# Inputs.


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("name", "value", "by"),
    [
        ("strict", "maybe", plan),
        ("strict", "maybe", report_job.answer),
        ("config", "a.yaml\na.yaml", report_job.answer),
        ("baseline_branch", "a b", report_job.answer),
    ],
)
def test_an_input_that_is_refused_is_an_error_on_the_commit(
    house: Gatehouse, name: str, value: str, by: Callable[[ReportSettings, World], int]
) -> None:
    pull = house.pull()
    event = pull_event(pull, "opened", None)
    with pytest.raises(UsageError):
        house.report("pull_request", event, [house.run()], by=by, **{name: value})
    state, description = house.status(pull.head_sha)
    assert state == "error"
    assert name.split("_")[0] in description or value in description


# GitHub.


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((r"/pulls/\d+$", 200), ("/labels", 404), ("/contents/", 404)),
        *(("/comments", 500), ("/statuses", 403)),
    ],
)
def test_a_page_of_html_leaves_no_commit_without_an_answer(
    house: Gatehouse, github: GitHub, pull: Pull, path: str, status: int
) -> None:
    github.trouble.answers("GET", path, times=1 if path == "/statuses" else 50, status=status)
    code, state, description = judged(house, pull)
    assert state in ("error", "success"), "not pending"
    assert (state == "error") == (code == 4)
    assert "no-baseline" not in description or path not in ("/contents/", "/labels")


WRONG_STATUSES: list[Any] = [
    [{"id": 1, "context": "rlhf-canary", "target_url": 5, "state": "success"}],
    [5],
    {},
]


@pytest.mark.spread(1)
@pytest.mark.parametrize("body", WRONG_STATUSES)
def test_statuses_of_wrong_types_leave_no_commit_without_its_answer(
    house: Gatehouse, github: GitHub, body: Any
) -> None:
    house.baseline(4)
    pull = house.pull()
    house.report("pull_request", pull_event(pull, "opened", None), None, by=plan)
    github.trouble.answers("GET", "/statuses", body, times=1000)
    assert house.judge(pull, house.run(5.0)).code == 1
    assert house.status(pull.head_sha)[0] == "failure"


@pytest.mark.spread(1)
@pytest.mark.parametrize("status", [200, 500])
def test_an_older_success_goes_even_where_github_does_not_show_it(
    house: Gatehouse, github: GitHub, status: int
) -> None:
    house.baseline(4)
    pull = house.pull()
    assert house.judge(pull, house.run()).code == 0
    github.trouble.answers("GET", "/statuses", {"message": "x"}, times=1000, status=status)
    github.trouble.fail("POST", "/statuses", times=1)
    assert house.judge(pull, house.run(5.0)).code == 1
    assert house.status(pull.head_sha)[0] == "failure"


@pytest.mark.spread(1)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_forks_job_is_not_green_where_its_commit_got_no_answer(
    house: Gatehouse, github: GitHub, tmp_path: Path, method: str
) -> None:
    pull = house.fork(artifact(tmp_path / "made", [house.run()]))
    github.trouble.fail(method, "/statuses", times=1000, status=500)
    event = workflow_run_event(pull.head_sha, 50, FORK)
    said = house.report("workflow_run", event, None)
    assert said.code == 4
    assert "the answer is missing on the commit" in said.log
    assert house.comments(pull)


@pytest.mark.parametrize("path", ["/statuses", "/comments"])
def test_a_write_that_is_answered_with_html_is_looked_for_and_tried_again(
    house: Gatehouse, github: GitHub, pull: Pull, path: str
) -> None:
    github.trouble.answers("POST", path, times=2)
    assert judged(house, pull)[:2] == (0, "success")
    assert len(house.comments(pull)) == 1
    assert len(house.hub_repository.statuses_of(pull.head_sha)) == 2, "pending, and the answer"


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((r"/pulls/\d+$", {"head": 5}), ("/labels", {}), ("/contents/", None)),
        *(("/comments", "text"), ("/files", 7)),
    ],
)
def test_json_that_is_not_githubs_leaves_no_commit_without_an_answer(
    house: Gatehouse, github: GitHub, pull: Pull, path: str, body: Any
) -> None:
    body = b"null" if body is None else body
    github.trouble.answers("GET", path, body, times=50)
    judged(house, pull)
    assert house.status(pull.head_sha)[0] != "pending"


def test_a_redirect_to_another_host_gets_no_token_and_the_commit_an_answer(
    house: Gatehouse, github: GitHub, pull: Pull
) -> None:
    github.trouble.redirect("GET", "/contents/", github.blobs, status=307, times=9)
    github.trouble.redirect("POST", "/comments", github.blobs, status=307, times=9)
    code, state, description = judged(house, pull)
    assert (code, state) == (4, "error")
    assert "redirects to another address" in description
    assert not github.visits, "nothing was asked of the other host"


TROUBLES: dict[str, tuple[Callable[[GitHub], None], str]] = {
    "rate limit": (
        lambda hub: hub.trouble.rate_limit(3000, times=99, method="GET", path="/contents/"),
        "GitHub's rate limit is used up for",
    ),
    "500": (
        lambda hub: hub.trouble.fail("GET", "/contents/", status=500, times=99),
        "GitHub answered every try with a server error",
    ),
    "no connection": (
        lambda hub: hub.trouble.fail("GET", "/contents/", status=None, times=99),
        "GitHub cannot be reached",
    ),
    "no permission": (
        lambda hub: hub.trouble.fail(
            "GET", "/contents/", status=403, times=99, message="Resource not accessible by x"
        ),
        "GitHub refuses this token",
    ),
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", TROUBLES)
def test_each_trouble_of_reading_has_its_own_sentence(
    house: Gatehouse, github: GitHub, pull: Pull, name: str
) -> None:
    order, sentence = TROUBLES[name]
    order(github)
    assert judged(house, pull)[1] == "error"
    (comment,) = house.comments(pull)
    assert sentence in comment.body.replace("\u200b", "").replace("\\", "")
    (section,) = parse(comment.body)
    for foreign in ("HTTPConnectionPool", "Max retries", "urllib3", "{", "Exception"):
        assert foreign not in section.text


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("status", "message", "sentence"),
    [
        (403, "Unable to create comment because issue is locked.", "the conversation is locked"),
        (404, "Not Found", "it was deleted, or this token may not see it"),
        (410, "This comment was deleted", "it was deleted on GitHub"),
        (500, "Server Error", "GitHub did not accept it in 4 tries: it answered 500 Server Error"),
    ],
)
def test_a_comment_that_cannot_be_written_has_its_own_sentence(
    house: Gatehouse, github: GitHub, pull: Pull, status: int, message: str, sentence: str
) -> None:
    github.trouble.fail("POST", "/comments", status=status, message=message, times=9)
    said = house.judge(pull, house.run())
    assert said.code == 0
    assert sentence in said.log
    assert "::warning" in said.log or "::notice" in said.log
    assert "Verdict" in said.summary
    assert house.status(pull.head_sha)[0] == "success"


# What is absent, and what only looks so.


def test_a_config_is_new_only_where_github_says_that_it_is_not_there(
    house: Gatehouse, pull: Pull
) -> None:
    said = house.judge(pull, house.run(), config="new.yaml")
    assert "the run left no record of new.yaml" in said.summary.replace("\\", "")


SEEN_AS: list[tuple[Callable[[GitHub], None], str]] = [
    (lambda hub: hub.trouble.answers("GET", "/contents/", status=404, times=9), "not JSON"),
    (
        lambda hub: hub.trouble.answers("GET", "/contents/", [{"type": "file"}], times=9),
        "not a file",
    ),
    (
        lambda hub: hub.trouble.answers(
            "GET",
            "/contents/",
            {"type": "file", "encoding": "none", "content": "", "size": 2 << 20},
            times=9,
        ),
        "too large for a config",
    ),
    (
        lambda hub: hub.trouble.answers(
            "GET", "/contents/", {"type": "file", "encoding": "base64", "content": 5}, times=9
        ),
        "unexpected JSON",
    ),
    (
        lambda hub: hub.trouble.fail(
            "GET", r"/contents/|/commits/[0-9a-f]+$", status=404, message="Not Found", times=99
        ),
        "this token may not see",
    ),
]


@pytest.mark.spread(2)
@pytest.mark.parametrize(("order", "sentence"), SEEN_AS)
def test_what_is_no_file_of_githubs_is_never_taken_for_a_new_config(
    house: Gatehouse,
    github: GitHub,
    pull: Pull,
    order: Callable[[GitHub], None],
    sentence: str,
) -> None:
    order(github)
    assert judged(house, pull)[:2] == (4, "error")
    (comment,) = house.comments(pull)
    assert sentence in comment.body.replace("\u200b", "").replace("\\", "")


# Schedules.


def test_a_schedule_whose_payload_names_no_repository_is_judged_all_the_same(
    house: Gatehouse,
) -> None:
    sha = house.commit()
    payload = {"schedule": "0 3 * * *", "ref": "refs/heads/main"}
    said = house.report("schedule", payload, [house.run()], head=sha)
    assert said.code == 0
    assert house.status(sha)[0] == "success"
    assert len(house.entries()) == 1


def test_a_baseline_that_cannot_be_written_is_told_on_the_commit(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canary.gate.report_job.save", full)
    sha = house.commit()
    with pytest.raises(CanaryError, match="disk is full"):
        house.report("push", push_event(sha), [house.run()])
    assert house.status(sha)[0] == "error"
    assert not git(house.bare, "branch", "--list", "canary-baselines")


def test_an_artifact_that_does_not_fit_on_the_disk_is_told_as_that(
    house: Gatehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = house.fork(artifact(tmp_path / "made", [house.run()]))
    monkeypatch.setattr("canary.gate.records._extract_one", full)
    house.report("workflow_run", workflow_run_event(pull.head_sha, 50, FORK), None)
    assert "the runner's disk is full" in house.status(pull.head_sha)[1]
