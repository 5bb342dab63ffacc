"""The answer never says that two runs have the same code when one had uncommitted changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.golden.cause import cause_of
from canary.golden.measured import MeasuredRun
from canary.record.types import RunRecord
from tests.unit.comparing import committed, example
from tests.unit.golden.golden_runs import run


def since(root: Path, before: RunRecord, after: MeasuredRun) -> str:
    return cause_of(before, after.record, root).since()


@pytest.mark.parametrize(
    ("golden_dirty", "run_dirty", "words"),
    [
        (False, False, "commit: aaaaaaaaa on both sides"),
        (
            False,
            True,
            "commit: aaaaaaaaa on both sides, but the run had uncommitted changes, so the "
            "code may differ",
        ),
        (
            True,
            False,
            "commit: aaaaaaaaa on both sides, but the run of the golden values had uncommitted "
            "changes, so the code may differ",
        ),
        (
            True,
            True,
            "commit: aaaaaaaaa on both sides, but both runs had uncommitted changes, so the "
            "code may differ",
        ),
    ],
)
def test_one_commit_is_not_the_same_code_with_uncommitted_changes(
    tmp_path: Path, golden_dirty: bool, run_dirty: bool, words: str
) -> None:
    before = committed(example(), dirty=golden_dirty)
    assert since(tmp_path, before, run(tmp_path, dirty=run_dirty)) == words


def test_uncommitted_changes_are_told_between_two_commits(tmp_path: Path) -> None:
    before = committed(example())
    after = run(tmp_path, sha="b" * 40, dirty=True)
    assert since(tmp_path, before, after) == (
        "since commit aaaaaaaaa, now bbbbbbbbb; the run had uncommitted changes"
    )
