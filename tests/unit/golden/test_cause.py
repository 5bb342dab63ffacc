"""The answer never says that two runs have the same code when one had uncommitted changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.golden.cause import cause_of
from canary.golden.measured import MeasuredRun
from canary.imports.reading import Asked
from canary.imports.record import import_run
from canary.record import jsonio
from canary.record.types import RunRecord
from tests.unit.comparing import committed, example
from tests.unit.golden.golden_runs import run


def imported(root: Path, name: str, loss: float) -> RunRecord:
    """An import by hand: of the machine, packages and commit nothing is known."""
    file = root / f"{name}.jsonl"
    rows = [{"step": step, "loss": loss / step, "reward": 0.1 * step} for step in range(1, 30)]
    file.write_text("".join(jsonio.dumps(row) + "\n" for row in rows))
    return import_run(Asked(file), root, name)[0]


def test_nothing_is_said_of_packages_that_were_not_recorded(tmp_path: Path) -> None:
    before, after = imported(tmp_path, "one", 1.0), imported(tmp_path, "two", 2.0)
    assert cause_of(before, after, tmp_path).sentences() == [
        "commit: not known of the run and the golden values",
        "packages: not known of the run and the golden values, which were imported",
    ]


def test_what_an_import_does_not_record_is_no_change_and_no_cause(tmp_path: Path) -> None:
    before, after = committed(example()), imported(tmp_path, "one", 1.0)
    assert cause_of(before, after, tmp_path).sentences() == [
        "commit: not known of the run",
        "packages and config: not comparable, because the run was imported",
    ]
    assert cause_of(after, before, tmp_path).sentences() == [
        "commit: not known of the golden values",
        "packages and config: not comparable, because the golden values were imported",
    ]


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
        "since commit aaaaaaaaa, now commit bbbbbbbbb; the run had uncommitted changes"
    )
