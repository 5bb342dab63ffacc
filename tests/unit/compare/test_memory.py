"""Memory that grows while training, and what the allocator reserves."""

from __future__ import annotations

import math

import pytest

from canary.compare.exact.counts import tensor_growth
from canary.compare.report import Check
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.record.types import RunRecord
from tests.unit.comparing import MB, altered, growing, on_gpu, plain, record

NOW, BEFORE = record(100), record(0)
FLAT = growing(BEFORE, 0.0, 0.05)


def growth(current: RunRecord, *baseline: RunRecord) -> Check:
    return compare_to_baseline(current, baseline).check("memory_growth")


def test_a_leak_fails() -> None:
    made = growth(growing(NOW, 1.0, 0.05), FLAT)
    assert made.status == "fail"
    assert ": a leak" in made.message
    assert made.delta == pytest.approx(1.0)
    half = math.hypot(0.05, 0.05)
    assert made.interval == pytest.approx((1.0 - half, 1.0 + half))
    assert made.unit == "MB/step"


def test_noise_of_an_allocator_is_no_leak() -> None:
    assert growth(growing(NOW, 1.0, 3.0), FLAT).status == "pass"
    assert growth(growing(NOW, 0.3, 0.01), FLAT).status == "pass"
    assert growth(growing(NOW, -2.0, 0.01), FLAT).status == "pass"


def test_a_leak_of_uncertain_size_warns() -> None:
    assert growth(growing(NOW, 1.0, 0.7), FLAT).status == "warn"


def test_a_leak_that_the_baseline_has_too_is_not_the_changes() -> None:
    leaking = growing(BEFORE, 3.0, 0.05)
    assert growth(growing(NOW, 3.1, 0.05), leaking).status == "pass"
    assert growth(growing(NOW, 4.0, 0.05), leaking).status == "fail"


def test_resident_memory_has_a_grain_of_48_mb_a_run() -> None:
    flat = growing(BEFORE, 0.0, 0.001, "resident")
    assert growth(growing(NOW, 1.0, 0.001, "resident"), flat).status == "warn"
    assert growth(growing(NOW, 1.5, 0.001, "resident"), flat).status == "fail"


def test_slopes_of_two_kinds_or_lost_ones_are_not_passed() -> None:
    resident = growing(BEFORE, 0.0, 0.01, "resident")
    assert growth(growing(NOW, 9.0, 0.01), resident).status == "inconclusive"
    assert growth(altered(NOW, "memory", "growth", to=None), FLAT).status == "inconclusive"
    unseen = altered(BEFORE, "memory", "growth", to=None)
    assert growth(growing(NOW, 9.0, 0.01), unseen).status == "skip"


def reserving(number: int, mb: float) -> RunRecord:
    return altered(on_gpu(record(number)), "memory", "peak_reserved_bytes", to=int(mb * MB))


def reserved(
    *mb: float, before: tuple[float, ...] = (1000.0,), thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> Check:
    current = [reserving(100 + place, value) for place, value in enumerate(mb)]
    baseline = [reserving(place, value) for place, value in enumerate(before)]
    return compare_to_baseline(current, baseline, thresholds).check("reserved_memory")


def test_reservation_beyond_the_tolerance_of_memory_fails() -> None:
    assert reserved(1190.0).status == "pass"
    found = reserved(1300.0)
    assert found.status == "fail"
    assert found.delta == pytest.approx(300.0)
    assert found.delta_pct == pytest.approx(30.0)
    assert found.threshold == pytest.approx(20.0)
    assert found.group == "memory"
    tight = DEFAULT_THRESHOLDS.model_copy(update={"max_mem_increase_mb": 50.0})
    assert reserved(1060.0, thresholds=tight).status == "fail"


def test_reservation_inside_the_range_of_the_baseline_only_warns() -> None:
    assert reserved(1300.0, before=(1000.0, 1000.0, 1400.0)).status == "warn"
    assert reserved(1300.0, 900.0, 1300.0).status == "warn"


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
