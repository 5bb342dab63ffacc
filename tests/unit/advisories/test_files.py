"""Every advisory that ships: its schema, its range, its sources, and that none is there twice."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import ValidationError

from canary.advisories.advisory import FAULTS, Advisory, advisories, read_advisory
from canary.advisories.choice import chosen
from canary.advisories.keys import OTHER
from canary.errors import UsageError
from canary.relations import RELATIONS

FILES = sorted(FAULTS.iterdir())
COMING = {
    *("ranks", "compile", "prompt_labels", "assistant_mask", "swap"),
    *("sampler_logprobs", "sampler_weights", "reward_function"),
}
"""Relations that are planned; the program names only those that it has."""
MOST_WORDS = 25
FIRST_READ = date(2026, 11, 25)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_an_advisory_with_a_source(path: Path) -> None:
    one = read_advisory(path)
    assert one.read >= FIRST_READ
    assert one.relation is None or one.relation in RELATIONS or one.relation in COMING
    for link in (one.issue, one.fix):
        assert link is None or re.search(r"/(issues|pull|blob|releases)/", link), link
    # A range that is bounded above names what ended it.
    bounded = any(part.operator in ("<", "<=", "==") for part in SpecifierSet(one.versions))
    assert bounded == (one.fix is not None) or one.id == "torch-sequential-zero", one.id
    for sentence in re.split(r"(?<=[.:;])\s+", f"{one.wrong} {one.remedy}"):
        assert len(sentence.split()) <= MOST_WORDS, sentence
    assert one.wrong.endswith(".")
    assert one.remedy.endswith(".")


def test_no_advisory_is_there_twice() -> None:
    listed = advisories()
    assert len({one.id for one in listed}) == len(listed) == len(FILES)
    assert len({(one.package, one.wrong) for one in listed}) == len(listed)


def test_each_of_the_ten_packages_has_an_advisory() -> None:
    assert len({one.package for one in advisories()}) == 10
    assert len(advisories()) >= 40


@pytest.mark.parametrize("one", advisories(), ids=lambda one: one.id)
def test_a_range_has_versions(one: Advisory) -> None:
    ends = [Version(part.version.replace("*", "0")) for part in SpecifierSet(one.versions)]
    tried = [*ends, *(Version(f"{end.major}.{end.minor}.{end.micro + 1}") for end in ends)]
    tried += [Version("0.0.1"), Version("999")]
    assert any(SpecifierSet(one.versions).contains(version) for version in tried)


GOOD = yaml.safe_load((FAULTS / "trl-dropout-functional.yaml").read_text())


@pytest.mark.parametrize(
    "change",
    [
        {"versions": "newer than 2"},
        {"versions": ""},
        {"package": "numpy"},
        {"issue": "http://example.org/issues/1"},
        {"issue": None, "fix": None},
        {"condition": {"training.no_such_argument": 1}},
        {"condition": {"trainer": "no_trainer"}},
        {"condition": {"training.max_length": "> many"}},
        {"condition": {"package.torch": "new"}},
        {"condition": {"trainer": []}},
        {"condition": {"training.packing": {"code": "print(1)"}}},
        {"id": "other-dropout"},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_wrong_advisory_is_refused(change: dict[str, object]) -> None:
    Advisory.model_validate(GOOD)
    with pytest.raises(ValidationError):
        Advisory.model_validate({**GOOD, **change})


def test_a_file_holds_the_advisory_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "trl-other.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    with pytest.raises(ValueError, match=r"trl-other\.yaml holds trl-dropout-functional"):
        read_advisory(path)


def test_a_package_is_chosen_and_a_misspelt_one_is_named() -> None:
    assert {one.package for one in chosen(["peft"])} == {"peft"}
    assert chosen([]) == advisories()
    with pytest.raises(UsageError, match=r"no known fault is about it.*did you mean 'peft'"):
        chosen(["pefd"])


def test_every_key_without_a_namespace_is_used() -> None:
    used = {key for one in advisories() for key in one.condition}
    assert set(OTHER) <= used
