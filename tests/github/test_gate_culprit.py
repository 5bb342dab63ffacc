"""The comment of a red history names the command that would find the culprit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.github.gatehouse import Gatehouse
from tests.github.server import GitHub

SLOW = 0.2


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    made = Gatehouse(tmp_path, github)
    made.baseline()
    return made


def test_a_red_pull_request_of_several_commits_names_the_bisect(house: Gatehouse) -> None:
    pull = house.pull()
    pull.commits = 12
    run = house.run(SLOW)
    said = house.judge(pull, run)
    (comment,) = house.comments(pull)
    good = pull.base_sha[:9]
    command = f"`canary bisect canary.yaml --good {good} --bad {pull.head_sha[:9]}`"
    (line,) = [line for line in comment.body.splitlines() if "canary bisect" in line]
    assert line == f"- **Find the commit**: {command}"
    assert comment.body.index(line) < comment.body.index("<details>")
    assert command in said.summary
