"""Lifecycle: the states of a run and of a lease, and who may move them where. Nothing else may.

    run     queued ──> starting ──> running ──> succeeded
              ↑ ↑          └────┬──────┘
              │ │               ↓
              │ └─────────── stopping ──> failed, cancelled, succeeded
              │                 ↓
              └──────────── replanning ──> failed, cancelled

    lease   offered ──> preparing ──> ready ──> running ──> succeeded, failed, stopped, expired

A run is `stopping` from the moment that one of its leases ended badly, or somebody cancelled it,
until no lease of its epoch is live; only then may it be leased again, under a higher epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """Where a run is in its life."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    REPLANNING = "replanning"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class LeaseState(StrEnum):
    """Where an agent is with its part of a run."""

    OFFERED = "offered"
    PREPARING = "preparing"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    EXPIRED = "expired"


class Actor(StrEnum):
    """Who causes a transition: somebody who asks, an agent's report, or the service by itself."""

    USER = "user"
    AGENT = "agent"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One move that may be made, by whom, and when."""

    source: RunState
    target: RunState
    actors: frozenset[Actor]
    when: str


def _move(source: RunState, target: RunState, when: str, *actors: Actor) -> Transition:
    return Transition(source=source, target=target, actors=frozenset(actors), when=when)


RUN_TRANSITIONS: tuple[Transition, ...] = (
    _move(RunState.QUEUED, RunState.STARTING, "all its agents are leased at once", Actor.SERVICE),
    _move(RunState.QUEUED, RunState.REPLANNING, "its agents stay away", Actor.SERVICE),
    _move(RunState.QUEUED, RunState.CANCELLED, "nothing runs yet", Actor.USER),
    _move(RunState.STARTING, RunState.RUNNING, "every agent is ready", Actor.AGENT),
    _move(
        RunState.STARTING,
        RunState.STOPPING,
        "cancelled, an agent could not prepare, or one is silent",
        Actor.USER,
        Actor.AGENT,
        Actor.SERVICE,
    ),
    _move(RunState.RUNNING, RunState.SUCCEEDED, "every agent succeeded", Actor.AGENT),
    _move(
        RunState.RUNNING,
        RunState.STOPPING,
        "cancelled, a rank failed, an agent is silent, or lost devices are back",
        Actor.USER,
        Actor.AGENT,
        Actor.SERVICE,
    ),
    _move(
        RunState.STOPPING,
        RunState.QUEUED,
        "no lease is live, and it is to be started again",
        Actor.AGENT,
        Actor.SERVICE,
    ),
    _move(
        RunState.STOPPING,
        RunState.REPLANNING,
        "no lease is live, and devices are lost",
        Actor.AGENT,
        Actor.SERVICE,
    ),
    _move(
        RunState.STOPPING,
        RunState.FAILED,
        "no lease is live, and it was refused or has been started as often as it may",
        Actor.AGENT,
        Actor.SERVICE,
    ),
    _move(
        RunState.STOPPING,
        RunState.CANCELLED,
        "no lease is live, and it was cancelled",
        Actor.USER,
        Actor.AGENT,
        Actor.SERVICE,
    ),
    _move(
        RunState.STOPPING,
        RunState.SUCCEEDED,
        "every agent had succeeded when it was cancelled",
        Actor.AGENT,
    ),
    _move(RunState.REPLANNING, RunState.QUEUED, "a plan for what is left is there", Actor.SERVICE),
    _move(RunState.REPLANNING, RunState.FAILED, "no plan for what is left", Actor.SERVICE),
    _move(RunState.REPLANNING, RunState.CANCELLED, "nothing runs", Actor.USER),
)

FINAL_RUN_STATES = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})
FINAL_LEASE_STATES = frozenset(
    {LeaseState.SUCCEEDED, LeaseState.FAILED, LeaseState.STOPPED, LeaseState.EXPIRED}
)
_PROGRESS: Mapping[LeaseState, int] = {
    LeaseState.OFFERED: 0,
    LeaseState.PREPARING: 1,
    LeaseState.READY: 2,
    LeaseState.RUNNING: 3,
}


def may_move(source: RunState, target: RunState, actor: Actor) -> bool:
    """Return whether `actor` may bring a run from `source` to `target`."""
    return any(
        transition.source is source and transition.target is target and actor in transition.actors
        for transition in RUN_TRANSITIONS
    )


def sources_of(target: RunState, actor: Actor) -> frozenset[RunState]:
    """Return the states from which `actor` may bring a run to `target`."""
    return frozenset(
        transition.source
        for transition in RUN_TRANSITIONS
        if transition.target is target and actor in transition.actors
    )


def next_lease_state(held: LeaseState, reported: LeaseState) -> LeaseState:
    """Return the state of a lease in state `held` once an agent has reported `reported`.

    Reports may be lost, doubled or overtaken by later ones: a live lease only goes forwards, over
    what was not heard of, and what is behind it changes nothing. One that is over stays so.
    """
    if held in FINAL_LEASE_STATES:
        return held
    if reported in FINAL_LEASE_STATES:
        return reported
    return reported if _PROGRESS[reported] > _PROGRESS[held] else held
