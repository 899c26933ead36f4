"""`--dask`: commands answer the same where a Dask cluster does the work."""

from __future__ import annotations

import json

import pytest

from tests.contract.test_cli_answers import CLUSTER, JOB, MODEL, SIZE, run
from tests.dask_cluster import dask_cluster, needs_dask

pytestmark = [pytest.mark.slow, needs_dask]
REQUEST = (MODEL, CLUSTER, *JOB)
PROVEN = ("--solver-seconds", "300")  # on a busy machine too


@pytest.fixture(scope="module")
def cluster():
    with dask_cluster() as cluster:
        yield cluster


def test_a_cluster_without_workers_is_told_and_how_one_is_started(cluster):
    done = run("plan", *REQUEST, "--dask", cluster.address)

    assert done.exit_code == 1
    assert done.stderr == (
        f"error: --dask: has no workers (got {cluster.address}); start one: "
        f"dask worker {cluster.address} --no-nanny\n"
    )


def test_plans_prices_and_heatmaps_are_those_made_here(cluster, tmp_path):
    cluster.start_worker()
    cluster.wait_for_workers()
    strategies, plan = tmp_path / "strategies.jsonl", tmp_path / "plan.json"
    dask = ("--dask", cluster.address)

    there = run("plan", *REQUEST, *PROVEN, "--out", plan, "--json", *dask)
    here = run("plan", *REQUEST, *PROVEN, "--json")
    assert there.stderr == ""
    own = json.loads(there.stdout)["strategy"]
    lines = [json.dumps(own), "{}", *[json.dumps(own)] * 600]
    strategies.write_text("\n".join(lines), encoding="utf-8")
    price = ("estimate", *REQUEST, "--strategies", strategies)
    explain = ("explain", plan, "--heatmap", "--json")
    frameworks = ("compare-frameworks", plan, *PROVEN, "--json")

    assert (there.exit_code, _timeless(there)) == (here.exit_code, _timeless(here))
    assert run(*price, "--json", *dask) == run(*price, "--json")
    assert run(*price, *dask) == run(*price)
    assert run(*explain, *dask) == run(*explain)
    assert _timeless(run(*frameworks, *dask)) == _timeless(run(*frameworks))


@pytest.mark.parametrize(
    "command",
    [
        ("frontier", *REQUEST, "--points", "3", "--alternatives", "2"),
        (*SIZE, *JOB, "--tokens", "1e6", "--days", "1", "--cheapest"),
    ],
    ids=["frontier", "size"],
)
def test_many_searches_answer_as_here(cluster, command):
    cluster.start_worker()
    cluster.wait_for_workers()

    there = run(*command, *PROVEN, "--json", "--dask", cluster.address)
    here = run(*command, *PROVEN, "--json")

    assert (there.exit_code, there.stderr) == (0, "")
    assert _without_times(json.loads(there.stdout)) == _without_times(json.loads(here.stdout))


def test_a_scheduler_that_is_not_there_is_told_at_once():
    done = run("estimate", *REQUEST, "--strategies", __file__, "--dask", "tcp://127.0.0.1:9")

    assert done.exit_code == 1
    assert done.stderr.startswith(
        "error: the Dask scheduler at tcp://127.0.0.1:9 cannot be reached;"
    )
    assert done.stderr.count("\n") == 1


def _timeless(done):
    return _without_times(json.loads(done.stdout))


def _without_times(part):
    """Return a document without how long its searches took."""
    if isinstance(part, list):
        return [_without_times(each) for each in part]
    if isinstance(part, dict):
        return {k: _without_times(v) for k, v in part.items() if k != "solve_seconds"}
    return part
