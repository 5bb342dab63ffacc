"""The planted repository is what it says: faults show at their commit, all else changes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.bisect.commands import here
from tests.integration.bisect.repository import (
    BROKEN,
    COMMITS,
    MERGES,
    NO_SETUP,
    RENAMES,
    Fault,
    Repository,
    build_repository,
    git,
    parents_of,
)
from tests.integration.conftest import Finished

ONLY_LOOK = ("--exact",)


@dataclass
class Bench:
    """Runs commits of a repository, each in a worktree of its own."""

    repository: Repository
    scratch: Path
    seen: dict[tuple[str, ...], Finished] = field(default_factory=dict)

    def run(self, position: int, *options: str, config: str = "canary.yaml") -> Finished:
        """Runs a commit; one whose code, data and config ran before is not run again."""
        key = (config, *options, *self.content(position))
        if key not in self.seen:
            tree = self.scratch / f"{position}-{len(self.seen)}"
            commit = self.repository.commits[position]
            git(self.repository.root, "worktree", "add", "-q", "--detach", str(tree), commit)
            output = self.scratch / "runs"
            self.seen[key] = here("run", config, "-q", "-o", str(output), *options, cwd=tree)
        return self.seen[key]

    def content(self, position: int) -> list[str]:
        """What of a commit takes part in a run."""
        commit = self.repository.commits[position]
        parts = ("trainlab", "data", "train.py", "canary.yaml", "script.yaml")
        return [git(self.repository.root, "rev-parse", f"{commit}:{part}") for part in parts]

    def compare(self, current: Finished, baseline: Finished) -> dict:
        """What `canary compare` says of two runs."""
        words = ("compare", str(current.folder), str(baseline.folder), "--format", "json")
        return json.loads(here(*words, cwd=self.repository.root).out)


def learns_the_same(found: dict) -> bool:
    """No signal differs; the config may name other files, and a look has no speed."""
    equal = "Learns the same: batches, losses, gradients and updates are identical."
    failed = [check["name"] for check in found["checks"] if check["status"] in ("fail", "changed")]
    return found["first_line"].startswith(equal) and not failed


def bench(tmp_path: Path, faults: dict[Fault, int]) -> Bench:
    return Bench(build_repository(tmp_path / "theirs", faults), tmp_path / "trees")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("clean"), {})


def test_the_same_hashes_each_time(clean: Bench, tmp_path: Path) -> None:
    assert build_repository(tmp_path / "again") == Repository(
        tmp_path / "again", clean.repository.commits
    )
    assert len(set(clean.repository.commits)) == COMMITS
    assert git(clean.repository.root, "status", "--porcelain") == ""
    count = git(clean.repository.root, "rev-list", "--count", "HEAD")
    assert count == str(COMMITS)


def test_merges_bring_side_branches(clean: Bench) -> None:
    root, commits = clean.repository.root, clean.repository.commits
    found = git(root, "rev-list", "--merges", "HEAD").splitlines()
    assert set(found) == {commits[place] for place in MERGES}
    for merge, side in MERGES.items():
        brought = git(root, "rev-list", f"{commits[merge]}^1..{commits[merge]}^2").splitlines()
        assert set(brought) == {commits[place] for place in side}


def test_one_commit_only_renames(clean: Bench) -> None:
    shown = git(
        clean.repository.root,
        "show",
        "-M100%",
        "--name-status",
        "--format=",
        clean.repository.commits[RENAMES],
    )
    assert {line.split()[0] for line in shown.splitlines()} == {"R100"}


@pytest.mark.parametrize("fault", ["eos", "slow", "rate", "crash"])
def test_a_fault_can_stand_at_each_commit(fault: Fault, clean: Bench, tmp_path: Path) -> None:
    """Before it nothing differs from the repository without faults; from it on all does."""
    for position in range(1, COMMITS):
        built = build_repository(tmp_path / str(position), {fault: position})
        assert built.commits[:position] == clean.repository.commits[:position]
        assert built.commits[position] != clean.repository.commits[position]


@pytest.mark.train
@pytest.mark.long
@pytest.mark.parametrize("config", ["canary.yaml", "script.yaml"])
def test_without_a_fault_all_commits_that_run_learn_the_same(clean: Bench, config: str) -> None:
    first = clean.run(0, *ONLY_LOOK, config=config)
    compared = {first.folder}
    for position in range(1, COMMITS):
        ended = clean.run(position, *ONLY_LOOK, config=config)
        assert (ended.code != 0) == (position in BROKEN), (position, ended.err)
        if position not in BROKEN and ended.folder not in compared:
            found = clean.compare(ended, first)
            assert learns_the_same(found), (position, found["first_line"])
            compared.add(ended.folder)


@pytest.mark.train
@pytest.mark.long
def test_broken_commits_fail_each_in_its_own_way(clean: Bench) -> None:
    syntax, missing, setup = (clean.run(place, *ONLY_LOOK) for place in BROKEN)
    assert "was never closed" in syntax.err
    assert "data/train.jsonl" in missing.err
    assert "clipping" in setup.err
    tree = clean.scratch / "setup"
    commit = clean.repository.commits[NO_SETUP]
    git(clean.repository.root, "worktree", "add", "-q", "--detach", str(tree), commit)
    assert "./vendor/clipping" in (tree / "setup.sh").read_text()


@pytest.mark.train
@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("eos", "The end-of-sequence labels are masked"),
        ("rate", "The learning rate is 2 times as large"),
    ],
)
@pytest.mark.parametrize("position", [17, 33])
def test_an_exact_fault_shows_at_its_commit_with_its_cause(
    tmp_path: Path, fault: Fault, cause: str, position: int
) -> None:
    planted = bench(tmp_path, {fault: position})
    culprit = planted.run(position, *ONLY_LOOK)
    for parent in parents_of(position):
        found = planted.compare(culprit, planted.run(parent, *ONLY_LOOK))
        assert found["verdict"] == "regression"
        assert cause in found["diagnosis"]["suspects"][0]["description"]
    last = planted.compare(planted.run(COMMITS - 1, *ONLY_LOOK), culprit)
    assert learns_the_same(last), "after it nothing changes"


@pytest.mark.train
@pytest.mark.long
@pytest.mark.parametrize("fault", ["eos", "rate"])
def test_an_exact_fault_shows_in_the_script_too(tmp_path: Path, fault: Fault) -> None:
    planted = bench(tmp_path, {fault: 33})
    parent, culprit = (planted.run(n, *ONLY_LOOK, config="script.yaml") for n in (32, 33))
    assert planted.compare(culprit, parent)["verdict"] == "regression"


@pytest.mark.train
@pytest.mark.long
def test_the_slow_collator_learns_the_same_more_slowly(tmp_path: Path) -> None:
    planted = bench(tmp_path, {"slow": 33})
    ratios = []
    for again in range(3):
        options = ("--set", f"description=run {again}")
        parent, culprit = (planted.run(place, *options) for place in (32, 33))
        found = planted.compare(culprit, parent)
        assert not found["first_difference"]
        times = [run.record().perf.step_time.median for run in (parent, culprit)]
        ratios.append(times[1] / times[0])
    assert 1.2 < sorted(ratios)[1] < 1.6, ratios


@pytest.mark.train
@pytest.mark.long
def test_the_crash_ends_the_training_after_it_began(tmp_path: Path) -> None:
    planted = bench(tmp_path, {"crash": 33})
    parent, culprit = (planted.run(place, *ONLY_LOOK) for place in (32, 33))
    assert parent.code == 0
    assert culprit.code == 4
    assert "IndexError" in culprit.err
