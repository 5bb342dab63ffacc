"""Numbers for people: with units, and only the digits that matter."""

from __future__ import annotations

import math
from typing import Any

from canary.record.jsonio import shown

LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
SHORTENED_FROM = 1e7


def significant(value: float, digits: int = 4) -> str:
    """Return a number with so many digits and separated thousands; M, G or T from 10 million."""
    if not math.isfinite(value):
        return shown(str(value))
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e15 or size < 1e-4:
        return f"{value:.{digits - 1}g}"
    if size >= SHORTENED_FROM:
        scale, letter = next(pair for pair in LARGE if size >= pair[0])
        return f"{significant(value / scale, digits)} {letter}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and float(value).is_integer() else text


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
