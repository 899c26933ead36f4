"""Writers wait for a bounded time, and only so many of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.write_queue import WriteQueue


def test_whoever_finds_the_queue_full_is_told_at_once():
    queue = WriteQueue(one_at_a_time=True, length_limit=2)
    with ExitStack() as waiting:
        waiting.enter_context(queue.place())
        waiting.enter_context(queue.place())

        with pytest.raises(PoolTimeoutError, match="too many writes"):
            waiting.enter_context(queue.place())

    with queue.place():
        pass


def test_a_turn_that_does_not_come_is_not_waited_for_longer():
    queue = WriteQueue(one_at_a_time=True, length_limit=2)

    with (
        queue.turn(1.0),
        pytest.raises(PoolTimeoutError, match=r"no turn to write came within 0\.01 s"),
        queue.turn(0.01),
    ):
        pass


def test_what_was_waited_for_the_turn_is_no_longer_left():
    queue = WriteQueue(one_at_a_time=True, length_limit=2)

    with queue.turn(5.0) as seconds_left:
        assert 0 <= seconds_left <= 5.0


def test_where_several_may_write_nobody_waits_for_a_turn():
    queue = WriteQueue(one_at_a_time=False, length_limit=2)

    with queue.turn(5.0), queue.turn(0.0) as seconds_left:
        assert seconds_left == 0.0
