"""Agents that tests play, and time that passes when a test says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
from fastapi.testclient import TestClient
from sqlalchemy import select

from api.caller import DEFAULT_PROJECT
from api.repositories.plans import PlanRepository
from api.services.records import plan_row
from api.services.sweeper import Sweeper
from api.services.watch import Watch
from api.tables import AgentRow, LeaseRow, RunRow
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Job
from planner.schema.plan import Infeasible, Interval, Plan, ResolvedCluster, ResolvedModel
from tests.builders import a_plan, a_prediction, a_strategy
from tests.contract.api.solvers import (
    Listener,
    _resolved,
    a_planner,
    an_infeasible,
    request_id,
    resolved_cluster,
    resolved_model,
)

NEEDS_ALL = 32
DEVICE = "h100-sxm5-80gb"
# Nobody sweeps behind a test's back.
QUIET = {"sweep_seconds": 60.0}


def plan_by_devices(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, *, on_progress: Listener = None
) -> Plan | Infeasible:
    """Split over the devices given, a second a step on eight; a batch of 32 needs all eight."""
    del on_progress
    device_count = cluster.resolved.device_count
    if job.global_batch_size == NEEDS_ALL and device_count < 8:
        return an_infeasible(model=model, cluster=cluster, job=_resolved(job))
    seconds = 8 / device_count
    return a_plan(
        id=request_id(model, cluster, job),
        model=model,
        cluster=cluster,
        job=_resolved(job),
        strategy=a_strategy(data_parallel_shard_degree=device_count // 4),
        prediction=a_prediction(
            step_seconds=Interval(p10=seconds * 0.9, p50=seconds, p90=seconds * 1.1)
        ),
    )


def two_nodes(**changes: Any) -> dict[str, Any]:
    """A cluster of two nodes with four H100 each."""
    group = NodeGroup(name="nodes", device=DEVICE, node_count=2, devices_per_node=4)
    cluster = Cluster(name="2x4xh100", node_groups=(group,))
    return {**cluster.model_dump(mode="json"), **changes}


def a_gang_plan(client: TestClient, *, global_batch_size: int = 16) -> str:
    """Keep a plan for two nodes, as if it had been solved, and return its id."""
    job = Job(global_batch_size=global_batch_size, sequence_length=128)
    cluster = resolved_cluster(two_nodes())
    plan = plan_by_devices(resolved_model("tiny"), cluster, job)
    with client.app.state.database.writing() as session:  # type: ignore[attr-defined]
        plans = PlanRepository(session, DEFAULT_PROJECT)
        if plans.get(plan.id) is None:
            plans.add(plan_row(plan, request_digest=plan.id))
    return plan.id


def a_run(client: TestClient, plan_id: str | None = None, **changes: Any) -> str:
    """Ask for a run and return its id."""
    request = {"plan_id": plan_id or a_gang_plan(client), **changes}
    answer = client.post("/v1/runs", json=request)
    assert answer.status_code == 201, answer.text
    identifier: str = answer.json()["id"]
    return identifier


def a_report(name: str = "node-a", **changes: Any) -> dict[str, Any]:
    """A node with four H100 that allows the command `train`."""
    devices = [{"index": i, "name": "NVIDIA H100", "profile": DEVICE} for i in range(4)]
    fields = {
        "name": name,
        "address": f"{name}.cluster.test",
        "devices": devices,
        "versions": {"agent": "1.0"},
        "commands": ["train"],
    }
    return {**fields, **changes}


PLANNER = a_planner(plan=plan_by_devices)
# What a module calls APPLICATION to have its client work so.
AT_WORK = {"planner": PLANNER, **QUIET}


@dataclass
class AgentAtWork:
    """An agent: its id and token, and the lease that it holds."""

    client: TestClient
    agent_id: str
    headers: dict[str, str]
    lease: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def enrolled(cls, client: TestClient, name: str = "node-a", **changes: Any) -> AgentAtWork:
        """Enrol an agent."""
        token = client.post("/v1/enrolment-tokens", json={}).json()["token"]
        body = {**a_report(name, **changes), "enrolment_token": token}
        enrolment = client.post("/v1/agents", json=body).json()
        headers = {"Authorization": f"Bearer {enrolment['token']}"}
        return cls(client, enrolment["agent_id"], headers)

    def poll(self, wait: float = 0) -> httpx.Response:
        """Ask for a lease, and keep it if there is one."""
        path = f"/v1/agents/{self.agent_id}/leases?wait={wait}"
        answer = self.client.post(path, headers=self.headers)
        if answer.status_code == 200:
            self.lease = answer.json()
        return answer

    def beat(self, state: str, **changes: Any) -> httpx.Response:
        """Send a heartbeat."""
        body = {"epoch": self.lease["epoch"], "state": state, **changes}
        return self.client.patch(f"/v1/leases/{self.lease['id']}", json=body, headers=self.headers)

    def log(self, offset: int, text: str, **changes: Any) -> httpx.Response:
        """Send a piece of the log."""
        return self._send("logs", {"offset": offset, "text": text, **changes})

    def metrics(self, sequence: int, *steps: int, **changes: Any) -> httpx.Response:
        """Send a row of metrics for each of the steps."""
        rows = [a_row(step, rank=self.lease["ranks"][0]) for step in steps]
        return self._send("metrics", {"sequence": sequence, "rows": rows, **changes})

    def result(self, outcome: str, **changes: Any) -> httpx.Response:
        """Put the result."""
        body = {"epoch": self.lease["epoch"], "outcome": outcome, **changes}
        path = f"/v1/leases/{self.lease['id']}/result"
        return self.client.put(path, json=body, headers=self.headers)

    def _send(self, what: str, body: dict[str, Any]) -> httpx.Response:
        path = f"/v1/leases/{self.lease['id']}/{what}"
        body = {"epoch": self.lease["epoch"], **body}
        return self.client.post(path, json=body, headers=self.headers)


def a_row(step: int, *, rank: int = 0, **changes: Any) -> dict[str, Any]:
    """A step of 1.5 s with a loss of 4 less a tenth of the step, and 10 GB at its peak."""
    fields = {
        "rank": rank,
        "step": step,
        "step_seconds": 1.5,
        "tokens_per_second": 1000.0,
        "loss": 4 - step / 10,
        "peak_memory_bytes": 10_000_000_000,
    }
    return {**fields, **changes}


def two_agents(client: TestClient) -> tuple[AgentAtWork, AgentAtWork]:
    """Enrol two agents that wait for leases."""
    first, second = AgentAtWork.enrolled(client, "node-a"), AgentAtWork.enrolled(client, "node-b")
    assert [agent.poll().status_code for agent in (first, second)] == [204, 204]
    return first, second


def leased(client: TestClient, **changes: Any) -> tuple[str, AgentAtWork, AgentAtWork]:
    """Have a run leased to two agents; return its id, and them in the order of their nodes."""
    agents = two_agents(client)
    run_id = a_run(client, **changes)
    for agent in agents:
        assert agent.poll().status_code == 200
    first, second = sorted(agents, key=lambda agent: agent.lease["node_rank"])
    return run_id, first, second


def running(client: TestClient, **changes: Any) -> tuple[str, AgentAtWork, AgentAtWork]:
    """Have a run launched by two agents."""
    run_id, first, second = leased(client, **changes)
    launch(first, second)
    return run_id, first, second


def launch(*agents: AgentAtWork) -> None:
    """Bring all agents of a gang to `running`."""
    for agent in agents:
        assert agent.beat("ready").status_code == 200
    for agent in agents:
        assert agent.beat("running").json()["go"]


def state_of(client: TestClient, run_id: str) -> str:
    """Return the run's state."""
    state: str = client.get(f"/v1/runs/{run_id}").json()["state"]
    return state


def sweeper_of(client: TestClient) -> Sweeper:
    """Return the application's sweeper, which has watched for ever."""
    sweeper: Sweeper = client.app.state.agent_services.sweeper  # type: ignore[attr-defined]
    clock: Callable[[], float] = iter([0.0, *[1e9] * 1000]).__next__
    sweeper._watch = Watch(gap_seconds=math.inf, clock=clock)
    return sweeper


def pass_time(client: TestClient, seconds: float, *, but: tuple[AgentAtWork, ...] = ()) -> None:
    """Have the database's past lie further back, for all but some agents; then sweep."""
    age(client, seconds, but=but)
    sweeper_of(client).sweep()


def age(client: TestClient, seconds: float, *, but: tuple[AgentAtWork, ...] = ()) -> None:
    """Have the database's past lie further back, for all but some agents."""
    span = timedelta(seconds=seconds)
    spared = {agent.agent_id for agent in but}
    with client.app.state.database.writing() as session:  # type: ignore[attr-defined]
        for lease in session.scalars(select(LeaseRow)):
            if lease.agent_id not in spared:
                lease.expires_at -= span
                lease.offered_at -= span
        for agent in session.scalars(select(AgentRow)):
            if agent.id not in spared and agent.available_until is not None:
                agent.available_until -= span
        for run in session.scalars(select(RunRow)):
            run.queued_at -= span
