"""The arguments: what is refused before anything runs, and in which folder it continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary.bisect.bisect import BisectRequest, _folder, described, recipe_of, run_bisect
from canary.bisect.finding import Found
from canary.bisect.model import Answer
from canary.compare.diagnosis.suspects import Diagnosis, Evidence, RegressionCategory, Suspect
from canary.compare.report import Comparison
from canary.errors import UsageError
from tests.unit.bisect.workshop import Repository

CONFIG = "name: theirs\ncommand: [python, train.py]\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Four commits; the config comes with the second one."""
    made = Repository(tmp_path / "theirs")
    made.commit("c0", {"train.py": "pass\n"})
    for number in (1, 2, 3):
        made.commit(f"c{number}", {"canary.yaml": CONFIG, "train.py": f"pass\nx = {number}\n"})
    monkeypatch.chdir(made.root)
    return made


def request(good: str = "HEAD~2", **rest: Any) -> BisectRequest:
    return BisectRequest(Path("canary.yaml"), good, "HEAD", **rest)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request(budget_minutes=0), "--budget must be more than 0 minutes, got 0"),
        (request(settings=("repeats=3",)), "--set repeats=3 does not work with bisect"),
        (request(check="sped"), "unknown check 'sped'"),
        (request(good="HEAD~3"), "canary.yaml is not in the good commit"),
        (BisectRequest(Path("none.yaml"), "HEAD~2", "HEAD"), "no config at none.yaml"),
        (request(good="HEAD"), "are the same commit"),
    ],
)
def test_it_is_refused_before_anything_runs(
    made: Repository, asked: BisectRequest, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        run_bisect(asked, lambda line: None)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (made.root / "canary_output").exists()


def test_a_config_outside_the_repository_runs_everywhere(made: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "mine.yaml"
    outside.write_text(CONFIG)
    history = made.between("HEAD~3", "HEAD")
    asked = BisectRequest(outside, "HEAD~3", "HEAD")
    assert recipe_of(asked, history, made.root).everywhere
    assert not recipe_of(request(), made.between("HEAD~2", "HEAD"), made.root).everywhere


def test_equal_arguments_find_their_folder_again(made: Repository) -> None:
    def folder(**rest: Any) -> Path:
        asked = request(**rest)
        history = made.between(asked.good, asked.bad)
        return _folder(asked, history, made.root / "canary.yaml", made.root)

    first = folder()
    first.mkdir(parents=True)
    assert folder() == first
    assert folder(budget_minutes=5.0) == first
    assert folder(good=made.git("rev-parse", "HEAD~2")) == first
    for other in ({"check": "data"}, {"setup": "make"}, {"settings": ("seed=2",)}):
        assert folder(**other) != first
    assert folder(good="HEAD~1") != first
    assert folder(output_dir=Path("mine")) == made.root / "mine"


def compared(line: int | None, path: str = "theirs/train.py") -> Comparison:
    evidence = (Evidence("code", "changed", path=path, line=line),)
    suspect = Suspect(RegressionCategory.DATA, 0.9, "it", evidence)
    return Comparison("regression", "", diagnosis=Diagnosis("", (suspect,)))


def result(last: Comparison | None, words: str = "") -> Found:
    answer = Answer((1,), 1.0, True)
    return Found(answer, Comparison("regression", ""), last=last, last_words=words)


def test_a_commit_is_described_with_the_line_that_the_diagnosis_names(made: Repository) -> None:
    history = made.between("HEAD~2", "HEAD")
    told = described(history, 1, result(compared(2)))
    assert told.title.startswith(history.bad[:9])
    assert "c3" in told.title
    assert told.lines == ("train.py:2: x = 3",)
    assert told.facts["file"] == "train.py"
    assert told.facts["line"] == 2
    assert json.dumps(dict(told.facts))


def test_a_small_commit_is_described_with_all_its_lines_if_none_is_named(
    made: Repository,
) -> None:
    told = described(made.between("HEAD~2", "HEAD"), 1, result(compared(2, "other.py")))
    assert told.lines == ("train.py:2: x = 3",)


def test_a_commit_that_crashes_is_described_with_the_lines_where_it_does(made: Repository) -> None:
    made.commit("c4", {"train.py": "\n".join(f"y = {i}" for i in range(10))})
    words = "without it: it completes; with it: failed: ValueError: x (at train.py:4), after step 1"
    told = described(made.between("HEAD~3", "HEAD"), 2, result(None, words))
    assert told.lines == ("train.py:4: y = 3", "train.py:5: y = 4", "train.py:6: y = 5")
