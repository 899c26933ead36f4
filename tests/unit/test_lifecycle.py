"""The lifecycle's table: what may follow what, and that nothing gets stuck."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.schema.lifecycle import (
    FINAL_LEASE_STATES,
    FINAL_RUN_STATES,
    RUN_TRANSITIONS,
    Actor,
    LeaseState,
    RunState,
    may_move,
    next_lease_state,
    sources_of,
)

RUN_STATES = st.sampled_from(RunState)
LEASE_STATES = st.sampled_from(LeaseState)
LIVE = [LeaseState.OFFERED, LeaseState.PREPARING, LeaseState.READY, LeaseState.RUNNING]


def reachable(start: RunState) -> set[RunState]:
    found = {start}
    while True:
        more = {t.target for t in RUN_TRANSITIONS if t.source in found} - found
        if not more:
            return found
        found |= more


def test_a_final_state_is_left_by_nobody():
    assert not [t for t in RUN_TRANSITIONS if t.source in FINAL_RUN_STATES]


def test_every_state_is_reached_from_the_queue():
    assert reachable(RunState.QUEUED) == set(RunState)


@given(RUN_STATES)
def test_every_state_leads_to_an_end(state):
    assert reachable(state) & FINAL_RUN_STATES


@given(RUN_STATES, RUN_STATES, st.sampled_from(Actor))
def test_the_two_questions_agree(source, target, actor):
    assert may_move(source, target, actor) == (source in sources_of(target, actor))


def test_each_transition_stands_once():
    pairs = [(t.source, t.target) for t in RUN_TRANSITIONS]
    assert len(pairs) == len(set(pairs))


@given(st.sampled_from([state for state in RunState if state not in FINAL_RUN_STATES]))
def test_a_user_can_always_have_a_run_end(state):
    targets = {t.target for t in RUN_TRANSITIONS if t.source is state and Actor.USER in t.actors}
    assert targets & {RunState.CANCELLED, RunState.STOPPING}


def test_what_is_leased_is_never_queued_again_but_by_way_of_stopping():
    """No lease of the next epoch may be made while one of this epoch is live."""
    for source in (RunState.STARTING, RunState.RUNNING):
        for target in (RunState.QUEUED, RunState.REPLANNING):
            assert not any(may_move(source, target, actor) for actor in Actor)


def test_users_start_nothing_and_agents_cancel_nothing_that_runs():
    assert not sources_of(RunState.RUNNING, Actor.USER)
    assert not sources_of(RunState.STARTING, Actor.AGENT)
    assert sources_of(RunState.CANCELLED, Actor.AGENT) == {RunState.STOPPING}


@given(st.sampled_from(sorted(FINAL_LEASE_STATES)), LEASE_STATES)
def test_a_lease_that_is_over_stays_so(held, reported):
    assert next_lease_state(held, reported) is held


@given(st.lists(st.sampled_from(LIVE)), st.randoms(use_true_random=False))
def test_the_order_of_live_reports_does_not_matter(reports, chance):
    shuffled = list(reports)
    chance.shuffle(shuffled)

    def after(sequence):
        state = LeaseState.OFFERED
        for report in sequence:
            state = next_lease_state(state, report)
        return state

    expected = max(reports, key=LIVE.index, default=LeaseState.OFFERED)
    assert after(reports) is after(shuffled) is expected


@given(st.sampled_from(LIVE), LEASE_STATES)
def test_the_same_report_twice_is_the_same_as_once(held, reported):
    once = next_lease_state(held, reported)
    assert next_lease_state(once, reported) is once
