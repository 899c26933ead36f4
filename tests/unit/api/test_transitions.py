"""The life of an operation: it runs, and then it ends once."""

from __future__ import annotations

from api.services.transitions import TRANSITIONS
from planner.schema.service import OperationState


def test_every_state_says_what_may_follow_it():
    assert set(TRANSITIONS) == set(OperationState)


def test_what_has_ended_stays_as_it_is():
    ended = set(OperationState) - {OperationState.RUNNING}

    assert all(TRANSITIONS[state] == frozenset() for state in ended)
    assert TRANSITIONS[OperationState.RUNNING] == ended
