"""What the overhead benchmark makes of its measurements."""

from __future__ import annotations

from benchmarks.overhead import Measured, meets_bars


def a_measured(*, seconds: float, plain_seconds: float, peak_bytes: int = 100) -> Measured:
    """A step and its hand-written twin, whose peak is 100 bytes."""
    return Measured(
        name="ddp, small",
        rank_count=2,
        seconds=seconds,
        plain_seconds=plain_seconds,
        peak_bytes=peak_bytes,
        plain_peak_bytes=100,
    )


def test_ratios_are_the_executors_over_the_hand_written():
    one = a_measured(seconds=0.06, plain_seconds=0.05, peak_bytes=98)
    assert one.ratio == 1.2
    assert one.memory_ratio == 0.98


def test_the_median_of_steps_from_20_ms_on_meets_the_bar_or_not():
    quick = a_measured(seconds=0.101, plain_seconds=0.1)
    slow = a_measured(seconds=0.12, plain_seconds=0.1)
    short = a_measured(seconds=0.02, plain_seconds=0.01)
    assert meets_bars([quick, quick, slow, short])
    assert not meets_bars([quick, slow, slow, short])


def test_the_median_of_peaks_meets_the_bar_or_not():
    fat = a_measured(seconds=0.1, plain_seconds=0.1, peak_bytes=103)
    assert not meets_bars([fat])
