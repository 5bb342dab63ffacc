"""A changed package that moved into a known fault, or out of it, is evidence."""

from __future__ import annotations

import pytest

from canary.compare.diagnosis.known_faults import TABLE, table
from canary.compare.stats import compare_to_baseline
from canary.machine.packages import PACKAGES
from canary.record.types import RunRecord
from tests.unit.comparing import altered
from tests.unit.diagnosing import OTHER_LOSS, changed, sides


def of_versions(record: RunRecord, **versions: str | None) -> RunRecord:
    return altered(record, "env", "packages", to={**record.env["packages"], **versions})


def moved(was: dict[str, str | None], now: dict[str, str | None]) -> str:
    """The evidence of a run with another loss, whose packages changed."""
    before, after = sides()
    current = of_versions(changed(after, *OTHER_LOSS), **now)
    found = compare_to_baseline(current, of_versions(before, **was), gates=()).diagnosis
    return "\n".join(one.message for suspect in found.suspects for one in suspect.evidence)


def test_a_package_that_moved_into_a_fault_is_said_with_remedy_and_source() -> None:
    assert (
        "datasets 4.7.0 -> 4.8.5 has a known fault (datasets-skip-blocks), if you skip rows of a "
        "stream: skip() on a stream goes wrong where it must skip a whole Arrow block. Other rows "
        "are skipped than asked for. Upgrade to datasets 5.0. "
        "https://github.com/huggingface/datasets/pull/8236"
    ) in moved({"datasets": "4.7.0"}, {"datasets": "4.8.5"})


def test_a_package_that_left_a_fault_is_said_too() -> None:
    told = moved({"torch": "2.12.1+cpu"}, {"torch": "2.12.9.dev1"})
    assert "known fault" not in told
    told = moved({"torch": "2.12.1+cpu"}, {"torch": "2.13.0+cpu"})
    assert "removes a known fault, which changes results (torch-sequential-zero)" in told
    assert "has a known fault (torch-sequential-nested)" in told


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ({"datasets": "4.8.1"}, {"datasets": "4.8.2"}),
        ({"numpy": "1.0"}, {"numpy": "9.9"}),
        ({"vllm": None}, {"vllm": "0.9.0"}),
        ({"datasets": "4.7.0"}, {"datasets": "not a version"}),
        ({"torch": "1" * 5000}, {"torch": "2" * 5000}),
    ],
    ids=["both sides have it", "another package", "new package", "no version", "endless version"],
)
def test_another_change_names_no_fault(
    was: dict[str, str | None], now: dict[str, str | None]
) -> None:
    assert "known fault" not in moved(was, now)


def test_no_more_than_four_are_named() -> None:
    told = moved({"datasets": "3.2.0"}, {"datasets": "4.8.1"})
    assert len({line for line in told.splitlines() if "known fault" in line}) == 4


def test_the_table_names_packages_that_a_record_has_and_each_fault_once() -> None:
    assert {fault.package for fault in table().values()} <= {*PACKAGES}
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    assert len(table()) == sum(line.startswith("  package:") for line in lines)
