"""How a fleet's runs met their predictions, as it goes over the wire."""

from __future__ import annotations

from datetime import datetime

from api.schemas import WirePart
from planner.schema.calibration import HeldOutErrors, LearntEffect


class FleetRunLine(WirePart):
    """A run's median step over the predicted one: `is_outside` of p10 to p90, as ratios to p50."""

    run_id: str
    plan_id: str
    at: datetime
    measured_seconds: float
    predicted_seconds: float
    ratio: float
    low_ratio: float
    high_ratio: float
    is_outside: bool


class FleetLessons(WirePart):
    """What calibrating on the runs would teach, and whether it would be accepted; `reason` why."""

    effects: tuple[LearntEffect, ...]
    held_out: HeldOutErrors | None
    accepted: bool
    reason: str


class FleetGroupLine(WirePart):
    """Runs of one cluster under one stack, the oldest first.

    Of the newest `recent_count`, as many as speak most against predictions, `outside_count` are
    outside of their intervals; as many are with `chance` where predictions hold. It is a drift
    below 2 %. `lessons` are null where fewer than two runs say something.
    """

    cluster: str
    stack: str
    has_drifted: bool
    recent_count: int
    outside_count: int
    chance: float
    runs: tuple[FleetRunLine, ...]
    lessons: FleetLessons | None


class Fleet(WirePart):
    """The newest runs that measured three steps and more, by cluster and stack, drifts first."""

    groups: tuple[FleetGroupLine, ...]
