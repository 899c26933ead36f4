"""A client that a generator makes of the committed description works against the service."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.contract.api.callers import a_key
from tests.contract.api.processes import PATIENCE_SECONDS, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True),
]
DESCRIPTION = Path(__file__).parents[3] / "docs" / "openapi.json"
PACKAGE = "generated_meshwright_client"


@pytest.fixture
def generated(tmp_path, monkeypatch):
    """Make the client, and give what imports its modules."""
    pytest.importorskip("openapi_python_client", reason="no package openapi-python-client")
    target = tmp_path / PACKAGE
    command = ["generate", "--meta", "none", "--path", str(DESCRIPTION)]
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *command, "--output-path", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (target / "client.py").exists(), done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name: importlib.import_module(f"{PACKAGE}.{name}")
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def planned(ask, kind):
    """Ask until what comes back is a plan and not an operation that looks for one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not isinstance(made := ask(), kind):
        assert time.monotonic() < deadline, made
    return made


def test_a_generated_client_plans_reads_and_is_told_what_is_wrong(generated, database, tmp_path):
    key, overseer = a_key(database, "read", "plan"), a_key(database, "admin")
    models = generated("models")
    request = models.PlanRequest.from_dict(
        {
            "model": "gpt2",
            "cluster": "8xh100-sxm5-80gb",
            "job": {"global_batch_size": 64, "sequence_length": 512},
        }
    )
    with (
        serving(
            tmp_path / "service", database_url=str(database.engine.url), ANONYMOUS_SCOPES=""
        ) as service,
        generated("client").AuthenticatedClient(base_url=service.url, token=key.key) as client,
    ):
        made = planned(
            lambda: generated("api.plans.create_plan").sync(
                client=client, body=request, prefer="wait=30"
            ),
            models.Plan,
        )
        listed = generated("api.plans.list_plans").sync(client=client)
        refused = generated("api.keys.list_keys").sync(client=client)
        with generated("client").AuthenticatedClient(
            base_url=service.url, token=overseer.key
        ) as theirs:
            made_project = generated("api.projects.create_project").sync(
                client=theirs, body=models.ProjectRequest(name="vision", holder="Ada")
            )
        project = generated("api.projects.create_project").sync(
            client=client, body=models.ProjectRequest(name="vision", holder="Ada")
        )
        export = generated("api.plans.read_export").sync(made.id, "torchtitan", client=client)
        missing = generated("api.plans.read_plan").sync("plan-none", client=client)

    assert isinstance(made, models.Plan)
    assert [summary.id for summary in listed.items] == [made.id]
    assert made_project.first_key.project == "vision"
    assert export.target == "torchtitan"
    assert project.status == 403
    assert isinstance(refused, models.Problem)
    assert (refused.status, missing.status) == (403, 404)
