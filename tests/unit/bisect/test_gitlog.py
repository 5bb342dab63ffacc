"""The log that git replays: the same suspects are left in git as in the canary."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from canary.bisect.finding import Found, Shown
from canary.bisect.gitlog import git_bisect_log
from canary.bisect.model import Answer, Seen
from canary.compare.report import Comparison
from tests.unit.bisect.test_finding import bench_of, history_of, worse_since
from tests.unit.bisect.workshop import MadeBench, bisected, diamond


def replayed(root: Path, log: str, folder: Path) -> str:
    """What git says after it replayed a log, in a clone."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(root), str(clone)], check=True)
    (folder / "bisect.log").write_text(log)
    replay = ["git", "bisect", "replay", str(folder / "bisect.log")]
    ended = subprocess.run(replay, cwd=clone, check=False, capture_output=True)
    assert ended.returncode in (0, 2), ended.stderr  # 2: only skipped commits are left
    done = subprocess.run(
        ["git", "bisect", "log"], cwd=clone, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.mark.parametrize("culprit", ["c7"])
def test_git_names_the_same_first_bad_commit(tmp_path: Path, culprit: str) -> None:
    bench = bench_of(tmp_path, worse_since(culprit))
    bench.broken = {"c8": "does not build"}
    found = bisected(bench, "first_loss")
    told = replayed(bench.history.repository, git_bisect_log(bench.history, found), tmp_path)
    assert f"# first bad commit: [{sha(bench, culprit)}] {culprit}" in told
    assert "git bisect skip" in told


@pytest.mark.parametrize("culprit", ["s1", "merge side"])
def test_git_agrees_in_a_history_with_merges(tmp_path: Path, culprit: str) -> None:
    theirs = diamond(tmp_path / "theirs")
    bench = history_of(theirs.between("good", "main"), tmp_path / "out", culprit)
    found = bisected(bench, "first_loss")
    told = replayed(bench.history.repository, git_bisect_log(bench.history, found), tmp_path)
    assert f"# first bad commit: [{sha(bench, culprit)}] {culprit}" in told


def test_a_range_is_what_git_has_left(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c8"))
    bench.broken = dict.fromkeys(("c7", "c8"), "does not build")
    found = bisected(bench, "first_loss")
    told = replayed(bench.history.repository, git_bisect_log(bench.history, found), tmp_path)
    assert "# only skipped commits left to test" in told
    for name in ("c7", "c8", "c9"):
        assert f"# possible first bad commit: [{sha(bench, name)}]" in told


def test_noisy_commits_are_marked_only_if_they_are_sure(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c8"))
    masks = {c.subject: m for c, m in zip(bench.history.commits, bench.history.masks, strict=True)}
    shown = tuple(
        Shown(Seen(masks[name], None, 1.0), name, "1 ms") for name in ("c4", "c8", "c12", "c8")
    )
    posterior = [0.0] * 16
    posterior[6], posterior[8] = 0.5, 0.5  # c7 and c9
    answer, ends = Answer((), 0.5, False), Comparison("regression", "")
    found = Found(answer, ends, shown=shown, posterior=tuple(posterior))
    log = git_bisect_log(bench.history, found)
    assert f"git bisect good {sha(bench, 'c4')}" in log
    assert f"git bisect bad {sha(bench, 'c12')}" in log
    assert sha(bench, "c8") not in log
    assert "first bad commit" not in log


def sha(bench: MadeBench, subject: str) -> str:
    return next(c.sha for c in bench.history.commits if c.subject == subject)
