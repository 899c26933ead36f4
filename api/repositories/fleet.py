"""The fleet in figures: agents, live leases and runs of all projects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.tables import AgentRow, LeaseRow, RunRow
from planner.schema.lifecycle import FINAL_LEASE_STATES, LeaseState, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """How many agents, live leases and runs are in which state, and the longest waits."""

    agents: Mapping[str, int]
    leases: Mapping[str, int]
    runs: Mapping[str, int]
    longest_wait_seconds: float
    longest_silence_seconds: float


class FleetRepository:
    """Counts over all projects."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def state(self, *, at: datetime) -> FleetState:
        """Return the figures of this moment; states that nothing is in count 0."""
        return FleetState(
            agents=self._agents(at),
            leases={
                **{state.value: 0 for state in LeaseState if state not in FINAL_LEASE_STATES},
                **self._leases(),
            },
            runs={**{state.value: 0 for state in RunState}, **self._runs()},
            longest_wait_seconds=_seconds(at, self._first_queued()),
            longest_silence_seconds=_seconds(at, self._least_heard_of()),
        )

    def _agents(self, at: datetime) -> dict[str, int]:
        busy = set(self._session.scalars(select(LeaseRow.agent_id).where(_LIVE)))
        rows = self._session.execute(
            select(AgentRow.id, AgentRow.available_until).where(AgentRow.revoked_at.is_(None))
        )
        counts = Counter({"busy": 0, "idle": 0, "away": 0})
        for agent_id, until in rows:
            idle = until is not None and until > at
            counts["busy" if agent_id in busy else "idle" if idle else "away"] += 1
        return dict(counts)

    def _leases(self) -> dict[str, int]:
        rows = self._session.execute(
            select(LeaseRow.state, func.count()).where(_LIVE).group_by(LeaseRow.state)
        )
        return {row[0]: row[1] for row in rows}

    def _runs(self) -> dict[str, int]:
        rows = self._session.execute(select(RunRow.state, func.count()).group_by(RunRow.state))
        return {row[0]: row[1] for row in rows}

    def _first_queued(self) -> datetime | None:
        return self._session.scalar(
            select(RunRow.queued_at)
            .where(RunRow.state == RunState.QUEUED.value)
            .order_by(RunRow.queued_at)
            .limit(1)
        )

    def _least_heard_of(self) -> datetime | None:
        return self._session.scalar(
            select(AgentRow.last_seen_at)
            .join(LeaseRow, LeaseRow.agent_id == AgentRow.id)
            .where(_LIVE)
            .order_by(AgentRow.last_seen_at)
            .limit(1)
        )


_LIVE = LeaseRow.ended_at.is_(None)


def _seconds(at: datetime, since: datetime | None) -> float:
    return 0.0 if since is None else max((at - since).total_seconds(), 0.0)
