"""Scratch folders of killed processes are removed, and nobody else's."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from canary.machine.scratch import LOCK, new_scratch, remove_left_scratches, remove_scratch
from tests.contract.git_server import git

MAKES = """
import sys, time
from pathlib import Path
from canary.campaign.worktrees import checked_out
with checked_out(Path(sys.argv[1]), {"base": "HEAD"}) as trees:
    print(trees["base"].parent, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("same", [True, False])
def test_a_killed_process_leaves_no_worktree_for_long(
    same: bool, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start may have the same temporary folder or another."""
    git(tmp_path, "init", "-q", "theirs")
    repository = tmp_path / "theirs"
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    git(repository, "worktree", "add", "--detach", str(tmp_path / "own"))
    words = [sys.executable, "-c", MAKES, str(repository)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        scratch = Path(process.stdout.readline().strip())
        if not same:
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        removes = remove_left_scratches if same else partial(new_scratch, "ab", repository)
        removes()
        assert (scratch / "base" / ".git").exists(), "its owner lives"
        process.kill()
    # Git locks a worktree that it has not finished.
    git(repository, "worktree", "lock", str(scratch / "base"))
    removes()
    assert list(temporary.iterdir()) == []
    assert len(git(repository, "worktree", "list").splitlines()) == 2, (
        "the user's own worktrees stay"
    )


def test_only_folders_with_a_lock_that_can_be_taken_are_removed(
    tmp_path: Path, temporary: Path
) -> None:
    mine = new_scratch("ab")
    (temporary / "canary-ab-without").mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / LOCK).touch()
    (temporary / "canary-ab-link").symlink_to(theirs)
    shared = temporary / "canary-ab-shared"
    shared.mkdir()
    (shared / LOCK).touch()
    shared.chmod(0o777)
    before = sorted(temporary.iterdir())
    remove_left_scratches()
    assert sorted(temporary.iterdir()) == before
    assert (theirs / LOCK).exists()
    remove_scratch(mine)
    assert not mine.exists()
