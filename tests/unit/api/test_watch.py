"""A process holds silence against agents only where it could have heard them."""

from __future__ import annotations

import pytest

from api.services.sweeper import Watch


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def watch(clock):
    return Watch(gap_seconds=5, clock=lambda: clock[0])


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
