"""The small packages are what they say: what is planted shows, all else changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.bisect.installing import Shelf, install
from tests.integration.bisect.packages import (
    BAD,
    GOOD,
    LABELS,
    MASKS,
    RATE_VERSIONS,
    RATES,
    TEXT,
    VERSIONS,
    VOCAB,
    Plan,
    Versions,
    build_packages,
)
from tests.integration.conftest import canary

ONLY_PROBE = ("--set", "repeats=0")
SERIES_2 = {TEXT: "2.0.0", VOCAB: "2.0.0"}


def compared(shelf: Shelf, current: Versions, baseline: Versions) -> dict:
    runs = [shelf.run(versions, *ONLY_PROBE) for versions in (current, baseline)]
    for run in runs:
        assert run.code == 0, run.err
    found = canary("compare", *(str(run.folder) for run in runs), "--format", "json")
    return json.loads(found.out)


def test_there_are_twelve_and_one_has_thirty_versions(tmp_path: Path) -> None:
    assert len(VERSIONS) == 12
    assert len(VERSIONS[RATES]) == 30
    assert sorted(RATE_VERSIONS) != list(RATE_VERSIONS), "letters are not the order of release"
    assert all(2 <= len(versions) <= 5 for name, versions in VERSIONS.items() if name != RATES)
    built = sorted(build_packages(tmp_path / "wheels", Plan()).iterdir())
    assert len(built) == sum(map(len, VERSIONS.values()))
    again = sorted(build_packages(tmp_path / "again", Plan()).iterdir())
    assert [path.read_bytes() for path in built] == [path.read_bytes() for path in again]


def test_one_pair_installs_only_together(tmp_path: Path) -> None:
    links = build_packages(tmp_path / "wheels", Plan())
    for number, mixed in enumerate(({TEXT: "2.0.0"}, {VOCAB: "2.0.0"})):
        refused = install(tmp_path / f"set{number}", links, {**GOOD, **mixed})
        assert refused.returncode != 0
        assert "conflict" in refused.stderr.lower()
    assert install(tmp_path / "both", links, {**GOOD, **SERIES_2}).returncode == 0


def test_some_versions_do_not_install(tmp_path: Path) -> None:
    plan = Plan(corrupt=frozenset({"1.7.1"}), other_python=frozenset({"1.8.0"}))
    links = build_packages(tmp_path / "wheels", plan)
    codes = {
        version: install(tmp_path / version, links, {RATES: version}).returncode
        for version in ("1.7.0", "1.7.1", "1.8.0", "1.8.1")
    }
    assert [code == 0 for code in codes.values()] == [True, False, False, True]


@pytest.mark.train
@pytest.mark.long
def test_without_a_plan_nothing_changes_what_is_learned(tmp_path: Path) -> None:
    found = compared(Shelf(tmp_path, Plan()), BAD, GOOD)
    assert found["first_line"].startswith("Learns the same")


@pytest.mark.train
@pytest.mark.long
def test_a_default_changes_at_one_version(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, Plan(rate="1.10.0"))
    before, culprit = ({**BAD, RATES: version} for version in ("1.9.2", "1.10.0"))
    found = compared(shelf, culprit, before)
    assert "learning rate 0.0005 -> 0.001" in found["first_line"]
    assert compared(shelf, before, GOOD)["first_line"].startswith("Learns the same")
    assert compared(shelf, BAD, culprit)["first_line"].startswith("Learns the same")


@pytest.mark.train
@pytest.mark.long
def test_two_packages_are_only_bad_together(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, Plan(together=True))
    new = {MASKS: BAD[MASKS], LABELS: BAD[LABELS]}
    for name, version in new.items():
        alone = compared(shelf, {**GOOD, name: version}, GOOD)
        assert alone["first_line"].startswith("Learns the same")
    both = compared(shelf, {**GOOD, **new}, GOOD)
    assert "first_loss" in {one["stage"] for one in both["differences"]}


@pytest.mark.train
@pytest.mark.long
def test_other_tokens_come_with_both_of_the_pair(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, Plan(text=True))
    found = compared(shelf, {**GOOD, **SERIES_2}, GOOD)
    assert not found["first_line"].startswith("Learns the same")


@pytest.mark.train
@pytest.mark.long
def test_a_version_that_cannot_be_imported_ends_the_training(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, Plan(no_import=frozenset({"1.7.0"})))
    ended = shelf.run({**GOOD, RATES: "1.7.0"}, *ONLY_PROBE)
    assert ended.code == 4
    assert "lab_rates_of_old" in ended.err
