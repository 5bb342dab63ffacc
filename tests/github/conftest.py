"""The fixtures of this folder."""

import os

import pytest

from canary.baseline import git
from tests.github.fixtures import description, github, webhooks

__all__ = ["description", "github", "webhooks"]


@pytest.fixture(autouse=True)
def _without_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds; only the tests that look at the page have it."""
    if "draws" not in request.fixturenames:
        monkeypatch.setattr("canary.gate.page.can_draw", lambda: False)


@pytest.fixture
def draws() -> None:
    """The page is drawn."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report makes four scratch repositories. What git says of itself and of its settings
    then, tests/unit/baseline asks. Nothing that a test writes has to survive a power failure."""
    monkeypatch.setattr(git, "require_recent", lambda *_: None)
    monkeypatch.setattr(git, "_carried", lambda *_: [])
    monkeypatch.setattr(os, "fsync", lambda _: None)
