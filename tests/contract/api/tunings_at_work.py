"""Tunings that tests ask for, and trials that the agents of tests run."""

from __future__ import annotations

from concurrent.futures import wait
from typing import Any

from fastapi.testclient import TestClient

from api.services.tuning_trials import TuningTrials
from tests.contract.api.agents_at_work import AgentAtWork, a_row, launch, sweeper_of, two_nodes
from tests.contract.api.solving import PATIENCE_SECONDS

OUT_OF_MEMORY = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


def a_tuning_request(*, runs: int = 2, **changes: Any) -> dict[str, Any]:
    """Tune the tiny model on two nodes, by two timed steps a trial."""
    fields = {
        "model": "tiny",
        "cluster": two_nodes(),
        "job": {"global_batch_size": 16, "sequence_length": 128},
        "budget": {"runs": runs, "steps": 2},
    }
    return {**fields, **changes}


def a_tuning(client: TestClient, **changes: Any) -> str:
    """Begin a tuning and return its id, once its first trial is queued."""
    answer = client.post("/v1/tunings", json=a_tuning_request(**changes))
    assert answer.status_code == 201, answer.text
    searched(client)
    identifier: str = answer.json()["id"]
    return identifier


def tuning_of(client: TestClient, tuning_id: str) -> dict[str, Any]:
    """Return the tuning."""
    found: dict[str, Any] = client.get(f"/v1/tunings/{tuning_id}").json()
    return found


def trials_of(client: TestClient) -> TuningTrials:
    """Return what takes the application's tunings on."""
    found: TuningTrials = client.app.state.agent_services.trials  # type: ignore[attr-defined]
    return found


def searched(client: TestClient) -> None:
    """Wait until what comes next is known of all tunings."""
    done = wait(trials_of(client).recorded(), timeout=PATIENCE_SECONDS)
    assert not done.not_done


def went_on(client: TestClient) -> None:
    """Have the service look at all tunings, and wait until what comes next is known."""
    sweeper_of(client).sweep()
    searched(client)


def launched(*agents: AgentAtWork) -> None:
    """Have agents launch the trial that is leased to them once all have asked."""
    for agent in agents:
        agent.poll()
    for agent in agents:
        assert agent.poll().status_code == 200
    launch(*agents)


def measure(client: TestClient, *agents: AgentAtWork, seconds: float) -> None:
    """Have agents run the trial under way: steps of `seconds` after a first one of twice that."""
    launched(*agents)
    for agent in agents:
        rank = agent.lease["ranks"][0]
        times = enumerate((2 * seconds, seconds, seconds), 1)
        rows = [a_row(step, rank=rank, step_seconds=time) for step, time in times]
        agent.metrics(0, rows=rows)
    went_on(client)
    for agent in agents:
        assert agent.beat("running").json()["stop"]
        agent.result("stopped")
    went_on(client)


def fail(client: TestClient, *agents: AgentAtWork, reason: str) -> None:
    """Have the first of the agents fail in the trial under way."""
    launched(*agents)
    agents[0].result("failed", reason=reason, failed_rank=0, exit_code=1)
    for agent in agents[1:]:
        agent.result("stopped")
    went_on(client)
