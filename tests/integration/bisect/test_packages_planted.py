"""`canary bisect --packages` on twelve real packages with what is planted in their versions."""

from __future__ import annotations

import math
from importlib import metadata
from pathlib import Path

import pytest

from tests.integration.bisect.answers import FOUND, LONGEST_S, Answer, bisect
from tests.integration.bisect.packages import (
    BAD,
    GOOD,
    RATE_VERSIONS,
    RATES,
    VERSIONS,
    Plan,
    build_packages,
    freeze,
    write_project,
)

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(LONGEST_S)]

FIRST_BAD = "1.10.0"
BEFORE_IT = "1.9.2"
MOST_CANDIDATES = math.floor(math.log2(len(VERSIONS)) + math.log2(len(RATE_VERSIONS) - 1)) + 4
"""Halving the packages, then the versions; and room for sets that do not go together."""


def of_freezes(project: Path, plan: Plan) -> Answer:
    """A bisect between two outputs of `pip freeze`."""
    for name, versions in (("good.txt", GOOD), ("bad.txt", BAD)):
        (project / name).write_text(freeze(versions))
    wheels = build_packages(project.parent / "wheels", plan)
    return bisect(project, "canary.yaml", "--packages", "good.txt", "bad.txt", wheels=wheels)


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


def test_the_answer_names_the_version_before_and_the_cause(default_changed: Answer) -> None:
    text = default_changed.finished.out
    assert BEFORE_IT in text
    assert "learning rate" in text


def test_it_takes_few_candidates(default_changed: Answer) -> None:
    assert 1 <= default_changed.candidates <= MOST_CANDIDATES


def test_nothing_is_installed_into_this_python(default_changed: Answer) -> None:
    names = {package.name for package in metadata.distributions()}
    assert not names & set(VERSIONS)
