"""The fixtures `github` and `webhooks`; other folders of tests import them in their conftest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.github import packages
from tests.github.openapi import Description
from tests.github.packages import Package, Unavailable
from tests.github.server import GitHub, served


def _content(package: Package, request: pytest.FixtureRequest) -> Any:
    cache = getattr(request.config, "cache", None)
    assert cache is not None, "pytest's own cache holds the packages"
    try:
        return packages.content(package, Path(cache.mkdir("octokit")))
    except Unavailable as why:
        left_out(str(why))


def left_out(why: str) -> NoReturn:
    """Skips the test, or fails it where CI is set."""
    if packages.required():
        pytest.fail(f"{why}; CI is set, so that no test may be left out")
    pytest.skip(why)


@pytest.fixture(scope="session")
def description(request: pytest.FixtureRequest) -> Description:
    """GitHub's own description of its interface."""
    return Description(_content(packages.OPENAPI, request))


@pytest.fixture(scope="session")
def webhooks(request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    """GitHub's own examples of payloads, by event."""
    return {event["name"]: event["examples"] for event in _content(packages.WEBHOOKS, request)}


def watch(description: Description) -> Iterator[GitHub]:
    """GitHub, and afterwards the failure of whatever was not as described."""
    with served(description) as hub:
        yield hub
    assert not hub.breaches, "not as GitHub describes it:\n" + "\n".join(hub.breaches)


@pytest.fixture
def github(description: Description) -> Iterator[GitHub]:
    """GitHub on the loopback interface; whatever was not as described fails the test."""
    yield from watch(description)
