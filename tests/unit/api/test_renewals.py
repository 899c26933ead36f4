"""A lease is lost once nobody has seen it renewed for its length, whatever clocks say."""

from __future__ import annotations

import pytest

from api.services.renewals import Silence


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def silence(clock):
    return Silence(seconds=30, gap_seconds=15, clock=lambda: clock[0])


def looked(silence, clock, lease_at, *, seconds):
    """Look each five seconds for so long, and return what was found lost, and when."""
    until, lost = clock[0] + seconds, {}
    while clock[0] < until:
        for key in silence.lost({"work": lease_at(clock[0])}):
            lost.setdefault(key, clock[0])
        clock[0] += 5
    return lost


def test_a_lease_that_stays_as_it_is_is_lost_after_its_length(silence, clock):
    assert looked(silence, clock, lambda _: "same", seconds=60) == {"work": 130.0}


@pytest.mark.parametrize("step", [1.0, -1.0, 1e-6])
def test_one_that_changes_is_not_whichever_way_its_clock_goes(silence, clock, step):
    assert looked(silence, clock, lambda at: step * (at // 10), seconds=600) == {}


def test_a_gap_counts_for_nothing(silence, clock):
    """Whoever was paused begins to look anew."""
    looked(silence, clock, lambda _: "same", seconds=25)
    clock[0] += 300
    again = clock[0]
    assert looked(silence, clock, lambda _: "same", seconds=60) == {"work": again + 30}


def test_work_that_ended_and_began_again_is_other_work(silence, clock):
    looked(silence, clock, lambda _: "same", seconds=20)
    silence.lost({})
    again = clock[0]
    assert looked(silence, clock, lambda _: "same", seconds=60) == {"work": again + 30}
