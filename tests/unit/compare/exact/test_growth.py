"""Growth of live tensors: a leak whole, one release or one late buffer not at all."""

from __future__ import annotations

import pytest

from canary.compare.exact.counts import tensor_growth
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import altered, plain, record


@pytest.mark.parametrize(
    ("counts", "growth"),
    [([125, 104, 104, 104], 0.0), ([104, 106, 108, 110], 2.0), ([125, 104, 106, 108], 2.0)],
)
def test_a_release_is_no_growth_and_hides_none(counts: list[int], growth: float) -> None:
    assert tensor_growth(counts) == pytest.approx(growth)


@pytest.mark.parametrize(
    ("before_kb", "after_kb", "status"),
    [(7, 13.5, "pass"), (7, 150, "fail"), (1000, 1050, "pass"), (1000, 1300, "fail")],
)
def test_live_memory_of_a_tiny_model_may_grow_by_kilobytes(
    before_kb: float, after_kb: float, status: str
) -> None:
    def holding(kb: float, number: int) -> RunRecord:
        now = {"start_bytes": 0, "live_bytes": [int(1000 * kb)] * 12}
        held = {**plain(record(number))["memory"], **now}
        return altered(record(number), "exact", "memory", to=held)

    found = compare_to_baseline(holding(after_kb, 9), holding(before_kb, 0))
    assert found.check("live_memory").status == status, found.check("live_memory").message
