"""Which commits are probable before any of them ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.bisect.commits import Commit
from canary.bisect.prior import Named, prior_of, weight_of
from canary.compare.diagnosis.suspects import Diagnosis, Evidence, RegressionCategory, Suspect
from canary.compare.report import Comparison, KeyChange
from tests.unit.bisect.workshop import Repository

COMMIT = Commit("a" * 40, ("b" * 40,), "2026-01-01", "subject")
DATA = Named(RegressionCategory.DATA, 0.9)


def ends(category: RegressionCategory, *paths: str, keys: tuple[str, ...] = ()) -> Comparison:
    evidence = tuple(Evidence("code", "changed", path=path, line=3) for path in paths)
    suspect = Suspect(category, 0.9, "what happened", evidence)
    changes = tuple(KeyChange(key, 1, 2) for key in keys)
    return Comparison("regression", "", config_changes=changes, diagnosis=Diagnosis("", (suspect,)))


@pytest.mark.parametrize(
    ("category", "likely", "unlikely"),
    [
        ("data", "src/collate.py", "src/model.py"),
        ("optimizer", "configs/base.yaml", "src/model.py"),
        ("environment", "requirements/train.txt", "src/model.py"),
        ("rollout", "src/generate.py", "src/logger.py"),
    ],
)
def test_a_cause_weighs_the_files_that_it_is_about(
    category: str, likely: str, unlikely: str
) -> None:
    named = Named(RegressionCategory(category), 0.9)
    assert weight_of(COMMIT, [likely], named) > 3 * weight_of(COMMIT, [unlikely], named)


@pytest.mark.parametrize(
    "files",
    [["docs/x.py", "tests/test_a.py"], []],
)
def test_documentation_tests_and_empty_commits_weigh_less_but_never_zero(files: list[str]) -> None:
    assert 0 < weight_of(COMMIT, files, DATA) < 0.2


def test_the_prior_adds_up_and_follows_the_diagnosis(tmp_path: Path) -> None:
    made = Repository(tmp_path)
    made.commit("good", {"canary.yaml": "lr: 1\n"})
    made.commit("docs", {"README.md": "x"})
    made.commit("model", {"model.py": "x"})
    made.commit("other key", {"canary.yaml": "lr: 1\nseed: 2\n"})
    made.commit("the key", {"canary.yaml": "lr: 2\nseed: 2\n"})
    history = made.between("HEAD~4", "HEAD")
    prior = prior_of(history, ends(RegressionCategory.OPTIMIZER, keys=("lr",)))
    by_name = {c.subject: p for c, p in zip(history.commits, prior, strict=True)}
    assert sum(prior) == pytest.approx(1.0)
    order = sorted(by_name, key=lambda name: by_name[name])
    assert order == ["docs", "model", "other key", "the key"]
