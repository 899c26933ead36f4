"""Intervals: how often agents speak, and how long silence may last."""

from __future__ import annotations

from api.settings import Settings
from planner.schema.agent import Intervals

# What an agent has to have its ranks dead in, between giving up and the loss of its lease: a
# quarter of the lease leaves time to terminate, kill and reap.
_GIVE_UP_RATIO = 0.75


def intervals(settings: Settings) -> Intervals:
    """Return what agents are told."""
    heartbeat_seconds = min(settings.agent_heartbeat_seconds, settings.agent_lease_seconds / 4)
    return Intervals(
        poll_seconds=settings.agent_poll_seconds,
        heartbeat_seconds=heartbeat_seconds,
        flush_seconds=heartbeat_seconds,
        lease_seconds=settings.agent_lease_seconds,
        give_up_seconds=settings.agent_lease_seconds * _GIVE_UP_RATIO,
    )
