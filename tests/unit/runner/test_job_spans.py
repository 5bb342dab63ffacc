"""What the training process is told about the length of its look."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.config.load import load_config
from canary.record.folder import RunFolder
from canary.runner.display.progress import Quiet
from canary.runner.run import _job, steps_of
from canary.runner.session import Session


@pytest.mark.parametrize(
    ("settings", "looked", "steps"),
    [
        (["max_steps=30"], 10, 30),
        (["max_steps=30", "exact=true"], 12, 12),
        (["max_steps=6", "exact=true"], 12, 6),
    ],
)
def test_a_look_is_at_most_a_third_of_a_training_that_goes_on_after_it(
    settings: list[str], looked: int, steps: int, tmp_path: Path
) -> None:
    session = Session(load_config(None, settings), RunFolder.create(tmp_path, "run"), Quiet())
    assert _job(session, 0, tmp_path).look_steps == looked
    assert steps_of(session.config) == steps
