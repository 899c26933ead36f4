"""Questions about a plan over REST, and what a plan becomes for other programs."""

from __future__ import annotations

import functools
import time

import pytest
from fastapi.testclient import TestClient

from api.repositories.plans import PlanRepository
from api.services.records import plan_row
from planner.exporters.registry import TARGETS
from planner.planning import plan
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.plan import Infeasible
from tests.contract.api.callers import a_key, bearer

ANSWERED_WITHIN_SECONDS = 240


@functools.cache
def _planned(batch, length):
    job = Job(global_batch_size=batch, sequence_length=length)
    return plan(resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb"), job)


@pytest.fixture
def plan_id(database):
    """A stored plan for 8 GPUs."""
    return _stored(database, batch=64, length=1024)


@pytest.fixture
def infeasible_id(database):
    """An answer that nothing fits: a sequence of so many tokens needs more memory than there is."""
    return _stored(database, batch=8, length=2**23)


def _stored(database, *, batch, length):
    made = _planned(batch, length)
    with database.writing() as session:
        PlanRepository(session, "default").add(plan_row(made, request_digest=made.id))
    return made.id


def answered(client: TestClient, plan_id: str, **question: object):
    """Ask, and ask again until there is an answer."""
    path = f"/v1/plans/{plan_id}/analyses"
    deadline = time.monotonic() + ANSWERED_WITHIN_SECONDS
    while True:
        told = client.post(path, json=question)
        assert told.status_code in {200, 202}, told.text
        assert (told.status_code == 200) == (told.json()["state"] != "running")
        if told.status_code == 200:
            return told.json()
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
def test_a_question_is_worked_out_once_and_kept_with_the_plan(client, plan_id):
    answer = answered(client, plan_id, kind="why-not", tensor_parallel_degree=8)
    (listed,) = client.get(f"/v1/plans/{plan_id}/analyses").json()["items"]

    assert answer == listed
    assert (answer["kind"], answer["asked"]) == ("why-not", "tensor_parallel_degree=8")
    assert answer["objection"]["verdict"] == "slower"
    assert answer["reasons"] is answer["heatmap"] is answer["frontier"] is None
    client.delete(f"/v1/plans/{plan_id}")
    assert client.get(f"/v1/plans/{plan_id}/analyses").status_code == 404


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"kind": "why"}, "kind"),
        ({"kind": "why-not"}, "why not"),
        ({"kind": "why-not", "tensor_parallel_degree": 0}, "tensor_parallel_degree"),
        ({"kind": "why-not", "data_parallel_degree": 2}, "data_parallel_degree"),
        ({"kind": "heatmap", "tensor_parallel_degree": 8}, "tensor_parallel_degree"),
    ],
)
def test_a_question_that_cannot_be_asked_names_the_field(client, plan_id, question, field):
    for path in ("analyses", "analyses/cancel"):
        answer = client.post(f"/v1/plans/{plan_id}/{path}", json=question)

        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == field


def test_what_is_no_plan_has_neither_analyses_nor_exports(client, database, infeasible_id):
    other = bearer(a_key(database, project="team-a"))

    for plan_id, header, status in (
        ("none", {}, 404),
        (infeasible_id, other, 404),
        (infeasible_id, {}, 422),
    ):
        path = f"/v1/plans/{plan_id}"
        asked = client.post(f"{path}/analyses", json={"kind": "reasons"}, headers=header)
        exported = client.get(f"{path}/exports/deepspeed", headers=header)
        listed = client.get(f"{path}/exports", headers=header)
        assert [asked.status_code, exported.status_code, listed.status_code] == [status] * 3
    assert (
        client.get(f"/v1/plans/{infeasible_id}").json()["status"]
        == Infeasible.model_fields["status"].default
    )


def test_a_plan_is_exported_with_what_is_lost(client, plan_id):
    path = f"/v1/plans/{plan_id}/exports"

    listed = client.get(path).json()["items"]
    exported = client.get(f"{path}/torchtitan").json()

    assert [item["target"] for item in listed] == list(TARGETS)
    assert exported["files"]
    for file in exported["files"]:
        download = client.get(f"/plans/{plan_id}/exports/torchtitan/files/{file['name']}")
        assert file["text"] == download.text
    for item in listed:
        status = client.get(f"{path}/{item['target']}").status_code
        assert status == (200 if item["refusal"] is None else 422), item


def test_a_launcher_starts_a_frameworks_job_by_the_interface_and_the_page(client, plan_id):
    path = f"/v1/plans/{plan_id}/exports/slurm?job_of=torchtitan"
    exported = client.get(path).json()

    script, config = exported["files"]
    assert "-m torchtitan.train --module plan_config --config plan" in script["text"]
    assert (
        exported["losses"] == client.get(f"/v1/plans/{plan_id}/exports/torchtitan").json()["losses"]
    )
    page = client.get(f"/plans/{plan_id}/exports/slurm?job_of=torchtitan").text
    assert "--to slurm --job-of torchtitan" in page
    file = f"/plans/{plan_id}/exports/slurm/files/{config['name']}?job_of=torchtitan"
    assert f'href="{file}"' in page
    assert client.get(file).text == config["text"]


def test_a_job_that_no_launcher_starts_is_refused(client, plan_id):
    answer = client.get(f"/v1/plans/{plan_id}/exports/slurm?job_of=verl")

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "job_of"


def test_a_target_that_nobody_knows_is_told_with_those_that_there_are(client, plan_id):
    answer = client.get(f"/v1/plans/{plan_id}/exports/jax")

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "target"
    assert "torchtitan" in answer.json()["errors"][0]["remedy"]
