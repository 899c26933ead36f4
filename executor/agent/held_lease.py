"""Held lease: what the threads of one execution know in common."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from executor.agent.run_folder import RunFolder
from planner.schema.lease import HeartbeatAnswer, Lease, LeaseProgress
from planner.schema.lifecycle import LeaseState

LiveState = Literal[LeaseState.PREPARING, LeaseState.READY, LeaseState.RUNNING]


@dataclass(slots=True)
class HeldLease:
    """A lease while this node works on it.

    `is_lost` is final: nothing may run or be written under it any more. Once `is_result_sent`, a
    server that calls the lease over may just have taken the result. `changed` wakes the heartbeat,
    `news` whoever waits for what the server says.
    """

    lease: Lease
    folder: RunFolder
    state: LiveState = LeaseState.PREPARING
    master_port: int | None = None
    answer: HeartbeatAnswer | None = None
    is_lost: bool = False
    is_result_sent: bool = False
    lost_reason: str = ""
    is_away: bool = False
    step: int | None = None
    loss: float | None = None
    step_seconds: float | None = None
    checkpoint_step: int | None = None
    changed: threading.Event = field(default_factory=threading.Event)
    news: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def enter(self, state: LiveState) -> None:
        """Go to `state`, and say so at once."""
        self.state = state
        self.changed.set()

    def lose(self, reason: str) -> None:
        """Mark the lease as another's."""
        self.lost_reason = self.lost_reason or reason
        self.is_lost = True
        self.news.set()

    def progress(self) -> LeaseProgress | None:
        """Return how far training is, `None` before it began."""
        if self.step is None and self.checkpoint_step is None:
            return None
        return LeaseProgress(step=self.step, checkpoint_step=self.checkpoint_step)
