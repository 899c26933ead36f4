"""Quantities: a unit with every number."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from api.dashboard import quantities


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (quantities.seconds(47.652), "47.7 s"),
        (quantities.seconds(0.09894), "98.9 ms"),
        (quantities.exact_seconds(0.6062), "606.2 ms"),
        (quantities.memory(74.87 * 2**30), "74.87 GiB"),
        (quantities.gib(1.5 * 2**30), "1.50"),
        (quantities.percent(0.5371), "53.7%"),
        (quantities.gap(0.0), "0%"),
        (quantities.gap(0.00013), "0.013%"),
        (quantities.gap(0.256), "25.6%"),
        (quantities.gap(1.0), "100%"),
        (quantities.rate(11004.4), "11,004 tokens/s"),
        (quantities.grouped(128256), "128,256"),
        (quantities.grouped(2.561), "2.56"),
        (quantities.money(0.07573), "$0.0757"),
        (quantities.money(12345.6), "$12,346"),
        (quantities.large(8_030_261_248), "8.03 G"),
        (quantities.words("device_memory"), "device memory"),
    ],
)
def test_quantity_reads_with_its_unit(shown, expected):
    assert shown == expected


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (26.14, 43.05, "26.1\N{EN DASH}43 s"),
        (0.9, 1.1, "900 ms\N{EN DASH}1.1 s"),
        (0.9, 0.95, "900\N{EN DASH}950 ms"),
    ],
)
def test_an_interval_has_its_unit_once_where_both_ends_have_it(least, most, expected):
    assert quantities.seconds_between(least, most) == expected


@pytest.mark.parametrize(
    "show",
    [
        quantities.seconds,
        quantities.exact_seconds,
        quantities.memory,
        quantities.percent,
        quantities.gap,
        quantities.rate,
        quantities.grouped,
        quantities.money,
    ],
)
def test_what_is_absent_is_said_to_be(show):
    assert show(None) == "n/a"


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.07, "+7.0%"),
        (-0.016, "\N{MINUS SIGN}1.6%"),
        (0.0, "±0%"),
        (-0.0004, "±0%"),
        (8.9, "+890.0%"),
        (9.0, "\N{MULTIPLICATION SIGN}10"),
        (1304.6, "\N{MULTIPLICATION SIGN}1,306"),
    ],
)
def test_change_has_a_sign(ratio, expected):
    assert quantities.change(ratio) == expected


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (True, None, "yes"),
        (None, "seconds", "n/a"),
        (4, None, "4"),
        ("1f1b", None, "1f1b"),
        (0.5, "ratio", "50.0%"),
        (3 * 2**30, "bytes", "3 GiB"),
        (2.0, "seconds", "2 s"),
        (256.0, "tokens_per_second", "256 tokens/s"),
        (2.5, "currency", "$2.50"),
    ],
)
def test_compared_value_reads_in_its_unit(value, unit, expected):
    assert quantities.in_unit(value, unit) == expected


def test_moments_are_shown_in_utc():
    when = datetime(2026, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert (quantities.day(when), quantities.clock(when)) == ("2025-12-31", "23:30 UTC")
    assert quantities.machine_moment(when) == "2025-12-31T23:30:00+00:00"


def test_moment_from_a_database_without_zones_is_utc():
    when = datetime(2026, 1, 1, 0, 30, tzinfo=UTC).replace(tzinfo=None)
    assert quantities.clock(when) == "00:30 UTC"
