"""Request headers, understood or politely ignored."""

from __future__ import annotations

import pytest

from api.deps import last_event_number, preferred_wait_seconds


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, 2.0),
        ("", 2.0),
        ("wait=0", 0.0),
        ("wait=10", 10.0),
        ("WAIT = 10", 10.0),
        ('wait="10"', 10.0),
        ("respond-async, wait=10", 10.0),
        ("return=minimal; wait=10; other", 10.0),
        ("wait=31", 30.0),
        ("wait=999999999", 30.0),
        ("wait=-1", 2.0),
        ("wait=soon", 2.0),
        ("await=10", 2.0),
        ("wait=99999999999999999999", 2.0),
    ],
)
def test_a_preferred_wait_is_honoured_up_to_half_a_minute(prefer, seconds):
    assert preferred_wait_seconds(prefer) == seconds


@pytest.mark.parametrize(
    ("header", "number"),
    [(None, 0), ("", 0), ("7", 7), ("-1", 0), ("x", 0), ("9" * 30, 0)],
)
def test_a_stream_goes_on_after_an_event_of_ours(header, number):
    assert last_event_number(header) == number
