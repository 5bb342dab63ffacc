"""The GitHub of the tests: that it behaves as GitHub does, and that its checks bite."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import requests
from github import (
    BadCredentialsException,
    GithubException,
    RateLimitExceededException,
    UnknownObjectException,
)
from github.Repository import Repository as Client

from tests.github import routes
from tests.github.fixtures import watch
from tests.github.openapi import Description
from tests.github.routes import Answer, Call
from tests.github.server import GitHub, served
from tests.github.state import BOT, Pull, Repository
from tests.github.trouble import PAGE

REPOSITORY = "octo/models"


@pytest.fixture
def loose(description: Description) -> Iterator[GitHub]:
    """A GitHub whose breaches do not fail the test: for tests that make some."""
    with served(description) as hub:
        hub.state.add_repository(REPOSITORY)
        yield hub


@pytest.fixture
def repository(github: GitHub) -> Repository:
    return github.state.add_repository(REPOSITORY)


@pytest.fixture
def pull(repository: Repository) -> Pull:
    return repository.add_pull()


@pytest.fixture
def client(github: GitHub, repository: Repository) -> Client:
    return github.client().get_repo(REPOSITORY)


def ask(
    hub: GitHub, method: str, path: str, body: Any = None, token: str = ""
) -> requests.Response:
    return requests.request(
        method,
        f"{hub.url}/repos/{REPOSITORY}{path}",
        headers={"Authorization": f"Bearer {token or hub.token}"},
        json=body,
        timeout=10,
        allow_redirects=False,
    )


# That the checks bite.


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("POST", "/statuses/SHA", {"state": "success", "descripton": "x"}, "descripton"),
        ("POST", "/statuses/SHA", {"state": "passed"}, "passed"),
        ("POST", "/statuses/SHA", {"description": "x"}, "state"),
        ("POST", "/statuses/SHA", {"state": "success", "description": 3}, "description"),
        ("POST", "/statuses/SHA", None, "missing"),
        ("POST", "/issues/1/comments", {"text": "hello"}, "body"),
        ("GET", "/issues/1/comments?perpage=100", None, "perpage"),
        ("GET", "/pulls?state=merged", None, "merged"),
        ("GET", "/pulls/one", None, "pull_number"),
        ("GET", "/comments-of-mine", None, "no such operation"),
        ("PUT", "/issues/1/comments", {"body": "x"}, "no such operation"),
        ("GET", "/branches", None, "not served"),
        (
            "POST",
            "/check-runs",
            {"name": "x", "head_sha": "SHA", "output": {"title": "t", "summary": "s", "txt": ""}},
            "txt",
        ),
        ("PATCH", "/check-runs/1", {"state": "completed"}, "state"),
    ],
)
def test_a_request_that_github_does_not_describe_is_a_breach(
    loose: GitHub, method: str, path: str, body: Any, said: str
) -> None:
    sha = loose.state.repositories[REPOSITORY].branches["main"]
    text = json.dumps(body).replace("SHA", sha)
    answer = ask(loose, method, path.replace("SHA", sha), json.loads(text))
    assert answer.status_code == 400
    assert said in answer.json()["message"]
    assert len(loose.breaches) == 1
    assert said in loose.breaches[0]
    assert not loose.state.repositories[REPOSITORY].statuses


def without(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda answer: Answer(200, without(answer.body, "default_branch")), "default_branch"),
        (lambda answer: Answer(200, {**answer.body, "id": "1296269"}), "id"),
        (lambda answer: Answer(202, answer.body), "202"),
        (lambda answer: Answer(200, None), "None"),
        (lambda answer: routes.error(404, "Not Found"), ""),
    ],
    ids=["property missing", "wrong type", "status not declared", "no body", "an error is well"],
)
def test_an_answer_that_github_does_not_describe_is_a_breach(
    loose: GitHub, monkeypatch: pytest.MonkeyPatch, change: Any, said: str
) -> None:
    real = routes.HANDLERS["repos/get"]

    def changed(call: Call) -> Answer:
        answer: Answer = change(real(call))
        return answer

    monkeypatch.setitem(routes.HANDLERS, "repos/get", changed)
    answer = ask(loose, "GET", "")
    assert answer.status_code == (400 if said else 404)
    assert [said in breach for breach in loose.breaches] == ([True] if said else [])


def test_the_fixture_fails_a_test_that_made_a_breach(description: Description) -> None:
    watched = watch(description)
    hub = next(watched)
    hub.state.add_repository(REPOSITORY)
    ask(hub, "GET", "/nothing-of-the-kind")
    with pytest.raises(AssertionError, match="nothing-of-the-kind"):
        next(watched)


def test_a_mistake_of_the_server_itself_is_a_breach(
    loose: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(routes.HANDLERS, "repos/get", lambda call: call.path["nothing"])
    with pytest.raises(requests.ConnectionError):
        ask(loose, "GET", "")
    assert "KeyError('nothing')" in loose.breaches[0]


# What GitHub refuses.


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/statuses/SHA", {"state": "success", "description": "x" * 141}),
        ("POST", "/statuses/SHA", {"state": "success", "target_url": "javascript:x"}),
        ("POST", "/statuses/" + "0" * 40, {"state": "success"}),
        ("POST", "/issues/1/comments", {"body": "x" * 65_537}),
        ("POST", "/issues/1/comments", {"body": " \n"}),
        (
            "POST",
            "/check-runs",
            {"name": "x", "head_sha": "SHA", "output": {"title": "", "summary": "x" * 65_536}},
        ),
        (
            "POST",
            "/check-runs",
            {
                "name": "x",
                "head_sha": "SHA",
                "output": {
                    "title": "",
                    "summary": "",
                    "annotations": [
                        {
                            "path": "a",
                            "start_line": 1,
                            "end_line": 1,
                            "annotation_level": "notice",
                            "message": "m",
                        }
                    ]
                    * 51,
                },
            },
        ),
        ("POST", "/check-runs", {"name": "x", "head_sha": "SHA", "status": "completed"}),
    ],
)
def test_what_is_too_much_or_unknown_is_refused_and_has_no_effect(
    github: GitHub, repository: Repository, pull: Pull, method: str, path: str, body: Any
) -> None:
    text = json.dumps(body).replace("SHA", pull.head_sha)
    answer = ask(github, method, path.replace("SHA", pull.head_sha), json.loads(text))
    assert answer.status_code == 422, answer.text
    assert not repository.statuses
    assert not repository.comments
    assert not repository.check_runs


def test_the_largest_that_github_takes_is_taken(
    client: Client, repository: Repository, pull: Pull
) -> None:
    client.get_issue(1).create_comment("x" * 65_536)
    client.get_commit(pull.head_sha).create_status("success", description="x" * 140)
    note = {
        "path": "a",
        "start_line": 1,
        "end_line": 1,
        "annotation_level": "notice",
        "message": "m",
    }
    output: Any = {"title": "t", "summary": "x" * 65_535, "annotations": [note] * 50}
    run = client.create_check_run("canary", pull.head_sha, output=output)
    run.edit(output={"title": "t", "summary": "s", "annotations": [note] * 50})
    assert len(repository.check_runs[run.id].annotations) == 100


def test_a_wrong_token_is_refused(github: GitHub, repository: Repository) -> None:
    assert ask(github, "GET", "", token="ghp_of_somebody").status_code == 401
    github.token = "another"
    assert github.client().get_repo(REPOSITORY).full_name == REPOSITORY
    client = github.client()
    github.token = "a third"
    with pytest.raises(BadCredentialsException):
        client.get_repo(REPOSITORY)


def test_the_token_is_in_no_log_of_requests(github: GitHub, client: Client, pull: Pull) -> None:
    client.get_pull(1)
    assert github.requests
    assert github.token not in repr(github.requests)


@pytest.mark.parametrize("scope", ["statuses", "checks", "pull_requests"])
def test_a_token_without_a_permission_may_do_the_rest(
    github: GitHub, client: Client, pull: Pull, scope: str
) -> None:
    commit, issue = client.get_commit(pull.head_sha), client.get_issue(1)
    writes = {
        "statuses": lambda: commit.create_status("success"),
        "checks": lambda: client.create_check_run("canary", pull.head_sha),
        "pull_requests": lambda: issue.create_comment("hello"),
    }
    github.permissions[scope] = "read"
    for name, write in writes.items():
        if name == scope:
            with pytest.raises(GithubException, match="not accessible by integration") as caught:
                write()
            assert caught.value.status == 403
        else:
            write()


def test_a_read_only_token_reads(github: GitHub, client: Client, pull: Pull) -> None:
    github.read_only()
    assert client.get_pull(1).number == 1
    with pytest.raises(GithubException):
        client.get_issue(1).create_comment("hello")


def test_a_private_repository_shows_nothing_without_permission(github: GitHub) -> None:
    hidden = github.state.add_repository("octo/secret", private=True)
    hidden.add_pull()
    client = github.client().get_repo("octo/secret")
    assert client.get_pull(1).number == 1
    github.permissions["pull_requests"] = "none"
    with pytest.raises(GithubException):
        client.get_pull(1)


def test_a_workflows_token_may_not_ask_who_it_is_and_a_personal_one_may(github: GitHub) -> None:
    with pytest.raises(GithubException) as caught:
        assert github.client().get_user().login
    assert caught.value.status == 403
    github.login = "mona"
    assert github.client().get_user().login == "mona"


# What GitHub does.


def test_comments_are_kept_edited_and_deleted_under_the_bots_name(
    github: GitHub, client: Client, repository: Repository, pull: Pull
) -> None:
    comment = client.get_pull(1).create_issue_comment("first")
    assert comment.user.login == BOT
    assert comment.user.type == "Bot"
    assert comment.raw_data["performed_via_github_app"]["slug"] == "github-actions"
    comment.edit("second")
    kept = repository.comments[comment.id]
    assert kept.body == "second"
    assert kept.updated > kept.created
    assert client.get_pull(1).get_issue_comment(comment.id).body == "second"
    comment.delete()
    with pytest.raises(UnknownObjectException):
        client.get_pull(1).get_issue_comment(comment.id)
    assert [one.status for one in github.sent(path=f"/issues/comments/{comment.id}")] == [
        200,
        200,
        204,
        404,
    ]


@pytest.mark.parametrize("size", [30, 100])
@pytest.mark.parametrize("prefixed", [False, True])
def test_all_pages_are_found_through_the_links(
    github: GitHub, repository: Repository, pull: Pull, size: int, prefixed: bool
) -> None:
    for number in range(120):
        repository.add_comment(1, f"comment {number}")
    url = github.ghes_url if prefixed else github.url
    client = github.client(url, per_page=size).get_repo(REPOSITORY)
    bodies = [one.body for one in client.get_issue(1).get_comments()]
    assert bodies == [f"comment {number}" for number in range(120)]
    assert len(github.sent("GET", "/issues/1/comments")) == -(-120 // size)


def test_an_enterprise_server_is_served_under_its_prefix(github: GitHub, pull: Pull) -> None:
    client = github.client(github.ghes_url).get_repo(REPOSITORY)
    client.get_pull(1).create_issue_comment("hello")
    assert client.url == f"{github.url}/api/v3/repos/{REPOSITORY}"
    assert github.sent("POST")[0].path == f"/repos/{REPOSITORY}/issues/1/comments"


def test_pull_requests_are_found_by_head_and_state(client: Client, repository: Repository) -> None:
    own = repository.add_pull(head_branch="faster")
    fork = repository.add_pull(head_branch="faster", head_repository="mona/models")
    gone = repository.add_pull(head_repository=None)
    repository.merge(own)
    assert [one.number for one in client.get_pulls()] == [gone.number, fork.number]
    found = client.get_pulls(state="all", head="mona:faster")
    assert [one.number for one in found] == [fork.number]
    assert found[0].head.repo.full_name == "mona/models"
    assert client.get_pull(gone.number).head.repo is None
    assert client.get_pull(own.number).merged


def test_a_commit_names_the_pull_request_it_was_merged_by_but_not_a_forks(
    client: Client, repository: Repository
) -> None:
    own = repository.add_pull()
    fork = repository.add_pull(head_repository="mona/models")
    squashed = repository.merge(own)
    assert [one.number for one in client.get_commit(squashed).get_pulls()] == [own.number]
    assert [one.number for one in client.get_commit(own.head_sha).get_pulls()] == [own.number]
    assert list(client.get_commit(fork.head_sha).get_pulls()) == []


def test_statuses_are_told_newest_first_and_combined(
    github: GitHub, client: Client, repository: Repository, pull: Pull
) -> None:
    commit = client.get_commit(pull.head_sha)
    commit.create_status("pending", context="canary", description="running")
    commit.create_status("failure", context="canary", target_url="https://example.com/1")
    commit.create_status("success", context="other")
    # PyGithub's own `get_statuses` asks at an address that GitHub describes no more.
    listed = ask(github, "GET", f"/commits/{pull.head_sha}/statuses").json()
    assert [one["state"] for one in listed] == ["success", "failure", "pending"]
    combined = commit.get_combined_status()
    assert combined.state == "failure"
    assert combined.total_count == 2
    assert repository.statuses_of(pull.head_sha)[0].creator == BOT


def test_labels_tell_who_set_them_and_when(
    github: GitHub, client: Client, repository: Repository, pull: Pull
) -> None:
    repository.permissions.update(mona="write", hubot="triage", boss="maintain")
    repository.label(pull, "canary:accept", by="mona")
    repository.unlabel(pull, "canary:accept", by="hubot")
    github.clock.advance(3600)
    repository.label(pull, "canary:accept", by="mona")
    issue = client.get_issue(1)
    assert [label.name for label in issue.labels] == ["canary:accept"]
    assert [label.name for label in client.get_pull(1).get_labels()] == ["canary:accept"]
    events = list(issue.get_events())
    assert [(one.event, one.actor.login, one.label.name) for one in events] == [
        ("labeled", "mona", "canary:accept"),
        ("unlabeled", "hubot", "canary:accept"),
        ("labeled", "mona", "canary:accept"),
    ]
    assert (events[2].created_at - events[1].created_at).total_seconds() == 3601
    said = {
        login: client.get_collaborator_permission(login)
        for login in ("mona", "hubot", "boss", "stranger")
    }
    assert said == {"mona": "write", "hubot": "read", "boss": "write", "stranger": "read"}


def test_check_runs_are_made_completed_and_found(client: Client, pull: Pull) -> None:
    output: Any = {"title": "t", "summary": "s"}
    run = client.create_check_run("canary", pull.head_sha, status="in_progress", output=output)
    assert run.status == "in_progress"
    run.edit(status="completed", conclusion="success", output=output)
    later = client.create_check_run("canary", pull.head_sha, external_id="2")
    client.create_check_run("other", pull.head_sha)
    commit = client.get_commit(pull.head_sha)
    assert [one.id for one in commit.get_check_runs(check_name="canary")] == [later.id]
    every = [one.id for one in commit.get_check_runs(check_name="canary", filter="all")]
    assert every == [later.id, run.id]
    assert client.get_check_run(run.id).conclusion == "success"


def test_files_are_those_of_the_commit_asked_for(client: Client, repository: Repository) -> None:
    large = b"x" * 1_000_001
    old = repository.add_commit({"configs/a b.yaml": "tier: smoke\n"}, branch="main")
    new = repository.add_commit({"configs/a b.yaml": b"tier: none\n", "large": large})
    file = client.get_contents("configs/a b.yaml", ref=old)
    assert not isinstance(file, list)
    assert file.decoded_content == b"tier: smoke\n"
    folder = client.get_contents("configs", ref=new)
    assert isinstance(folder, list)
    assert [one.path for one in folder] == ["configs/a b.yaml"]
    assert client.get_contents("configs/a b.yaml").sha == file.sha  # type: ignore[union-attr]
    assert client.get_contents("large", ref=new).encoding == "none"  # type: ignore[union-attr]
    with pytest.raises(UnknownObjectException):
        client.get_contents("configs/b.yaml", ref=old)
    with pytest.raises(GithubException, match="404"):
        client.get_contents("configs/a b.yaml", ref="0" * 40)


def test_artifacts_come_from_another_host_that_must_not_see_the_token(
    github: GitHub, client: Client, repository: Repository, pull: Pull
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("gate.json", "{}")
    run = repository.add_run(pull.head_sha, head_repository="mona/models")
    for number in range(40):
        repository.add_artifact(run, f"log-{number}", b"")
    repository.add_artifact(run, "rlhf-canary-records", packed.getvalue())
    gone = repository.add_artifact(run, "rlhf-canary-records", b"", expired=True)
    known = client.get_workflow_run(run.id)
    assert known.head_sha == pull.head_sha
    assert known.head_repository.full_name == "mona/models"
    orphan = repository.add_run(pull.head_sha, head_repository=None)
    assert client.get_workflow_run(orphan.id).raw_data["head_repository"] is None
    found = {one.name: one for one in known.get_artifacts() if not one.expired}
    assert len(found) == 41
    answer = requests.get(
        found["rlhf-canary-records"].archive_download_url,
        headers={"Authorization": f"Bearer {github.token}"},
        timeout=10,
    )
    assert answer.content == packed.getvalue()
    assert answer.history[0].status_code == 302
    assert ask(github, "GET", f"/actions/artifacts/{gone.id}/zip").status_code == 410


def test_a_token_sent_to_the_host_of_the_files_is_a_breach(loose: GitHub) -> None:
    answer = requests.get(
        f"{loose.blobs}/octo/models/1", headers={"Authorization": "Bearer x"}, timeout=10
    )
    assert answer.status_code == 400
    assert "token" in loose.breaches[0]


def test_rate_limits_can_be_asked_for(github: GitHub) -> None:
    assert github.client().get_rate_limit().rate.limit == 5000


# What a test may order.


@pytest.mark.parametrize(("applied", "comments"), [(False, 0), (True, 1)])
def test_a_gateway_fails_before_or_after_the_deed(
    github: GitHub,
    client: Client,
    repository: Repository,
    pull: Pull,
    applied: bool,
    comments: int,
) -> None:
    github.trouble.fail("POST", r"/issues/\d+/comments", applied=applied)
    with pytest.raises(GithubException) as caught:
        client.get_issue(1).create_comment("hello")
    assert caught.value.status == 502
    assert len(repository.comments) == comments
    client.get_issue(1).create_comment("hello")
    assert len(repository.comments) == comments + 1


def test_a_connection_is_dropped(github: GitHub, client: Client, pull: Pull) -> None:
    github.trouble.fail("GET", "/pulls/1", status=None)
    with pytest.raises(requests.ConnectionError):
        client.get_pull(1)
    assert client.get_pull(1).number == 1


def test_limits_are_told_as_github_tells_them(github: GitHub, client: Client, pull: Pull) -> None:
    github.trouble.rate_limit(120)
    with pytest.raises(RateLimitExceededException) as caught:
        client.get_pull(1)
    headers = caught.value.headers or {}
    assert headers["x-ratelimit-remaining"] == "0"
    assert int(headers["x-ratelimit-reset"]) == int(github.clock.time()) + 120
    github.trouble.slow_down(30)
    with pytest.raises(RateLimitExceededException) as caught:
        client.get_pull(1)
    assert (caught.value.headers or {})["retry-after"] == "30"
    assert client.get_pull(1).number == 1


def test_a_limit_ends_when_its_time_has_come(github: GitHub, client: Client, pull: Pull) -> None:
    github.trouble.rate_limit(120, times=1000)
    with pytest.raises(RateLimitExceededException):
        client.get_pull(1)
    github.clock.advance(120)
    assert client.get_pull(1).number == 1


def test_latency_is_felt(github: GitHub, client: Client, pull: Pull) -> None:
    github.latency_s = 0.5
    with pytest.raises(requests.Timeout):
        requests.get(f"{github.url}/rate_limit", timeout=0.1)


def test_a_page_of_html_comes_with_any_status(github: GitHub, repository: Repository) -> None:
    github.trouble.answers("GET", "/pulls$", status=404)
    first, second = ask(github, "GET", "/pulls"), ask(github, "GET", "/pulls")
    assert (first.status_code, first.content) == (404, PAGE)
    assert first.headers["Content-Type"].startswith("text/html")
    assert second.json() == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_leads_to_the_same_path_there(
    github: GitHub, repository: Repository, status: int
) -> None:
    github.trouble.redirect("GET", "/pulls", github.blobs, status=status)
    found = ask(github, "GET", "/pulls?state=all")
    assert found.status_code == status
    assert found.headers["Location"] == f"{github.blobs}/repos/{REPOSITORY}/pulls?state=all"
    assert requests.get(found.headers["Location"], timeout=9).status_code == 404
    assert github.visits == [f"/repos/{REPOSITORY}/pulls?state=all"]


def test_a_token_that_goes_to_another_host_is_a_breach(loose: GitHub) -> None:
    requests.get(f"{loose.blobs}/x", headers={"Authorization": f"Bearer {loose.token}"}, timeout=9)
    assert "the token was sent" in loose.breaches[0]


def test_an_issue_is_opened_edited_closed_and_opened_again(
    github: GitHub, repository: Repository, pull: Pull, client: Client
) -> None:
    github.permissions["issues"] = "write"
    issue = client.create_issue("Slower", body="since yesterday")
    assert issue.number == pull.number + 1, "issues and pull requests share their numbers"
    issue.edit(body="since today", state="closed", state_reason="completed")
    assert (issue.state, issue.state_reason) == ("closed", "completed")
    assert issue.closed_at is not None
    issue.create_comment("it is back")
    issue.edit(state="open", state_reason="reopened")
    assert client.get_issue(issue.number).body == "since today"
    assert [one.body for one in issue.get_comments()] == ["it is back"]
    every = client.get_issues(state="all", creator=BOT)  # type: ignore[arg-type]  # or a login
    assert [(one.number, one.pull_request) for one in every] == [(issue.number, None)]


def test_pull_requests_are_listed_among_issues_the_newest_first(
    repository: Repository, pull: Pull, client: Client
) -> None:
    issue = repository.add_issue("Question")
    found = list(client.get_issues())
    assert [one.number for one in found] == [issue.number, pull.number]
    assert found[1].pull_request is not None


def test_an_issue_takes_another_permission_than_a_pull_request(
    github: GitHub, repository: Repository, pull: Pull, client: Client
) -> None:
    repository.add_issue("Question")
    client.get_issue(pull.number).create_comment("of the pull request")
    for post in (
        lambda: client.create_issue("Slower"),
        lambda: client.get_issue(2).edit(state="closed"),
        lambda: client.get_issue(2).create_comment("of the issue"),
    ):
        with pytest.raises(GithubException) as refused:
            post()
        assert refused.value.status == 403


def test_a_repository_may_have_no_issues(
    github: GitHub, repository: Repository, client: Client
) -> None:
    github.permissions["issues"] = "write"
    repository.has_issues = False
    with pytest.raises(GithubException) as refused:
        client.create_issue("Slower")
    assert refused.value.status == 410
