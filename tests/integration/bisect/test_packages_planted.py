"""`canary bisect --packages` on twelve real packages with what is planted in their versions."""

from __future__ import annotations

import math
from importlib import metadata
from pathlib import Path

import pytest

from tests.integration.bisect.answers import (
    FOUND,
    LONGEST_S,
    Answer,
    bisect,
)
from tests.integration.bisect.packages import (
    BAD,
    GOOD,
    NOTES,
    RATE_VERSIONS,
    RATES,
    VERSIONS,
    Plan,
    build_packages,
    freeze,
    write_project,
)
from tests.integration.bisect.repository import git

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(LONGEST_S)]

FIRST_BAD = "1.10.0"
BEFORE_IT = "1.9.2"
MOST_CANDIDATES = math.floor(math.log2(len(VERSIONS)) + math.log2(len(RATE_VERSIONS) - 1)) + 4
"""Halving the packages, then the versions; and room for sets that do not go together."""


def of_freezes(project: Path, plan: Plan, *options: str) -> Answer:
    """A bisect between two outputs of `pip freeze`."""
    for name, versions in (("good.txt", GOOD), ("bad.txt", BAD)):
        (project / name).write_text(freeze(versions))
    links = ("--find-links", str(build_packages(project.parent / "wheels", plan)))
    words = ("canary.yaml", "--packages", "good.txt", "bad.txt", *links, *options)
    return bisect(project, *words)


@pytest.fixture(scope="module")
def default_changed(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """One default changed in one version; others neither install nor import."""
    unusable = Plan(
        rate=FIRST_BAD,
        corrupt=frozenset({"1.7.1"}),
        other_python=frozenset({"1.6.0", "1.11.2"}),
        no_import=frozenset({"1.8.2"}),
    )
    return of_freezes(write_project(tmp_path_factory.mktemp("default") / "project"), unusable)


def test_package_and_version_are_found(default_changed: Answer) -> None:
    assert default_changed.code == FOUND, default_changed.finished.err
    assert default_changed.package == (RATES, FIRST_BAD)


def test_the_answer_names_the_version_before_and_the_release_notes(
    default_changed: Answer,
) -> None:
    text = default_changed.finished.out
    assert BEFORE_IT in text
    assert NOTES in text
    assert "learning rate" in text


def test_it_takes_few_candidates(default_changed: Answer) -> None:
    assert 1 <= default_changed.candidates <= MOST_CANDIDATES


def test_nothing_is_installed_into_this_python(default_changed: Answer) -> None:
    names = {package.name for package in metadata.distributions()}
    assert not names & set(VERSIONS)


@pytest.mark.parametrize("guilty", ["commits", "packages"])
@pytest.mark.long
def test_both_axes_say_whether_code_or_environment_did_it(tmp_path: Path, guilty: str) -> None:
    root = write_project(tmp_path / "project")
    git(root, "init", "-q", "-b", "main")
    commits = []
    for number in range(6):
        (root / "notes.md").write_text(f"note {number}\n")
        if number == 4 and guilty == "commits":
            code = (root / "train.py").read_text()
            (root / "train.py").write_text(code.replace("FACTOR = 1.0", "FACTOR = 2.0"))
        git(root, "add", "-A")
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        git(root, *who, "commit", "-qm", f"note {number}")
        commits.append(git(root, "rev-parse", "HEAD"))
    options = ("--commits", "--good", commits[0], "--bad", commits[-1])
    plan = Plan(rate=FIRST_BAD if guilty == "packages" else None)
    found = of_freezes(root, plan, *options)
    assert found.code == FOUND, found.finished.err
    if guilty == "commits":
        assert found.document["commit"]["sha"] == commits[4]
    else:
        assert found.package == (RATES, FIRST_BAD)
