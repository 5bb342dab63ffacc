"""The packages of two runs: what both imported is compared, and nothing else."""

from __future__ import annotations

from canary.compare.place_words import sentence
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import altered, record

BEFORE = record(1)
FAULT = altered(record(2), "exact", "first_loss", "loss", to=2.3)
PLANTED = "planted"


def with_packages(run: RunRecord, **versions: str | None) -> RunRecord:
    return altered(run, "env", "packages", to={**run.env["packages"], **versions})


def compared(current: RunRecord, baseline: RunRecord = BEFORE) -> Comparison:
    return compare_to_baseline(current, baseline, gates=())


def test_a_package_that_one_side_imported_is_shown_and_explains_nothing() -> None:
    for found in (
        compared(with_packages(FAULT, planted="0.4.6")),
        compared(FAULT, with_packages(BEFORE, planted="0.4.6")),
    ):
        assert found.verdict == "changed"
        assert found.first_difference is not None
        assert found.first_difference.stage == "first_loss"
        assert PLANTED not in found.first_line
        assert [(c.key, c.cosmetic) for c in found.environment_changes] == [
            ("packages.planted", True)
        ]


def test_another_version_of_what_both_sides_imported_is_a_difference() -> None:
    old, new = with_packages(BEFORE, planted="0.4.5"), with_packages(FAULT, planted="0.4.6")
    found = compared(new, old)
    assert found.verdict == "changed"
    (place,) = found.places.ran
    assert sentence(place) == "packages.planted: 0.4.5 -> 0.4.6"


def test_what_one_side_imported_accepts_no_further_work() -> None:
    """As an upgrade does, which may read more often."""
    reads = FAULT.exact["work"]["host_reads"]
    current = altered(FAULT, "exact", "work", "host_reads", to=reads + 100)
    current = altered(current, "config", "learning_rate", to=1.0)
    assert compared(with_packages(current, planted="1")).check("host_reads").status == "fail"
    upgraded = compared(with_packages(current, planted="2"), with_packages(BEFORE, planted="1"))
    assert upgraded.check("host_reads").status == "changed"
