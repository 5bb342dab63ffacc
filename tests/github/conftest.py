"""The fixtures of this folder."""

import pytest

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
