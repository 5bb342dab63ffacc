"""Distances in units of the last place, in percent and in the metric's unit."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary.errors import UsageError
from canary.golden.tolerance import DTYPES, Tolerance, parse_tolerance, place, tolerances_of

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOATS)
def test_a_float32_has_the_place_of_its_bits(value: float) -> None:
    bits = struct.unpack("<i", struct.pack("<f", abs(value)))[0]
    assert place(value) == math.copysign(bits, value)


@given(FLOATS, FLOATS)
def test_places_are_in_the_order_of_the_numbers(one: float, other: float) -> None:
    assert (place(one) < place(other)) == (one < other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_next_number_of_a_dtype_is_one_ulp_away(dtype: str) -> None:
    fraction, _ = DTYPES[dtype]
    tolerance = Tolerance("ulp", 1, dtype)
    assert tolerance.distance(1.0, 1.0 + 2.0**-fraction) == 1.0
    assert tolerance.distance(2.0, 2.0 - 2.0**-fraction) == 1.0
    assert tolerance.width(1.0) == 2.0**-fraction


def test_a_sum_of_float32_losses_lies_between_two_of_them() -> None:
    """A step of several micro-batches sums in float64; equal runs must still be at distance 0."""
    assert Tolerance("ulp", 1).distance(1.0, 1.0 + 2.0**-24) == 0.5


def test_ulps_count_through_zero() -> None:
    smallest = 2.0**-149
    assert Tolerance("ulp", 2).distance(-smallest, smallest) == 2.0


@pytest.mark.parametrize(
    ("text", "golden", "near", "far"),
    [
        ("exact", 1.0, 1.0, 1.0000000000000002),
        ("3ulp", 1.0, 1.0 + 3 * 2.0**-23, 1.0 + 4 * 2.0**-23),
        ("1e-3", 1.0, 1.0009, 1.0011),
        ("5%", -2.0, -2.09, -2.11),
        ("1ulp:bfloat16", 1.0, 1.0 + 2.0**-7, 1.0 + 2.0**-6),
    ],
)
def test_each_kind_allows_what_it_says(text: str, golden: float, near: float, far: float) -> None:
    tolerance = parse_tolerance(text)
    assert str(tolerance) == text.replace("1e-3", "0.001")
    assert tolerance.allows(golden, golden)
    assert tolerance.allows(golden, near)
    assert not tolerance.allows(golden, far)


@pytest.mark.parametrize("kind", ["exact", "ulp", "absolute", "percent"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_tolerance_allows_a_value_that_is_not_finite(kind: str, value: float) -> None:
    tolerance = Tolerance(kind, 1e30)  # type: ignore[arg-type]
    assert not tolerance.allows(1.0, value)
    assert not tolerance.allows(value, value)


def test_percent_of_zero_allows_only_zero() -> None:
    assert Tolerance("percent", 5).allows(0.0, 0.0)
    assert not Tolerance("percent", 5).allows(0.0, 1e-30)


def test_the_mean_of_the_differences_has_a_limit_of_its_own() -> None:
    tolerance = parse_tolerance("1e-3,mean=1e-5")
    assert tolerance.drift([1e-4, -1e-4]) is None
    assert tolerance.drift([1e-4, 1e-4]) == pytest.approx(1e-4)
    assert str(tolerance) == "0.001,mean=1e-05"
    assert parse_tolerance(str(tolerance)) == tolerance


@pytest.mark.parametrize(
    "text",
    ["", "near", "3", "-1e-3", "nan", "inf", "-5%", "3.5ulp", "3ulp:int8", "1,2", "1,mean=nan"],
)
def test_what_is_no_tolerance_is_refused(text: str) -> None:
    if text == "3":  # a distance in the metric's unit
        assert parse_tolerance(text).kind == "absolute"
        return
    with pytest.raises(UsageError, match="is no tolerance"):
        parse_tolerance(text)


def test_options_name_their_metric() -> None:
    found = tolerances_of(["loss=exact", "lm loss=1e-3,mean=1e-5", "a=b=5%"])
    assert {name: str(one) for name, one in found.items()} == {
        "loss": "exact",
        "lm loss": "0.001,mean=1e-05",
        "a=b": "5%",
    }
    with pytest.raises(UsageError, match="names no metric"):
        tolerances_of(["exact"])
