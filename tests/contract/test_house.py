"""The project does not grow back (`python -m tools.house`)."""

from __future__ import annotations

from tools.house import LIMITS, figures


def test_nothing_is_larger_than_its_limit() -> None:
    found = figures()
    assert found.keys() == LIMITS.keys()
    assert {name: figure for name, figure in found.items() if figure > LIMITS[name]} == {}
