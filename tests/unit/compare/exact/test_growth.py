"""Growth of live tensors: a leak whole, one release or one late buffer not at all."""

from __future__ import annotations

import pytest

from canary.compare.exact.counts import tensor_growth


@pytest.mark.parametrize(
    ("counts", "growth"),
    [
        ([125, 104, 104, 104], 0.0),
        ([125, 107, 107, 104], 0.0),
        ([104, 106, 108, 110], 2.0),
        ([125, 104, 106, 108], 2.0),
    ],
)
def test_a_release_is_no_growth_and_hides_none(counts: list[int], growth: float) -> None:
    assert tensor_growth(counts) == pytest.approx(growth)


def test_a_leak_every_fifth_step_is_growth() -> None:
    assert tensor_growth([100 + 5 * (step // 5) for step in range(12)]) == pytest.approx(1, abs=0.2)
