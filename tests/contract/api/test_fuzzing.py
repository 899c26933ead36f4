"""Generated requests, good and bad: none breaks the service, and every answer is documented."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.caller import Scope
from api.migrate import upgrade_url
from api.settings import Settings
from tests.contract.api.solvers import a_planner, plan_at_once
from tests.contract.api.solving import a_stored_plan

DESCRIPTION = Path(__file__).parents[3] / "docs" / "openapi.json"
OPERATIONS = [
    (path, method, operation)
    for path, item in json.loads(DESCRIPTION.read_text(encoding="utf-8"))["paths"].items()
    for method, operation in item.items()
]
GOOD = [(path, method, GenerationMode.POSITIVE) for path, method, _ in OPERATIONS]
# An ETag may be any text: where nothing else is asked for, no request is wrong.
BAD = [
    (path, method, GenerationMode.NEGATIVE)
    for path, method, operation in OPERATIONS
    if "requestBody" in operation
    or any(one["name"].lower() != "if-none-match" for one in operation.get("parameters", ()))
]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# The bounds of every field are sent elsewhere: these find what nobody thought of.
EXAMPLES = int(os.environ.get("MESHWRIGHT_FUZZ_EXAMPLES", "6"))
BOUNDED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """The description of an application that runs and has a plan."""
    url = f"sqlite:///{tmp_path_factory.mktemp('fuzzing')}/meshwright.db"
    upgrade_url(url)
    app = create_app(
        Settings(database_url=url, allowed_hosts=("testserver",), anonymous_scopes=tuple(Scope)),
        planner=a_planner(plan=plan_at_once),
    )
    with TestClient(app) as client:
        a_stored_plan(client)
        schema = schemathesis.openapi.from_asgi("/openapi.json", _started_once(app))
        # keys that are made up would be refused before anything else is looked at
        schema.config.generation.update(with_security_parameters=False)
        yield schema


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method", "mode"), GOOD + BAD)
def test_no_generated_request_breaks_the_service(described, path, method, mode):
    operation = described[path][method]

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers_as_documented(case):
        case.call_and_validate(checks=CHECKS)

    answers_as_documented()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/plans", "/v1/estimates"])
def test_no_generated_job_breaks_the_service(described, path):
    """With a known model, cluster and strategy, requests get past the first check."""
    known = {"model": "tiny", "cluster": "8xh100-sxm5-80gb"}
    strategy = {"strategy": {"tensor_parallel_degree": 8}} if path == "/v1/estimates" else {}
    statuses = set()

    @BOUNDED
    @given(case=described[path]["post"].as_strategy())
    def answers_as_documented(case):
        case.body = {**case.body, **known, **strategy}
        statuses.add(case.call_and_validate(checks=CHECKS).status_code)

    answers_as_documented()
    assert statuses & {200, 201}


@pytest.mark.slow
def test_no_sequence_of_requests_breaks_the_service(described):
    """What one answer names, the next request asks for: made, read, listed, revoked, read again."""

    class Workflow(described.as_state_machine()):
        def validate_response(self, response, case, **_):
            case.validate_response(response, checks=CHECKS)

    Workflow.run(
        settings=settings(BOUNDED, max_examples=max(8, EXAMPLES // 4), stateful_step_count=5)
    )


def _started_once(app):
    """Return `app` for a client that would start and stop it around each request."""

    async def running(scope, receive, send):
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for stage in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{stage}.complete"})

    return running
