"""Units: how quantities are read from and written for people."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.units import (
    GIB,
    format_bytes,
    format_count,
    format_seconds,
    parse_bytes,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("80 GiB", 85_899_345_920.0),
        ("80GB", 80e9),
        ("50 GB/s", 50e9),
        ("1.5 kB", 1500.0),
        ("2 TiB", 2_199_023_255_552.0),
        ("4e2 B", 400.0),
        ("  7 B ", 7.0),
    ],
)
def test_byte_quantities_are_read_with_their_prefix(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "80", "80 gib", "GiB", "80 GiBs", "1 2 GB", "80 GB/h", "--1 B"]
)
def test_what_is_no_byte_quantity_is_refused(text):
    with pytest.raises(ValueError, match=r"80 GiB|could not convert"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5 us", 5e-6), ("5µs", 5e-6), ("3 ms", 3e-3), ("2 min", 120.0), ("1 d", 86400.0)],
)
def test_durations_are_read_with_their_unit(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "us"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1.5 * GIB, "1.5 GiB"),
        (-2 * GIB, "-2 GiB"),
        (3 * 2**40, "3 TiB"),
        (20_000 * 2**40, "20000 TiB"),
    ],
)
def test_bytes_are_written_in_binary_units(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (12.0, "12 s"),
        (0.00321, "3.21 ms"),
        (4.5e-6, "4.5 µs"),
        (3e-9, "3 ns"),
        (2e-12, "0.002 ns"),
        (3.469e-18, "0 s"),
        (-8.9e-16, "0 s"),
        (0.99996, "1 s"),
        (12_345.6, "12346 s"),
        (math.inf, "inf"),
    ],
)
def test_seconds_are_written_in_the_unit_that_suits(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (8_030_261_248, "8.03 G"),
        (671e9, "671 G"),
        (1_500, "1.5 k"),
        (12, "12"),
        (2e12, "2 T"),
        (3e16, "30000 T"),
    ],
)
def test_counts_are_written_with_a_decimal_prefix(count, text):
    assert format_count(count) == text


@given(st.floats(min_value=1, max_value=1e17))
def test_written_bytes_read_back_within_the_digits_shown(count):
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=6e-4, abs=0.5)


@given(st.floats(min_value=1e-9, max_value=1e8))
def test_written_seconds_read_back_within_the_digits_shown(seconds):
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=6e-4)
