"""Fleet: what a person asks of a service and its agents: a token for a node, a run of a plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, JsonValue, ValidationError

from executor.agent.client import Client
from executor.agent.errors import AgentError, AwayError, StaleError
from planner.schema.agent import EnrolmentToken, EnrolmentTokenRequest
from planner.schema.document import Part
from planner.schema.lifecycle import RunState
from planner.schema.plan import Plan
from planner.schema.run import Run, RunRequest

KEY = "MESHWRIGHT_KEY"
LOOK_SECONDS = 2.0
_SOLVE_SECONDS = 60.0
_ACCEPTED = 202
_ENDED = {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}


class _PlanRequest(Part):
    """What a plan is of, for the service to plan it itself."""

    model: JsonValue
    cluster: JsonValue
    job: JsonValue


class _Operation(Part):
    """A solve that goes on, of which more is known than is read here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    plan_id: str | None = None


class Fleet(Client):
    """A person's connection to a service, with a key of theirs."""

    @staticmethod
    def at(server: str) -> Fleet:
        """Return the connection to `server` with the key of the environment.

        Raises:
            AgentError: if there is none.
        """
        key = os.environ.get(KEY)
        if not key:
            raise AgentError(
                "is not set, and the service lets nobody in without a key",
                field=KEY,
                remedy="make one where the service's database is: meshwright keys create --name "
                "YOURS --scope read --scope plan --scope run (and admin, for tokens of nodes)",
            )
        return Fleet(server, token=key)

    def enrolment_token(self, request: EnrolmentTokenRequest) -> EnrolmentToken:
        """Return a token with which one node may enrol, once."""
        return self.document(EnrolmentToken, "POST", "/v1/enrolment-tokens", request)

    def plan_id(self, plan: Plan, *, pause: Callable[[], None]) -> str:
        """Return what the service calls `plan`, which it plans itself where it has it not yet.

        Raises:
            AgentError: if it would run another strategy.
        """
        try:
            known = self._send("GET", f"/v1/plans/{plan.id}", None)
        except StaleError:
            return self._planned(plan, pause)
        return self._same(plan, known.content)

    def run(self, request: RunRequest) -> Run:
        """Return a run that was queued."""
        return self.document(Run, "POST", "/v1/runs", request)

    def followed(self, run: Run, *, say: Callable[[str], None], pause: Callable[[], None]) -> Run:
        """Return a run once it has ended, having told of each change.

        A server that is away is asked again.
        """
        told = ""
        while True:
            line = _told(run)
            if line != told:
                say(line)
                told = line
            if run.state in _ENDED:
                return run
            pause()
            try:
                content = self._send("GET", f"/v1/runs/{run.id}", None).content
            except AwayError as error:
                say(f"{error}; asking again")
                continue
            run = Run.model_validate_json(content)

    def _planned(self, plan: Plan, pause: Callable[[], None]) -> str:
        request = _PlanRequest(
            model=plan.model.resolved.model_dump(mode="json"),
            cluster=plan.cluster.resolved.model_dump(mode="json"),
            job=plan.job.given,
        )
        response = self._send("POST", "/v1/plans", request, seconds=_SOLVE_SECONDS)
        if response.status_code != _ACCEPTED:
            return self._same(plan, response.content)
        operation = _Operation.model_validate_json(response.content)
        while operation.state == "running":
            pause()
            path = f"/v1/operations/{operation.id}"
            operation = _Operation.model_validate_json(self._send("GET", path, None).content)
        if operation.plan_id is None:
            raise AgentError(
                "was not planned by the service",
                field="plan",
                value=plan.id,
                remedy=f"look at its operation {operation.id}",
            )
        return self._same(plan, self._send("GET", f"/v1/plans/{operation.plan_id}", None).content)

    def _same(self, plan: Plan, content: bytes) -> str:
        try:
            found = Plan.model_validate_json(content)
        except ValidationError:
            raise AgentError(
                "is infeasible by the service's planner",
                field="plan",
                value=plan.id,
                remedy="plan with the version and profiles that the service has",
            ) from None
        if found.strategy != plan.strategy:
            raise AgentError(
                "has another strategy than the service plans for the same model, cluster and job",
                field="plan",
                value=plan.id,
                remedy=f"run the service's own (--on with {found.id}), or plan with its version "
                "and profiles",
            )
        return found.id


def read_plan_or_id(text: str) -> Plan | str:
    """Return the plan of a file, or the name of one that the service has."""
    path = Path(text)
    return Plan.read(path) if path.exists() or path.suffix else text


def _told(run: Run) -> str:
    parts = [f"{run.id}: {run.state}"]
    if run.state is RunState.QUEUED and run.waiting_for:
        parts.append(f"waiting for {run.waiting_for}")
    if run.checkpoint_step is not None:
        parts.append(f"checkpoint of step {run.checkpoint_step}")
    if run.reason and run.state in _ENDED:
        parts.append(run.reason)
    return ", ".join(parts)
