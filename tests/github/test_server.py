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
)
from github.Repository import Repository as Client

from tests.github import routes
from tests.github.fixtures import watch
from tests.github.openapi import Description
from tests.github.routes import Answer, Call
from tests.github.server import GitHub, served
from tests.github.state import Pull, Repository

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
        ("POST", "/statuses/SHA", {"description": "x"}, "state"),
        ("POST", "/statuses/SHA", None, "missing"),
        ("POST", "/issues/1/comments", {"text": "hello"}, "body"),
        ("GET", "/issues/1/comments?perpage=100", None, "perpage"),
        ("GET", "/pulls/one", None, "pull_number"),
        ("GET", "/comments-of-mine", None, "no such operation"),
        ("GET", "/branches", None, "not served"),
        (
            "POST",
            "/check-runs",
            {"name": "x", "head_sha": "SHA", "output": {"title": "t", "summary": "s", "txt": ""}},
            "txt",
        ),
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


def test_a_token_that_goes_to_another_host_is_a_breach(loose: GitHub) -> None:
    requests.get(f"{loose.blobs}/x", headers={"Authorization": f"Bearer {loose.token}"}, timeout=9)
    assert "the token was sent" in loose.breaches[0]
