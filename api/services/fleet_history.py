"""How the newest runs met their predictions, by cluster and stack, and whether one stopped to.

A predicted interval holds four runs of five. Where k of the newest n runs of a cluster under a
stack are outside of theirs, for any n from 3 to 10, it is a drift if as many would be rare:

    P(X >= k) < 0.02,   X ~ Binomial(n, 0.2)

Of ten runs that meet their predictions, 3.1 % are said to drift all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import comb

from sqlalchemy.orm import Session

from api.caller import Caller
from api.db import Database
from api.repositories.leases import LeaseRepository
from api.repositories.runs import RunRepository
from api.services.run_measurements import LEAST_STEPS, median_step
from api.tables import LeaseRow, RunRow
from planner.calibration.report import Lessons, learnt_plan, lessons, trusted
from planner.schema.job import LearntRun
from planner.schema.plan import Plan

RUNS_LIMIT = 50
RECENT_LIMIT = 10
LEAST_RUNS = 3  # that a drift is seen in
OUTSIDE_CHANCE = 0.2  # of one run: intervals are of p10 to p90
RARE_CHANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """A run's median step over the predicted one, beside the ends of its predicted interval.

    `learnt` is what a calibration keeps of it, `None` where it would not read it.
    """

    run_id: str
    plan_id: str
    at: datetime
    cluster: str
    stack: str
    measured_seconds: float
    predicted_seconds: float
    low_ratio: float
    high_ratio: float
    learnt: LearntRun | None = None

    @property
    def ratio(self) -> float:
        """Return measured over predicted seconds of a step."""
        return self.measured_seconds / self.predicted_seconds

    @property
    def is_outside(self) -> bool:
        """Return whether the measured step is not within the predicted interval."""
        return not self.low_ratio <= self.ratio <= self.high_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroup:
    """The runs of one cluster under one stack, the oldest first, and what they teach together."""

    cluster: str
    stack: str
    runs: tuple[FleetRun, ...]
    lessons: Lessons | None = None

    @property
    def recent(self) -> tuple[FleetRun, ...]:
        """Return as many of the newest runs as speak most against their predictions."""
        counts = range(min(LEAST_RUNS, len(self.runs)), min(RECENT_LIMIT, len(self.runs)) + 1)
        return min((self.runs[-count:] for count in counts), key=_chance)

    @property
    def recent_count(self) -> int:
        """Return how many those are."""
        return len(self.recent)

    @property
    def outside_count(self) -> int:
        """Return how many of the newest are outside of their intervals."""
        return _outside_count(self.recent)

    @property
    def chance(self) -> float:
        """Return the chance that so many of them are, where predictions hold."""
        return _chance(self.recent)

    @property
    def has_drifted(self) -> bool:
        """Return whether so many are outside that predictions do not hold any more."""
        return self.recent_count >= LEAST_RUNS and self.chance < RARE_CHANCE


def _outside_count(runs: Sequence[FleetRun]) -> int:
    return sum(run.is_outside for run in runs)


def _chance(runs: Sequence[FleetRun]) -> float:
    return at_least_chance(_outside_count(runs), of=len(runs))


def at_least_chance(count: int, *, of: int) -> float:
    """Return the chance that `count` or more of `of` runs are outside of their intervals."""
    return sum(
        comb(of, outside) * OUTSIDE_CHANCE**outside * (1.0 - OUTSIDE_CHANCE) ** (of - outside)
        for outside in range(count, of + 1)
    )


class FleetHistoryService:
    """What a project's runs measured beside what was predicted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def groups(self, caller: Caller) -> tuple[FleetGroup, ...]:
        """Return the newest runs that measured steps, by cluster and stack, drifts first."""
        with self._database.reading() as session:
            rows = RunRepository(session).page(
                caller.project_id, state=None, plan_id=None, before=None, limit=RUNS_LIMIT
            )
            leases: dict[str, list[LeaseRow]] = defaultdict(list)
            for lease in LeaseRepository(session).of_runs([(row.id, row.epoch) for row in rows]):
                leases[lease.run_id].append(lease)
            found = [_fleet_run(session, row, leases[row.id]) for row in reversed(rows)]
        by_kind: dict[tuple[str, str], list[FleetRun]] = defaultdict(list)
        for run in found:
            if run is not None:
                by_kind[run.cluster, run.stack].append(run)
        groups = [
            FleetGroup(cluster=cluster, stack=stack, runs=tuple(runs), lessons=_lessons(runs))
            for (cluster, stack), runs in by_kind.items()
        ]
        return tuple(sorted(groups, key=lambda group: (not group.has_drifted, group.cluster)))


def _lessons(runs: Sequence[FleetRun]) -> Lessons | None:
    """Return what the runs teach, `None` where there are too few to hold one against the others."""
    learnt = [run.learnt for run in runs if run.learnt is not None]
    return lessons(trusted(learnt)) if len(learnt) > 1 else None


def _fleet_run(session: Session, row: RunRow, leases: list[LeaseRow]) -> FleetRun | None:
    """Return what the newest attempt at a run measured, `None` where that says nothing."""
    count, median = median_step(session, [lease.id for lease in leases])
    if median is None or count < LEAST_STEPS:
        return None
    plan = Plan.model_validate_json(RunRepository(session).plan_of(row.id, row.epoch).document)
    step = plan.prediction.step_seconds
    if not step.p50:
        return None
    return FleetRun(
        run_id=row.id,
        plan_id=row.plan_id,
        at=row.started_at or row.created_at,
        cluster=plan.cluster.resolved.name,
        stack=plan.job.resolved.stack.value,
        measured_seconds=median,
        predicted_seconds=step.p50,
        low_ratio=step.p10 / step.p50,
        high_ratio=step.p90 / step.p50,
        learnt=learnt_plan(plan, measured_seconds=median),
    )
