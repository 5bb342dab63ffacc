"""The planted repository is what it says: faults show at their commit, all else changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.bisect.repository import (
    COMMITS,
    MERGES,
    RENAMES,
    Repository,
    build_repository,
    git,
)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return build_repository(tmp_path_factory.mktemp("clean") / "theirs")


def test_the_same_hashes_each_time(clean: Repository, tmp_path: Path) -> None:
    assert build_repository(tmp_path / "again") == Repository(tmp_path / "again", clean.commits)
    assert len(set(clean.commits)) == COMMITS
    assert git(clean.root, "status", "--porcelain") == ""
    count = git(clean.root, "rev-list", "--count", "HEAD")
    assert count == str(COMMITS)


def test_merges_bring_side_branches(clean: Repository) -> None:
    root, commits = clean.root, clean.commits
    found = git(root, "rev-list", "--merges", "HEAD").splitlines()
    assert set(found) == {commits[place] for place in MERGES}
    for merge, side in MERGES.items():
        brought = git(root, "rev-list", f"{commits[merge]}^1..{commits[merge]}^2").splitlines()
        assert set(brought) == {commits[place] for place in side}


def test_one_commit_only_renames(clean: Repository) -> None:
    shown = git(
        clean.root,
        "show",
        "-M100%",
        "--name-status",
        "--format=",
        clean.commits[RENAMES],
    )
    assert {line.split()[0] for line in shown.splitlines()} == {"R100"}
