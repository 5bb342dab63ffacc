"""One laboratory a session, so that each clean canary is trained once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.laboratory import Laboratory, changes_of


@pytest.fixture(scope="session")
def laboratory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Laboratory]:
    """Starts the trainings of all collected tests; each test waits for its own."""
    found = Laboratory(tmp_path_factory.mktemp("faults"))
    found.begin(changes_of(request.session.items))
    yield found
    found.close()
