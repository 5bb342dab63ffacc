"""The fixtures of this folder."""

import pytest

from tests.github.fixtures import description, github, webhooks

__all__ = ["description", "github", "webhooks"]


@pytest.fixture(autouse=True)
def _without_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing and analysing take seconds; only the tests that look at the result have them."""
    if "draws" not in request.fixturenames:
        for module in ("page", "pictures"):
            monkeypatch.setattr(f"canary.gate.{module}.can_draw", lambda: False)

    if "analyses" not in request.fixturenames:
        monkeypatch.setattr("canary.gate.trends.can_analyse", lambda: False)


@pytest.fixture
def analyses() -> None:
    """The history is analysed after a push."""


@pytest.fixture
def draws() -> None:
    """The page is drawn."""
