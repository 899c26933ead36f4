"""A service whose solves and analyses run on a Dask cluster answers as one without."""

from __future__ import annotations

import pytest

from api.services.analysis_work import analyse
from api.settings import Settings
from planner.errors import InputError
from planner.planning import plan
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job
from tests.applications import an_application
from tests.contract.api.processes import PATIENCE_SECONDS, until
from tests.contract.api.solving import ENDLESS, PATIENT, a_request, a_running_solve, ended
from tests.dask_cluster import dask_cluster, needs_dask

pytestmark = [
    pytest.mark.slow,
    needs_dask,
]


def test_solves_run_on_the_cluster_and_a_lost_scheduler_is_a_503_that_names_it(make_client):
    with dask_cluster() as cluster:
        cluster.start_worker()
        with make_client(dask_scheduler=cluster.address) as client:
            made = client.post("/v1/plans", json=a_request(), headers=PATIENT)
            cancelled = a_running_solve(client)
            stopped = client.delete(f"/v1/operations/{cancelled}")
            after = client.post("/v1/plans", json=a_request(32), headers=PATIENT)
            lost = a_running_solve(client)
            cluster.scheduler.kill()
            failed = ended(client, lost)
            until(lambda: client.post("/v1/plans", json=a_request(64)).status_code == 503)
            refused = client.post("/v1/plans", json=a_request(ENDLESS))
            read = client.get(f"/v1/plans/{made.json()['id']}")

    assert (made.status_code, after.status_code) == (201, 201)
    assert stopped.is_success
    assert failed.problem is not None
    assert failed.problem.type == "urn:meshwright:problem:dask-unavailable"
    assert refused.status_code == 503
    assert refused.json()["type"] == "urn:meshwright:problem:dask-unavailable"
    assert cluster.address in refused.json()["detail"]
    assert read.json() == made.json()


def test_a_heatmap_on_one_worker_is_the_one_made_here_to_the_bit():
    """Its cells need the worker's only place, which the heatmap itself gives back."""
    from planner.pools.dask_pool import DaskPool  # noqa: PLC0415 - an extra

    job = Job(global_batch_size=16, sequence_length=1024)
    plan_json = plan(resolved_model("gpt2"), resolved_cluster("2xh100"), job).to_json()
    question = ("heatmap", plan_json, "")
    with dask_cluster() as cluster:
        cluster.start_worker()
        pool = DaskPool(cluster.address, seconds_limit=PATIENCE_SECONDS)
        there = pool.submit(
            analyse, *question, seconds=PATIENCE_SECONDS, dask_scheduler=cluster.address
        ).result(PATIENCE_SECONDS)
        pool.shutdown(cancel_futures=True)

    assert there == analyse(*question, seconds=PATIENCE_SECONDS)


@pytest.mark.parametrize("address", ["10.0.0.5", "http://10.0.0.5:8786"])
def test_a_service_refuses_what_is_no_address_of_a_scheduler(address):
    settings = Settings(dask_scheduler=address)

    with pytest.raises(InputError, match="MESHWRIGHT_DASK_SCHEDULER: is not an address"):
        an_application(settings)
