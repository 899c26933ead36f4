"""Generated writes of an agent that holds a lease: none breaks the service."""

from __future__ import annotations

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import given
from schemathesis.generation import GenerationMode

from api.app import create_app
from api.caller import Scope
from api.migrate import upgrade_url
from api.settings import Settings
from tests.contract.api.agents_at_work import QUIET, plan_by_devices, running
from tests.contract.api.solvers import a_planner
from tests.contract.api.test_fuzzing import BOUNDED, CHECKS, _started_once

LEASE = "/v1/leases/{lease_id}"
WRITES = [(LEASE, "patch"), (f"{LEASE}/logs", "post"), (f"{LEASE}/metrics", "post")]
MODES = [GenerationMode.NEGATIVE, GenerationMode.POSITIVE]


@pytest.fixture(scope="module")
def at_work(tmp_path_factory):
    """The description of an application that runs, and an agent whose ranks run."""
    url = f"sqlite:///{tmp_path_factory.mktemp('agent-fuzzing')}/meshwright.db"
    upgrade_url(url)
    settings = Settings(
        database_url=url,
        allowed_hosts=("testserver",),
        anonymous_scopes=tuple(Scope),
        requests_per_minute=1_000_000,
        **QUIET,
    )
    app = create_app(settings, planner=a_planner(plan=plan_by_devices))
    with TestClient(app) as client:
        _, agent, _ = running(client)
        yield schemathesis.openapi.from_asgi("/openapi.json", _started_once(app)), agent


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), WRITES)
@pytest.mark.parametrize("mode", MODES)
def test_no_generated_write_of_an_agent_breaks_the_service(at_work, path, method, mode):
    statuses = answers(at_work, path, method, mode)

    assert statuses <= {200, 409, 415, 422}
    assert 200 in statuses or mode is GenerationMode.NEGATIVE


@pytest.mark.slow
def test_no_generated_result_breaks_the_service(at_work):
    """The first that is understood ends the lease; the others are in conflict with it."""
    path = f"{LEASE}/result"

    refused = answers(at_work, path, "put", GenerationMode.NEGATIVE)
    taken = answers(at_work, path, "put", GenerationMode.POSITIVE)

    assert refused <= {200, 409, 415, 422}
    assert taken <= {200, 409}


def answers(at_work, path, method, mode):
    """Send what is generated as the agent under its lease; return the statuses of the answers."""
    description, agent = at_work
    statuses = set()

    @BOUNDED
    @given(case=description[path][method].as_strategy(generation_mode=mode))
    def answers_as_documented(case):
        case.path_parameters = {"lease_id": agent.lease["id"]}
        case.headers = agent.headers
        if isinstance(case.body, dict):
            case.body = {**case.body, "epoch": agent.lease["epoch"]}
        statuses.add(case.call_and_validate(checks=CHECKS).status_code)

    answers_as_documented()
    return statuses
