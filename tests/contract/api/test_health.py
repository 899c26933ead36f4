"""/healthz, /readyz, /metrics."""

from __future__ import annotations

from fastapi.testclient import TestClient

from api.app import create_app
from api.migrate import downgrade, upgrade
from api.settings import Settings
from tests.contract.api.agents_at_work import (
    QUIET,
    AgentAtWork,
    a_run,
    plan_by_devices,
    running,
)
from tests.contract.api.solvers import a_planner
from tests.contract.api.solving import a_stored_plan


def test_a_migrated_service_is_ready(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_service_on_an_older_schema_is_alive_but_not_ready(make_app, database):
    app = make_app()
    downgrade(database, "base")
    client = TestClient(app)

    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    assert "meshwright db upgrade" in client.get("/readyz").json()["detail"]
    upgrade(database)


def test_a_service_without_its_database_says_so_and_no_more(tmp_path):
    url = f"sqlite:///{tmp_path}/no-such-directory/meshwright.db"
    client = TestClient(
        create_app(Settings(database_url=url, allowed_hosts=("testserver",)), planner=a_planner())
    )

    ready, plans = client.get("/readyz"), client.get("/v1/plans")

    assert (ready.status_code, plans.status_code) == (503, 503)
    assert plans.json()["type"] == "urn:meshwright:problem:database-unavailable"
    assert "no-such-directory" not in ready.text + plans.text


def test_metrics_count_requests_by_route(client):
    identifier = a_stored_plan(client)
    client.get(f"/v1/plans/{identifier}")

    line = 'meshwright_requests_total{method="GET",route="/v1/plans/{plan_id}",status="200"} 1.0'
    assert line in client.get("/metrics").text


def test_metrics_count_agents_leases_and_runs_by_state(make_client):
    with make_client(planner=a_planner(plan=plan_by_devices), **QUIET) as client:
        running(client)
        AgentAtWork.enrolled(client, "node-c")
        a_run(client)
        text = client.get("/metrics").text

    for line in (
        'meshwright_agents{state="busy"} 2.0',
        'meshwright_agents{state="away"} 1.0',
        'meshwright_leases{state="running"} 2.0',
        'meshwright_runs{state="running"} 1.0',
        'meshwright_runs{state="queued"} 1.0',
        'meshwright_runs{state="failed"} 0.0',
    ):
        assert line in text.splitlines()
    assert "meshwright_run_longest_wait_seconds " in text


def test_metrics_are_there_while_the_database_is_not(tmp_path):
    url = f"sqlite:///{tmp_path}/no-such-directory/meshwright.db"
    app = create_app(Settings(database_url=url, allowed_hosts=("testserver",)), planner=a_planner())

    answer = TestClient(app).get("/metrics")

    assert answer.status_code == 200
    assert "meshwright_solves_running" in answer.text
    assert "meshwright_runs" not in answer.text
