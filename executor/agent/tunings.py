"""Tunings: a person has a service's agents find the plan that is the fastest on their nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import ConfigDict, JsonValue

from executor.agent.errors import AgentError, AwayError
from executor.agent.fleet import Fleet
from planner.schema.agent import CommandName
from planner.schema.document import Part
from planner.schema.lease import Arguments
from planner.schema.tuning import Tuning, TuningBudget
from planner.units import format_seconds


class TuningRequest(Part):
    """What a service is asked for."""

    model: JsonValue
    cluster: JsonValue
    job: JsonValue
    command: CommandName
    arguments: Arguments
    budget: TuningBudget

    @staticmethod
    def of(tuning: Tuning, *, command: str, arguments: Mapping[str, str]) -> TuningRequest:
        """Return the request for a tuning that was not begun."""
        return TuningRequest(
            model=tuning.model.resolved.model_dump(mode="json"),
            cluster=tuning.cluster.resolved.model_dump(mode="json"),
            job=tuning.job.given,
            command=command,
            arguments=dict(arguments),
            budget=tuning.budget,
        )


class _Known(Part):
    """A part of an answer, of which more is known than is read here."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _UnderWay(_Known):
    number: int
    run_id: str
    description: str


class _Problem(_Known):
    detail: str


class FleetTuning(_Known):
    """A tuning as a service tells of it."""

    id: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    under_way: _UnderWay | None
    problem: _Problem | None
    tuning: Tuning


def begun(fleet: Fleet, request: TuningRequest) -> FleetTuning:
    """Return a tuning that a service has begun."""
    return fleet.document(FleetTuning, "POST", "/v1/tunings", request)


def followed(
    fleet: Fleet, found: FleetTuning, *, say: Callable[[str], None], pause: Callable[[], None]
) -> Tuning:
    """Return a tuning at its end, having told of each change; a server that is away is asked again.

    Raises:
        AgentError: if it failed, or was cancelled.
    """
    told = ""
    while True:
        line = _told(found)
        if line != told:
            say(line)
            told = line
        if found.state == "succeeded":
            return found.tuning
        if found.state != "running":
            raise _without_end(found)
        pause()
        try:
            found = fleet.document(FleetTuning, "GET", f"/v1/tunings/{found.id}", None)
        except AwayError as error:
            say(f"{error}; asking again")


def _told(found: FleetTuning) -> str:
    tuning = found.tuning
    parts = [
        f"{found.id}: {found.state}",
        f"{len(tuning.trials)} of {tuning.budget.runs} trials done",
    ]
    if tuning.best_seconds is not None:
        parts.append(f"best {format_seconds(tuning.best_seconds)} a step")
    if found.under_way is not None:
        trial = found.under_way
        parts.append(f"trial {trial.number} is {trial.run_id}: {trial.description}")
    return ", ".join(parts)


def _without_end(found: FleetTuning) -> AgentError:
    return AgentError(
        found.problem.detail if found.problem else f"was {found.state}",
        field="tuning",
        value=found.id,
        remedy=f"resume it: POST /v1/tunings/{found.id}/resume, or on its page of the dashboard",
    )
