"""Student's t without scipy: its import takes as long as a whole comparison may.

The regularised incomplete beta function is evaluated by its continued fraction (modified Lentz;
Press et al., Numerical Recipes, 6.4; DLMF 8.17.22). The tests compare it with scipy.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

TINY = 1e-300
NORMAL_FROM = 1e7
"""Degrees of freedom from which on t is treated as normal; math.inf means a known spread."""


def _continued_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away_from_zero(1.0 + numerator * d)
            c = _away_from_zero(1.0 + numerator / c)
            value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised I_x(a, b), for a, b > 0 and x in [0, 1]."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _continued_fraction(a, b, x) / a
    return 1.0 - front * _continued_fraction(b, a, 1.0 - x) / b


def t_upper_tail(t: float, df: float) -> float:
    """Return P(T > t) with `df` degrees of freedom; normal if they are infinite."""
    if df >= NORMAL_FROM:
        return 0.5 * math.erfc(t / math.sqrt(2.0))
    tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t))
    return tail if t >= 0 else 1.0 - tail


@lru_cache(maxsize=4096)
def t_quantile(level: float, df: float) -> float:
    """Return the t with P(T < t) = `level`; 0 < level < 1, df > 0."""
    if level < 0.5:
        return -t_quantile(1.0 - level, df)
    if df >= NORMAL_FROM:
        return NormalDist().inv_cdf(level)
    low, high = 0.0, 2.0
    while t_upper_tail(high, df) > 1.0 - level:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if high - low <= 1e-13 * high:
            break
        if t_upper_tail(middle, df) > 1.0 - level:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
