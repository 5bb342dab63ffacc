"""The corpora of `canary check`: complete and all different."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.check_corpus import preference_cases, scripts_cases, second_cases, third_cases
from bench.check_corpus.case import HERE, Case

FIRST = (*scripts_cases.CASES, *preference_cases.CASES)
SECOND = second_cases.CASES
THIRD = third_cases.CASES


@pytest.mark.parametrize(
    ("cases", "faults", "healthy"), [(FIRST, 42, 21), (SECOND, 24, 12), (THIRD, 20, 20)]
)
def test_a_corpus_has_its_cases(cases: tuple[Case, ...], faults: int, healthy: int) -> None:
    assert sum(not case.healthy for case in cases) == faults
    assert sum(case.healthy for case in cases) == healthy
    assert all(case.source.removeprefix("mutation of ").startswith("https://") for case in cases)
    assert [case.name for case in cases if not case.path.is_file()] == []


def test_no_two_cases_have_one_name_or_one_file() -> None:
    names = Counter(case.name for case in (*FIRST, *SECOND, *THIRD))
    files = Counter(case.path for case in (*FIRST, *SECOND, *THIRD))
    assert [*(names - Counter(set(names))), *(files - Counter(set(files)))] == []


def test_each_script_and_config_of_later_corpora_belongs_to_a_case() -> None:
    helpers = {"__init__.py", "kitchen.py"}
    folder = HERE / "scripts" / "second"
    assert {path.name for path in folder.glob("*.py")} - helpers == {
        case.path.name for case in SECOND if case.script
    }
    third = {path.name for path in (HERE / "scripts").glob("t_*.py")}
    assert third == {case.path.name for case in THIRD}
    configs = {path.name for path in (HERE / "configs").glob("*.yaml")}
    assert configs == {Path(case.config).name for case in (*FIRST, *SECOND) if case.config}
