"""A person has a fleet run a plan, and lets nodes in, from the command line's own client."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from executor.agent.errors import AgentError
from executor.agent.fleet import Fleet
from executor.agent.tunings import TuningRequest, begun, followed
from planner.schema.agent import EnrolmentTokenRequest
from planner.schema.lifecycle import RunState
from planner.schema.plan import Plan
from planner.schema.run import RunRequest
from planner.schema.tuning import TuningBudget
from tests.builders import a_plan
from tests.contract.api.agents_at_work import QUIET, plan_by_devices, two_agents, two_nodes
from tests.contract.api.solvers import a_planner, new_tuning, resolved_cluster
from tests.contract.api.tunings_at_work import measure, searched

APPLICATION = {"planner": a_planner(plan=plan_by_devices), **QUIET}
REQUEST: dict[str, Any] = {
    "model": "tiny",
    "cluster": "8xh100-sxm5-80gb",
    "job": {"global_batch_size": 16},
}


class _InProcess:
    """What of `httpx.Client` is used; a service in this process answers at once or not at all."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def request(
        self, method: str, path: str, *, content: str | None, headers: Any, timeout: float
    ) -> Any:
        """Return the service's answer."""
        del timeout
        return self._client.request(method, path, content=content, headers=headers)


@pytest.fixture(name="fleet")
def _fleet(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A person's connection, whose requests the service of this process answers."""
    monkeypatch.setenv("MESHWRIGHT_KEY", "")
    fleet = Fleet("http://testserver")
    monkeypatch.setattr(fleet, "_http", _InProcess(client))
    return fleet


def _never() -> None:
    raise AssertionError("nothing goes on here")


def _planned(client: TestClient) -> Plan:
    return Plan.model_validate_json(client.post("/v1/plans", json=REQUEST).content)


def test_a_plan_that_the_service_has_is_run_and_followed_to_its_end(
    client: TestClient, fleet: Fleet
) -> None:
    plan = _planned(client)
    assert fleet.plan_id(plan, pause=_never) == plan.id
    run = fleet.run(RunRequest(plan_id=plan.id))
    said: list[str] = []

    def cancel() -> None:
        client.post(f"/v1/runs/{run.id}/cancel")

    ended = fleet.followed(run, say=said.append, pause=cancel)
    assert ended.state is RunState.CANCELLED
    assert said[0].startswith(f"{run.id}: queued, waiting for ")
    assert said[-1].startswith(f"{run.id}: cancelled")


def test_a_plan_that_the_service_has_not_is_planned_there(client: TestClient, fleet: Fleet) -> None:
    plan = _planned(client)
    client.delete(f"/v1/plans/{plan.id}")
    name = fleet.plan_id(plan, pause=_never)
    found = Plan.model_validate_json(client.get(f"/v1/plans/{name}").content)
    assert found.strategy == plan.strategy


def test_a_plan_of_another_strategy_is_refused(client: TestClient, fleet: Fleet) -> None:
    plan = _planned(client)
    changed = plan.strategy.model_copy(update={"zero_stage": 1})
    with pytest.raises(AgentError, match="has another strategy than the service plans"):
        fleet.plan_id(plan.model_copy(update={"strategy": changed}), pause=_never)


def test_a_token_lets_one_node_in(fleet: Fleet) -> None:
    made = fleet.enrolment_token(EnrolmentTokenRequest(note="node-1"))
    assert made.note == "node-1"
    assert made.token


def test_without_a_key_it_says_how_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MESHWRIGHT_KEY", raising=False)
    with pytest.raises(AgentError, match="meshwright keys create"):
        Fleet.at("http://testserver")


def test_a_tuning_is_begun_and_followed_to_its_end(client: TestClient, fleet: Fleet) -> None:
    agents = two_agents(client)
    plan = a_plan(cluster=resolved_cluster(two_nodes()))
    asked = new_tuning(plan.model, plan.cluster, plan.job.resolved, TuningBudget(runs=1, steps=2))
    found = begun(fleet, TuningRequest.of(asked, command="train", arguments={}))
    searched(client)
    said: list[str] = []

    ended = followed(
        fleet, found, say=said.append, pause=lambda: measure(client, *agents, seconds=1.5)
    )

    assert [trial.step_seconds for trial in ended.trials] == [(1.5, 1.5)]
    assert ended.certificate is not None
    assert said[0] == f"{found.id}: running, 0 of 1 trials done"
    assert said[-1] == f"{found.id}: succeeded, 1 of 1 trials done, best 1.5 s a step"


def test_a_tuning_that_is_cancelled_says_how_it_goes_on(client: TestClient, fleet: Fleet) -> None:
    plan = a_plan()
    asked = new_tuning(plan.model, plan.cluster, plan.job.resolved, TuningBudget())
    found = begun(fleet, TuningRequest.of(asked, command="train", arguments={}))

    def cancel() -> None:
        client.post(f"/v1/tunings/{found.id}/cancel")

    with pytest.raises(AgentError, match="was cancelled") as refused:
        followed(fleet, found, say=lambda _: None, pause=cancel)
    assert "resume it" in str(refused.value)
