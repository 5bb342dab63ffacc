"""The GitHub of the tests: that it behaves as GitHub does, and that its checks bite."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import requests

from tests.github import routes
from tests.github.fixtures import watch
from tests.github.openapi import Description
from tests.github.routes import Answer, Call
from tests.github.server import GitHub, served

REPOSITORY = "octo/models"


@pytest.fixture
def loose(description: Description) -> Iterator[GitHub]:
    """A GitHub whose breaches do not fail the test: for tests that make some."""
    with served(description) as hub:
        hub.state.add_repository(REPOSITORY)
        yield hub


def ask(hub: GitHub, method: str, path: str, body: Any = None) -> requests.Response:
    return requests.request(
        method,
        f"{hub.url}/repos/{REPOSITORY}{path}",
        headers={"Authorization": f"Bearer {hub.token}"},
        json=body,
        timeout=10,
        allow_redirects=False,
    )


# That the checks bite.


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("POST", "/statuses/SHA", {"state": "success", "descripton": "x"}, "descripton"),
        ("POST", "/statuses/SHA", None, "missing"),
        ("GET", "/issues/1/comments?perpage=100", None, "perpage"),
        ("GET", "/pulls/one", None, "pull_number"),
        ("GET", "/branches", None, "not served"),
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
        (lambda answer: routes.error(404, "Not Found"), ""),
    ],
    ids=["property missing", "wrong type", "an error is well"],
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


def test_a_token_sent_to_the_host_of_the_files_is_a_breach(loose: GitHub) -> None:
    answer = requests.get(
        f"{loose.blobs}/octo/models/1", headers={"Authorization": "Bearer x"}, timeout=10
    )
    assert answer.status_code == 400
    assert "token" in loose.breaches[0]
