"""Several processes over one PostgreSQL: any answers for all, and none keeps anything to itself."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.contract.api.callers import a_key
from tests.contract.api.processes import serving

SLOW = {
    "model": "deepseek-v3",
    "cluster": "64x8xh100-sxm5-80gb",
    "job": {"global_batch_size": 4096, "sequence_length": 4096},
}
QUICK = {
    "model": "llama-3-8b",
    "cluster": "8xh100-sxm5-80gb",
    "job": {"global_batch_size": 64, "sequence_length": 4096},
}
pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def two(database_kind, database, tmp_path):
    """Clients of two processes over one database, with one key."""
    if database_kind != "postgres":
        pytest.skip("a SQLite file belongs to one process")
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    header = f"Bearer {a_key(database).key}"
    with (
        serving(tmp_path / "one", database_url=url) as one,
        serving(tmp_path / "other", database_url=url) as other,
        one.client(Authorization=header) as first,
        other.client(Authorization=header) as second,
    ):
        yield first, second


def until_ended(client: httpx.Client, operation_id: str) -> dict:
    """Return the operation once it has ended, as its events tell."""
    with client.stream("GET", f"/v1/operations/{operation_id}/events", timeout=60) as events:
        for _ in events.iter_lines():
            pass
    return client.get(f"/v1/operations/{operation_id}").json()


def test_what_one_process_solves_the_other_shows_answers_and_ends(two):
    one, other = two

    made = one.post("/v1/plans", json=QUICK, headers={"Prefer": "wait=30"})
    again = other.post("/v1/plans", json=QUICK)
    read = other.get(
        f"/v1/plans/{made.json()['id']}", headers={"If-None-Match": made.headers["ETag"]}
    )

    assert (made.status_code, again.status_code, read.status_code) == (201, 200, 304)
    assert again.content == made.content

    started = one.post("/v1/plans", json=SLOW, headers={"Prefer": "wait=0"})
    operation = started.json()["id"]
    shared = other.post("/v1/plans", json=SLOW, headers={"Prefer": "wait=0"})
    cancelled = other.delete(f"/v1/operations/{operation}")

    assert shared.json()["id"] == operation
    assert cancelled.json()["state"] == "cancelled"
    assert until_ended(one, operation)["state"] == "cancelled"
    deadline = time.monotonic() + 60
    while "meshwright_solves_running 0.0" not in one.get("/metrics").text:
        assert time.monotonic() < deadline, "the solve went on after it was cancelled elsewhere"
        time.sleep(0.2)
