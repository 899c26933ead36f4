"""A process holds silence against agents only where it could have heard them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from api.services.watch import Watch


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def watch(clock):
    return Watch(gap_seconds=5, step_seconds=2, clock=lambda: clock[0])


def kept_until(watch, clock, end, step=1.0):
    while clock[0] < end:
        clock[0] += step
        watch.keep()


def test_a_watch_lasts_as_long_as_it_was_kept(watch, clock):
    kept_until(watch, clock, 160)

    assert watch.has_lasted(60)
    assert not watch.has_lasted(61)


def test_a_gap_starts_it_anew(watch, clock):
    kept_until(watch, clock, 160)
    clock[0] += 6
    watch.keep()

    assert not watch.has_lasted(1)
    kept_until(watch, clock, 226)
    assert watch.has_lasted(60)


def test_an_outage_starts_it_anew(watch, clock):
    kept_until(watch, clock, 160)
    watch.break_off()

    assert not watch.has_lasted(1)


def compared(watch, clock, wall):
    watch.compare(wall, before=clock[0] - 0.1, after=clock[0])


@pytest.mark.parametrize("step_seconds", [-3600, -3, 3, 3600])
def test_a_database_whose_clock_is_set_starts_it_anew(watch, clock, step_seconds):
    wall = datetime(2026, 6, 1, tzinfo=UTC)
    compared(watch, clock, wall)
    kept_until(watch, clock, 160)
    compared(watch, clock, wall + timedelta(seconds=60 + step_seconds))

    assert not watch.has_lasted(1)
    kept_until(watch, clock, 220)
    compared(watch, clock, wall + timedelta(seconds=120 + step_seconds))
    assert watch.has_lasted(60)


def test_a_clock_that_is_a_little_off_or_slow_to_read_does_not(watch, clock):
    wall = datetime(2026, 6, 1, tzinfo=UTC)
    compared(watch, clock, wall)
    kept_until(watch, clock, 160)
    compared(watch, clock, wall + timedelta(seconds=61.5))
    clock[0] += 4
    watch.keep()
    watch.compare(wall + timedelta(seconds=60), before=clock[0] - 4, after=clock[0])

    assert watch.has_lasted(60)
