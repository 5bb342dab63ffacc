"""`canary bisect` on a real repository of 40 commits, with faults at known places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.bisect.answers import (
    FOUND,
    LONGEST_S,
    NOT_FOUND,
    WRONG_QUESTION,
    Answer,
    bisect,
    ends,
    runs_left,
)
from tests.integration.bisect.repository import (
    COMMITS,
    MISSING_FILE,
    NO_SETUP,
    SYNTAX_ERROR,
    Fault,
    Repository,
    build_repository,
    git,
    parents_of,
)

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(LONGEST_S)]

MOST_CANDIDATES = math.floor(math.log2(COMMITS - 1) + 2)
SIDE, BEFORE_BROKEN, MERGE = 17, 11, 20
"""Inside a side branch, just before two commits that do not run, in a merge."""


@dataclass(frozen=True)
class Bisected:
    """A repository and what a bisect said of it."""

    repository: Repository
    answer: Answer

    def is_at(self, position: int) -> bool:
        """Whether it names this commit and no other."""
        commit = self.repository.commits[position]
        return self.answer.commit == commit and self.answer.commits == {commit}


def bisected(
    root: Path, faults: dict[Fault, int], *options: str, config: str = "canary.yaml"
) -> Bisected:
    repository = build_repository(root, faults)
    return Bisected(repository, bisect(root, config, *ends(repository), *options))


@dataclass(frozen=True)
class Before:
    """A user's checkout before a bisect."""

    status: str
    references: str


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bisected, Before]:
    """Masked end labels from a side branch, in a checkout with changes of its own."""
    root = tmp_path_factory.mktemp("masked") / "theirs"
    repository = build_repository(root, {"eos": SIDE})
    (root / "trainlab" / "data" / "batching.py").write_text("changed, and not committed\n")
    (root / "new.txt").write_text("untracked\n")
    before = Before(git(root, "status", "--porcelain"), git(root, "for-each-ref"))
    found = bisect(root, "canary.yaml", *ends(repository))
    return Bisected(repository, found), before


def test_the_commit_in_a_side_branch_is_found(masked: tuple[Bisected, Before]) -> None:
    found, _ = masked
    assert found.answer.code == FOUND, found.answer.finished.err
    assert found.is_at(SIDE)


def test_it_takes_few_candidates(masked: tuple[Bisected, Before]) -> None:
    found, _ = masked
    assert 1 <= found.answer.candidates <= MOST_CANDIDATES
    tried = set(runs_left(found.repository).values())
    tried -= {found.repository.first, found.repository.last}
    assert 1 <= len(tried) <= MOST_CANDIDATES, "the runs themselves say so too"


def test_the_last_step_is_pairs_of_the_culprit_and_its_parent(
    masked: tuple[Bisected, Before],
) -> None:
    found, _ = masked
    ran = list(runs_left(found.repository).values())
    commits = found.repository.commits
    for position in (SIDE, *parents_of(SIDE)):
        assert ran.count(commits[position]) >= 2, "run once, and again in a pair"
    assert found.answer.runs >= found.answer.candidates + 2 + 2


def test_the_answer_has_evidence_and_the_line(masked: tuple[Bisected, Before]) -> None:
    found, _ = masked
    assert "EOS labels are masked" in found.answer.finished.out
    assert "trainlab/data/collate.py" in found.answer.finished.out
    assert "Use one constant for ignored labels" in found.answer.finished.out


def test_the_checkout_is_untouched_and_no_worktree_is_left(
    masked: tuple[Bisected, Before],
) -> None:
    found, before = masked
    root = found.repository.root
    assert Before(git(root, "status", "--porcelain"), git(root, "for-each-ref")) == before
    assert git(root, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert (root / "trainlab/data/batching.py").read_text() == "changed, and not committed\n"
    assert len(git(root, "worktree", "list").splitlines()) == 1
    assert not (root / ".git" / "BISECT_START").exists()


@pytest.mark.parametrize(
    ("fault", "position", "config"),
    [("rate", BEFORE_BROKEN, "script.yaml"), ("eos", MERGE, "canary.yaml")],
)
@pytest.mark.long
def test_an_exact_fault_is_found_with_few_candidates(
    tmp_path: Path, fault: Fault, position: int, config: str
) -> None:
    found = bisected(tmp_path / "theirs", {fault: position}, config=config)
    assert found.answer.code == FOUND, found.answer.finished.err
    assert found.is_at(position)
    assert found.answer.candidates <= MOST_CANDIDATES


@pytest.mark.long
def test_a_slow_collator_is_found(tmp_path: Path) -> None:
    position = 25
    found = bisected(tmp_path / "theirs", {"slow": position})
    assert found.answer.code == FOUND, found.answer.finished.err
    assert found.is_at(position)
    assert found.answer.document["stages"][0]["probability"] >= 0.9
    low, high = found.answer.last_step["check"]["interval"]
    assert 0 < low < high


@pytest.mark.long
def test_commits_that_do_not_run_give_a_range_that_holds_the_fault(tmp_path: Path) -> None:
    found = bisected(tmp_path / "theirs", {"eos": MISSING_FILE})
    commits = found.repository.commits
    assert found.answer.code in (FOUND, NOT_FOUND), found.answer.finished.err
    assert found.answer.culprit is None, "the commit itself was never run"
    hidden = {commits[place] for place in (SYNTAX_ERROR, MISSING_FILE, MISSING_FILE + 1)}
    assert found.answer.commits == hidden
    assert found.answer.candidates <= MOST_CANDIDATES


@pytest.mark.long
def test_a_setup_that_fails_is_a_commit_that_does_not_run(tmp_path: Path) -> None:
    fault = NO_SETUP + 1
    found = bisected(tmp_path / "theirs", {"rate": fault}, "--setup", "sh setup.sh")
    commits = found.repository.commits
    assert found.answer.commits == {commits[NO_SETUP], commits[fault]}
    assert found.answer.candidates <= MOST_CANDIDATES


@pytest.mark.long
def test_a_crash_is_not_confused_with_commits_that_do_not_run(tmp_path: Path) -> None:
    """Some commits before it fail too, for other reasons."""
    position = 30
    found = bisected(tmp_path / "theirs", {"crash": position})
    assert found.answer.code == FOUND, found.answer.finished.err
    assert found.is_at(position)
    assert "IndexError" in found.answer.finished.out


@pytest.mark.long
def test_a_check_by_name_looks_at_nothing_else(tmp_path: Path) -> None:
    """The first commit that differs is not the one that is asked for."""
    faults: dict[Fault, int] = {"rate": 8, "eos": 33}
    found = bisected(tmp_path / "theirs", faults, "--check", "labels_contain_eos")
    assert found.answer.code == FOUND, found.answer.finished.err
    assert found.is_at(33)


@pytest.mark.long
def test_a_clean_range_says_that_the_ends_do_not_differ(tmp_path: Path) -> None:
    repository = build_repository(tmp_path / "theirs")
    found = bisect(repository.root, "canary.yaml", *ends(repository))
    assert found.code == WRONG_QUESTION
    assert "nothing is worse between the ends" in found.text
    assert "Traceback" not in found.finished.err
    assert set(runs_left(repository).values()) == {repository.first, repository.last}
    assert len(git(repository.root, "worktree", "list").splitlines()) == 1
