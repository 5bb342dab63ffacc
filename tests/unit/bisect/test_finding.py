"""The loop over commits, with made-up runs: what is found, what is skipped, what is said."""

from __future__ import annotations

import atexit
import functools
import math
import shutil
import tempfile
from pathlib import Path

import pytest

from canary.bisect.candidates import Commits
from canary.bisect.search import CannotRun
from canary.errors import MachineError, UsageError
from canary.record.types import RunRecord
from tests.unit.bisect.workshop import (
    MadeCommits,
    Repository,
    Run,
    bisected,
    diamond,
    failed,
    looked,
    made_of,
    names,
)

LINE = [f"c{i}" for i in range(17)]


@functools.cache
def line() -> Commits:
    """A line of commits, in a repository that lasts as long as the process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Repository(folder)
    commits = made.line(len(LINE))
    return made.between(commits[0], commits[-1])


def bench_of(root: Path, run: Run) -> MadeCommits:
    return made_of(line(), root / "out", run)


def worse_since(subject: str) -> Run:
    """Another loss from one commit on, in a line of commits."""

    def run(commit: str, number: int, kind: str) -> RunRecord:
        after = commit != "good" and LINE.index(commit) >= LINE.index(subject)
        return looked(number, 3.0 if after else 2.0)

    return run


@pytest.mark.parametrize("culprit", ["c1", "c16"])
def test_an_exact_change_is_found_with_one_look_per_halving(tmp_path: Path, culprit: str) -> None:
    bench = bench_of(tmp_path, worse_since(culprit))
    found = bisected(bench, "first_loss")
    assert names(found, bench) == [culprit]
    assert found.decided
    assert len(found.shown) <= math.log2(16) + 1
    assert {kind for _, kind in bench.asked} == {"look"}


def test_a_finished_bisect_keeps_its_answer(tmp_path: Path) -> None:
    def slower(commit: str, number: int, kind: str) -> RunRecord:
        after = commit != "good" and LINE.index(commit) >= 5
        return looked(number, median_s=(0.2 if after else 0.1) * (1 + 0.001 * (number % 7)))

    for check, run in (("first_loss", worse_since("c5")), ("step_time_median", slower)):
        bench = bench_of(tmp_path / check, run)
        whole = bisected(bench, check)
        asked = len(bench.asked)
        again = bisected(bench, check)
        assert whole.decided
        assert again.answer == whole.answer
        assert again.decided
        assert len(bench.asked) == asked, "nothing ran again"


def test_commits_that_do_not_build_are_skipped_with_their_reason(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c12"))
    bench.broken = {"c8": "setup ended with exit code 1", "c4": "no config"}
    found = bisected(bench, "first_loss")
    assert names(found, bench) == ["c12"]
    skipped = {one.words for one in found.shown if one.outcome == "skip"}
    assert skipped <= {"setup ended with exit code 1", "no config"}
    assert skipped


def test_commits_that_hide_the_culprit_give_a_range(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c8"))
    bench.broken = dict.fromkeys(("c7", "c8"), "does not build")
    found = bisected(bench, "first_loss")
    assert not found.decided
    assert found.answer.decided
    assert names(found, bench) == ["c7", "c8", "c9"]
    assert found.answer.reason == "2 between them did not run"


def test_a_crash_is_followed_by_its_kind_and_other_crashes_are_skipped(tmp_path: Path) -> None:
    def run(commit: str, number: int, kind: str) -> RunRecord:
        place = 0 if commit == "good" else LINE.index(commit)
        if place in (5, 6, 8):
            return failed(number, f"KeyError: 'labels' (at /tmp/{commit}/train.py:12)")
        if place >= 11:
            return failed(number, f"ValueError: bad step {place} (at /tmp/{commit}/a.py:{place})")
        return looked(number)

    bench = bench_of(tmp_path, run)
    found = bisected(bench)
    assert found.question is not None
    assert found.question.check == "crash"
    assert names(found, bench) == ["c11"]
    assert found.decided
    other = [one for one in found.shown if one.outcome == "skip"]
    assert all("fails in another way" in one.words for one in other)
    assert other


def step_times(culprit: int, change: float) -> Run:
    """Step times with 2% of noise; `change` from one commit on."""
    noise = [1.0, 1.02, 0.98, 1.01, 0.99, 1.015, 0.985]

    def run(commit: str, number: int, kind: str) -> RunRecord:
        after = commit != "good" and LINE.index(commit) >= culprit
        return looked(number, median_s=0.1 * noise[number % 7] * (1 + change * after))

    return run


def test_a_slower_step_is_found_from_values(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, step_times(6, 0.4))
    found = bisected(bench, "step_time_median")
    assert found.question is not None
    assert found.question.noisy
    assert names(found, bench) == ["c6"]
    assert found.decided
    searched = [kind for _, kind in bench.asked]
    assert "look" not in searched


def test_a_check_that_is_not_worse_is_an_error_with_both_values(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c7"))
    with pytest.raises(
        UsageError, match=r"batches is not worse: .* \(worse are: first_loss, trajectory\)"
    ):
        bisected(bench, "batches")


def test_ends_that_noise_leaves_open_are_not_decided(tmp_path: Path) -> None:
    times = [0.1, 0.16, 0.09, 0.2, 0.13, 0.1, 0.18]
    bench = bench_of(tmp_path, lambda _, number, __: looked(number, median_s=times[number % 7]))
    found = bisected(bench, "step_time_median")
    assert not found.decided
    assert "too noisy to tell" in found.answer.reason
    assert not found.shown


@pytest.mark.parametrize(("end", "subject"), [("good", "good"), ("bad", "c16")])
def test_an_end_that_does_not_build_is_an_error(tmp_path: Path, end: str, subject: str) -> None:
    bench = bench_of(tmp_path, worse_since("c7"))
    bench.broken = {subject: "setup ended with exit code 1"}
    with pytest.raises(MachineError, match=f"the {end} end .* does not run: setup ended"):
        bisected(bench)


def test_a_good_end_that_crashes_is_an_error(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, lambda _, number, __: failed(number, "it broke"))
    with pytest.raises(MachineError, match="the base does not run: it broke"):
        bisected(bench)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_the_end_that_does_not_run_is_named_whichever_run_of_it(tmp_path: Path, bad: int) -> None:
    runs: list[str] = []

    def run(commit: str, number: int, kind: str) -> RunRecord:
        runs.append(commit)
        if len(runs) == bad + 1:
            raise CannotRun("the disk is full")
        return looked(number, 2.0)

    bench = bench_of(tmp_path, run)
    with pytest.raises(MachineError, match=rf"the {('good', 'bad', 'good')[bad]} end .* does not"):
        bisected(bench)


@pytest.mark.parametrize("stop", [1, 7])
def test_an_interrupted_bisect_goes_on_where_it_was(tmp_path: Path, stop: int) -> None:
    run = worse_since("c7")
    bench = bench_of(tmp_path, run)
    other = made_of(bench, tmp_path / "whole", run)
    whole = bisected(other, "first_loss")
    whole_runs = len(other.asked)
    bench.stop_after = stop
    with pytest.raises(KeyboardInterrupt):
        bisected(bench, "first_loss")
    bench.stop_after = None
    again = bisected(bench, "first_loss")
    assert names(again, bench) == ["c7"]
    assert again.answer == whole.answer
    assert len(bench.asked) == whole_runs, "no run was repeated"


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Commits:
    return diamond(tmp_path_factory.mktemp("theirs")).between("good", "main")


def worse_with(history: Commits, culprit: str) -> Run:
    """Another loss where `culprit` is the commit or one of its ancestors."""
    place = next(i for i, commit in enumerate(history.commits) if commit.subject == culprit)
    known = {commit.sha: commit.subject for commit in history.commits}
    states = {known.get(sha, "good"): state for state, sha in history.runnable.items()}

    def run(subject: str, number: int, kind: str) -> RunRecord:
        return looked(number, 3.0 if states[subject] >> place & 1 else 2.0)

    return run


@pytest.mark.parametrize("culprit", ["b", "s2", "merge side", "d"])
def test_a_culprit_on_any_branch_or_a_merge_is_found(
    branches: Commits, tmp_path: Path, culprit: str
) -> None:
    bench = made_of(branches, tmp_path / "out", worse_with(branches, culprit))
    found = bisected(bench, "first_loss")
    assert names(found, bench) == [culprit]
    assert found.decided
    assert found.step is not None
    assert ("merge" in found.step.note) == culprit.startswith("merge")


def test_a_branch_from_before_the_good_end_never_runs(branches: Commits, tmp_path: Path) -> None:
    bench = made_of(branches, tmp_path / "out", worse_with(branches, "e1"))
    found = bisected(bench, "first_loss")
    assert not found.decided
    assert found.answer.decided
    assert names(found, bench) == ["e1", "merge early"]
    assert "e1" not in [subject for subject, _ in bench.asked]
