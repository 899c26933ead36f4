"""A run's moves: every change of its state, with its entry in the history.

The caller holds the run's lock. What may follow what stands in `planner.schema.lifecycle`; nothing
changes a state but through `move`, and nothing ends a lease but `end_lease`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy.orm import Session

from api.repositories.agents import AgentRepository
from api.repositories.leases import LeaseRepository
from api.repositories.runs import RunRepository
from api.tables import LeaseRow, RunEventRow, RunRow
from planner.schema.lifecycle import (
    FINAL_RUN_STATES,
    Actor,
    LeaseState,
    RunState,
    may_move,
)
from planner.schema.run import RunEvent


class AfterStop(StrEnum):
    """What follows once no lease is live; a later one outweighs an earlier one."""

    RESUME = "resume"
    RESTART = "restart"
    REPLAN = "replan"
    GIVE_UP = "give_up"


_WEIGHT = {kind: weight for weight, kind in enumerate(AfterStop)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a lease ended, who says so, and what it makes necessary."""

    state: LeaseState
    reason: str | None
    actor: Actor
    after_stop: AfterStop = AfterStop.RESUME


def move(
    session: Session, run: RunRow, target: RunState, *, actor: Actor, text: str, at: datetime
) -> None:
    """Bring the run to `target` and write it down.

    Raises:
        ValueError: if the lifecycle has no such transition, which is a mistake of ours.
    """
    if not may_move(RunState(run.state), target, actor):
        raise ValueError(f"run {run.id}: {actor} may not bring {run.state} to {target}")
    run.state = target.value
    if target is RunState.QUEUED:
        run.queued_at, run.after_stop, run.operation_id, run.reason = at, None, None, None
    if target is not RunState.QUEUED:
        run.waiting_for = None
    if target in FINAL_RUN_STATES:
        run.finished_at = at
    tell(session, run, kind="state", text=text, at=at, state=target)


def tell(session: Session, run: RunRow, *, kind: str, text: str, at: datetime, **more: Any) -> None:
    """Append an entry to the run's history."""
    runs = RunRepository(session)
    event = RunEvent.model_validate(
        {
            "number": runs.next_event_number(run.id),
            "at": at,
            "kind": kind,
            "text": text,
            "attempt": run.epoch or None,
            **more,
        }
    )
    runs.add_event(RunEventRow(run_id=run.id, number=event.number, data=event.model_dump_json()))


def end_lease(
    session: Session, run: RunRow, lease: LeaseRow, ending: Ending, *, at: datetime
) -> None:
    """End the lease, stop the rest of its gang unless all is well, and go on if it was the last."""
    lease.state, lease.ended_at, lease.reason = ending.state.value, at, ending.reason
    name = AgentRepository(session).named([lease.agent_id])[lease.agent_id]
    because = f": {ending.reason}" if ending.reason else ""
    text = f"node {lease.node_rank} on agent {name} {ending.state.value}{because}"
    tell(session, run, kind="lease_ended", text=text, at=at)
    run.step = later_step(run.step, lease.step)
    run.checkpoint_step = later_step(run.checkpoint_step, lease.checkpoint_step)
    if ending.state is not LeaseState.SUCCEEDED:
        _note(run, ending, agent_name=name)
        if run.state in {RunState.STARTING, RunState.RUNNING}:
            run.reason = text
            text = f"attempt {run.epoch} ends on all of its nodes"
            move(session, run, RunState.STOPPING, actor=ending.actor, text=text, at=at)
    session.flush()
    settle(session, run, actor=ending.actor, at=at)


def settle(session: Session, run: RunRow, *, actor: Actor, at: datetime) -> None:
    """Go on with a run of whose epoch no lease is live any more; wait while one is."""
    leases = LeaseRepository(session).of_epoch(run.id, run.epoch)
    if any(lease.ended_at is None for lease in leases):
        return
    if all(lease.state == LeaseState.SUCCEEDED for lease in leases):
        text = "every agent succeeded"
        move(session, run, RunState.SUCCEEDED, actor=actor, text=text, at=at)
        run.reason = None
    elif run.cancel_requested:
        run.reason = "it was cancelled"
        move(session, run, RunState.CANCELLED, actor=actor, text="all its ranks stopped", at=at)
    else:
        _start_again(session, run, actor=actor, at=at)


def later_step(known: int | None, reported: int | None) -> int | None:
    """Return the later of two steps, of which either may be unknown."""
    return max((step for step in (known, reported) if step is not None), default=None)


def _note(run: RunRow, ending: Ending, *, agent_name: str) -> None:
    """Remember the gravest of what the leases of this epoch make necessary, and who is lost.

    Ranks also fail because others were stopped before them: that is no failure of its own.
    """
    noted = AfterStop(run.after_stop) if run.after_stop else AfterStop.RESUME
    if ending.after_stop is AfterStop.RESTART and run.state == RunState.STOPPING:
        return
    run.after_stop = max(noted, ending.after_stop, key=_WEIGHT.__getitem__).value
    if ending.after_stop is AfterStop.REPLAN:
        run.lost_agents = json.dumps([*json.loads(run.lost_agents or "[]"), agent_name])


def _start_again(session: Session, run: RunRow, *, actor: Actor, at: datetime) -> None:
    wanted = AfterStop(run.after_stop or AfterStop.RESUME)
    if wanted is AfterStop.GIVE_UP:
        text = "it is not started again: the same would be refused again"
        move(session, run, RunState.FAILED, actor=actor, text=text, at=at)
        return
    if wanted is not AfterStop.RESUME:
        if run.restart_count >= run.restart_limit:
            text = "it is not to be started again"
            if run.restart_limit:
                text = f"it was started again {run.restart_count} times, which is its limit"
                run.reason = f"{run.reason}; {text}"
            move(session, run, RunState.FAILED, actor=actor, text=text, at=at)
            return
        run.restart_count += 1
    if wanted is AfterStop.REPLAN and run.replan:
        text = "devices are lost: looking for a plan for those that are left"
        move(session, run, RunState.REPLANNING, actor=actor, text=text, at=at)
        return
    step = run.checkpoint_step
    where = "from the start" if step is None else f"from the checkpoint of step {step}"
    move(session, run, RunState.QUEUED, actor=actor, text=f"to be started again {where}", at=at)
