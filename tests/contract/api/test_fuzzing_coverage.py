"""The requests that the description itself names: its examples, and the bounds of every field.

Each is within or just beyond what the description allows. None breaks the service, every answer is
documented, what is beyond is refused, and methods that a path does not have are answered as such.
"""

from __future__ import annotations

import pytest
import schemathesis
from fastapi.testclient import TestClient
from schemathesis.engine import Status, events, from_schema

from api.app import create_app
from api.caller import Scope
from api.migrate import upgrade_url
from api.settings import Settings
from planner.requests.resolution import resolved_cluster, resolved_model
from tests.contract.api.solvers import a_planner, plan_at_once
from tests.contract.api.test_fuzzing import OPERATIONS, _started_once

# What takes seconds: their documents have very many fields. That of plans stands for them all.
LONG = {("/v1/estimates", "post"), ("/v1/agents", "post"), ("/v1/agents/{agent_id}", "put")}
CASES = [
    pytest.param(path, method, marks=[pytest.mark.full] * ((path, method) in LONG))
    for path, method, _ in OPERATIONS
]


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """The description of an application that knows what the examples name, and plans at once."""
    url = f"sqlite:///{tmp_path_factory.mktemp('coverage')}/meshwright.db"
    upgrade_url(url)
    planner = a_planner(
        plan=plan_at_once, resolved_model=resolved_model, resolved_cluster=resolved_cluster
    )
    app = create_app(
        Settings(database_url=url, allowed_hosts=("testserver",), anonymous_scopes=tuple(Scope)),
        planner=planner,
    )
    with TestClient(app):
        schema = schemathesis.openapi.from_asgi("/openapi.json", _started_once(app))
        schema.config.generation.update(with_security_parameters=False)
        # a description cannot say which names are known, which cursors ours, which jobs make sense
        schema.config.checks.update(excluded_check_names=["positive_data_acceptance"])
        yield schema


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), CASES)
def test_what_the_description_names_is_answered_as_described(named, path, method):
    schema = named.include(path=path, method=method)
    schema.config.phases.update(phases=["examples", "coverage"])
    schema.config.update(continue_on_failure=True)

    found = [event for event in from_schema(schema).execute() if has_failed(event)]

    assert not found, "\n".join(map(said, found))


def has_failed(event):
    """Return whether the event says that something went otherwise than described."""
    if isinstance(event, events.ScenarioFinished):
        return event.status in (Status.FAILURE, Status.ERROR)
    return isinstance(event, (events.NonFatalError, events.FatalError))


def said(event):
    """Return what a failure says."""
    if not isinstance(event, events.ScenarioFinished):
        return str(event.value if isinstance(event, events.NonFatalError) else event.exception)
    nodes = (node for checks in event.recorder.checks.values() for node in checks)
    return "\n".join(
        f"{node.name}: {node.failure_info.failure}\n{node.failure_info.code_sample}"
        for node in nodes
        if node.failure_info is not None
    )
