"""The fixtures of this folder."""

import os
from pathlib import Path

import pytest

from canary.baseline import git
from tests.github.fixtures import description, github, webhooks
from tests.github.gatehouse import Gatehouse
from tests.github.server import GitHub
from tests.github.state import Pull

__all__ = ["description", "github", "webhooks"]


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    """A repository behind a gate, nothing of it stored."""
    made = Gatehouse(tmp_path, github)
    made.commit()
    return made


@pytest.fixture
def stored(house: Gatehouse) -> Gatehouse:
    """The same with four runs on the baseline branch."""
    house.baseline(4)
    return house


@pytest.fixture
def pull(house: Gatehouse) -> Pull:
    return house.pull()


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
