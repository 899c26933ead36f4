"""Tunings as they go over the wire."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from api.schemas import PlanRequest, WirePart
from planner.schema.agent import CommandName
from planner.schema.lease import Arguments
from planner.schema.plan import Interval
from planner.schema.service import Problem
from planner.schema.tuning import Tuning, TuningBudget


class TuningState(StrEnum):
    """Where a tuning is: at work, at its end, or where it can be resumed."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TuningRequest(PlanRequest):
    """What to tune, by a command that agents allow, with arguments for it, and for how long.

    A trial is ended once it has measured `budget.steps` steps after its first, which is not timed.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "llama-3-8b",
                    "cluster": "8xh100-sxm5-80gb",
                    "job": {"global_batch_size": 512, "sequence_length": 8192},
                    "budget": {"runs": 8, "minutes": 120},
                }
            ]
        }
    )

    command: CommandName = "train"
    arguments: Arguments = Field(default_factory=dict)
    budget: TuningBudget = TuningBudget()


class TuningQuery(WirePart):
    """Which tunings to list; what is left out matches all."""

    state: TuningState | None = None
    cursor: Annotated[str | None, Field(max_length=64)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class TrialUnderWay(WirePart):
    """The trial that runs now, with what all before it predicted of it and proved of others."""

    number: int
    run_id: str
    plan_id: str
    description: str
    predicted: Interval
    predicted_peak_bytes: float | None = None
    fits_probability: float
    optimistic_seconds: float | None = None


class TuningSummary(WirePart):
    """A line of the list of tunings; `best_seconds` is the least median step so far.

    Once it has ended, each other plan has at most a 10% chance of being over `faster_ratio` faster.
    """

    id: str
    state: TuningState
    model: str
    cluster: str
    command: str
    run_budget: int
    trial_count: int
    best_seconds: float | None
    faster_ratio: float | None
    best_plan_id: str | None
    created_at: datetime
    finished_at: datetime | None


class TuningPage(WirePart):
    """Some tunings, newest first; `next_cursor` asks for the ones after them."""

    items: tuple[TuningSummary, ...]
    next_cursor: str | None


class FleetTuning(TuningSummary):
    """A tuning on the service's agents as it is now; `tuning` has its trials and certificate.

    A running one without a trial `under_way` looks for the next. `problem` says why it failed.
    """

    arguments: Arguments
    under_way: TrialUnderWay | None
    problem: Problem | None
    tuning: Tuning
