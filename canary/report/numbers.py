"""Numbers for people: with units, and only the digits that matter."""

from __future__ import annotations

import math
from typing import Any

from canary.record.digits import SHORTENED_FROM
from canary.record.digits import significant as significant
from canary.record.jsonio import shown


def amount(value: Any, unit: str = "") -> str:
    """Return a value with its unit: counts in full, `-` for None, text unchanged."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shown(str(value))
    whole = isinstance(value, int) and abs(value) < SHORTENED_FROM
    text = f"{value:,}" if whole else significant(float(value))
    return f"{text} {unit}" if unit and unit != "%" else f"{text}{unit}"


def signed(value: float, unit: str = "%") -> str:
    """Return a change with its sign; percent have one decimal below 100 and none above."""
    if not math.isfinite(value):
        return significant(value)
    if unit == "%":
        value = value if abs(value) >= 0.005 else 0.0
        digits = 0 if abs(value) >= 100 else (1 if abs(value) >= 0.05 or value == 0 else 2)
        return f"{value:+,.{digits}f}%"
    return f"{'+' if value >= 0 else '-'}{significant(abs(value), 3)} {unit}".rstrip()
