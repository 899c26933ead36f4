"""Run durations: what runs take, however the database's clock is set while they go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from api.services.run_durations import RunDurations

BEGAN = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)


class FakeClock:
    """A monotonic clock that tests move on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the moment."""
        return self.now


@pytest.mark.parametrize(
    ("database_seconds", "taken"),
    [(90.0, 90.0), (-3600.0, 89.5), (3690.0, 91.0), (80.0, 89.5)],
)
def test_a_clock_that_is_set_changes_no_duration(database_seconds, taken):
    """Seen to wait at 0 s, to go on from 0.5 s to 90 s, and ended when it is looked at, at 91 s."""
    clock = FakeClock()
    durations = RunDurations(clock)
    for passed, started in ((0.0, False), (0.5, True), (90.0, True)):
        clock.now = 1000.0 + passed
        durations.saw("run-1", started=started)
    clock.now = 1091.0
    ended = BEGAN + timedelta(seconds=database_seconds)
    assert durations.seconds("run-1", BEGAN, ended) == pytest.approx(taken)


def test_a_run_that_was_not_seen_takes_what_the_database_says():
    durations = RunDurations(FakeClock())
    durations.saw("run-1", started=True)
    durations.forget_others({"run-2"})
    assert durations.seconds("run-1", BEGAN, BEGAN + timedelta(seconds=70)) == 70.0
    assert durations.seconds("run-1", BEGAN, BEGAN - timedelta(seconds=70)) == 0.0


def test_a_run_that_never_started_took_no_time():
    assert RunDurations(FakeClock()).seconds("run-1", None, BEGAN) == 0.0
