"""Numbers for people: only the digits that matter."""

from __future__ import annotations

import math

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
