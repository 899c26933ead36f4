"""An agent that a test plays over HTTP, on a node that fits the seeds' plans."""

from __future__ import annotations

import uuid

import httpx

from planner.schema.lifecycle import FINAL_RUN_STATES
from tests.contract.api.agents_at_work import DEVICE, AgentAtWork, a_report, a_row, launch


def an_agent(
    client: httpx.Client, *, token: str | None = None, name: str = "node-a"
) -> AgentAtWork:
    """Enrol an agent with eight H100, with a token that somebody made or one of its own.

    What earlier tests left ends first: an agent that still counts as idle would be given the run
    that this one waits for, and a run that still waits would be given to this one.
    """
    end_what_is_left(client)
    token = token or client.post("/v1/enrolment-tokens", json={}).json()["token"]
    devices = [{"index": i, "name": "NVIDIA H100", "profile": DEVICE} for i in range(8)]
    report = a_report(f"{name}-{uuid.uuid4().hex[:6]}", devices=devices)
    enrolment = client.post("/v1/agents", json={**report, "enrolment_token": token}).json()
    headers = {"Authorization": f"Bearer {enrolment['token']}"}
    return AgentAtWork(client, enrolment["agent_id"], headers)


def end_what_is_left(client: httpx.Client) -> None:
    """Cancel every run that is not over, and revoke every agent."""
    for run in client.get("/v1/runs", params={"limit": 100}).json()["items"]:
        if run["state"] not in FINAL_RUN_STATES:
            assert client.post(f"/v1/runs/{run['id']}/cancel").status_code == 200
    for agent in client.get("/v1/agents").json()["items"]:
        assert client.delete(f"/v1/agents/{agent['id']}").status_code == 204


def take_lease(agent: AgentAtWork) -> None:
    """Take the lease that waits, and launch it."""
    assert agent.poll(wait=10).status_code == 200
    launch(agent)


def measure(
    agent: AgentAtWork, first: int, last: int, *, seconds: float = 1.1, **changes: float
) -> None:
    """Report steps `first` to `last`; the first one of a run has sequence number 0."""
    for step in range(first, last + 1):
        row = a_row(
            step,
            rank=agent.lease["ranks"][0],
            step_seconds=seconds * (1 + 0.01 * (step % 3)),
            **changes,
        )
        body = {"epoch": agent.lease["epoch"], "sequence": step - 1, "rows": [row]}
        path = f"/v1/leases/{agent.lease['id']}/metrics"
        assert agent.client.post(path, json=body, headers=agent.headers).status_code == 200


def a_run_under_way(client: httpx.Client, plan_id: str) -> tuple[str, AgentAtWork]:
    """Return a run of the plan that has measured eight steps and written a line."""
    agent = an_agent(client)
    agent.poll()
    answer = agent.client.post("/v1/runs", json={"plan_id": plan_id})
    assert answer.status_code == 201, answer.text
    take_lease(agent)
    measure(agent, 1, 8)
    agent.log(0, "rank 0: 8 steps\n")
    return answer.json()["id"], agent
