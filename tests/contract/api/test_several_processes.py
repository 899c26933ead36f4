"""Several processes over one PostgreSQL: any answers for all, and none keeps anything to itself."""

from __future__ import annotations

import httpx
import pytest

from tests.contract.api.callers import a_key
from tests.contract.api.processes import planned, serving, until

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
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "database_kind", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
    ),
]


@pytest.fixture
def two(database, tmp_path):
    """Clients of two processes over one database, with one key."""
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
    with client.stream("GET", f"/v1/operations/{operation_id}/events", timeout=600) as events:
        for _ in events.iter_lines():
            pass
    return client.get(f"/v1/operations/{operation_id}").json()


def test_what_one_process_solves_the_other_shows_answers_and_ends(two):
    one, other = two

    made = planned(one, QUICK)
    again = other.post("/v1/plans", json=QUICK)
    read = other.get(
        f"/v1/plans/{made.json()['id']}", headers={"If-None-Match": made.headers["ETag"]}
    )

    assert (again.status_code, read.status_code) == (200, 304)
    assert again.content == made.content

    started = one.post("/v1/plans", json=SLOW, headers={"Prefer": "wait=0"})
    operation = started.json()["id"]
    shared = other.post("/v1/plans", json=SLOW, headers={"Prefer": "wait=0"})
    cancelled = other.delete(f"/v1/operations/{operation}")

    assert shared.json()["id"] == operation
    assert cancelled.json()["state"] == "cancelled"
    assert until_ended(one, operation)["state"] == "cancelled"
    until(lambda: "meshwright_solves_running 0.0" in one.get("/metrics").text)
