"""What breaks around a service: clear errors meanwhile, and nothing lost that was acknowledged."""

from __future__ import annotations

import resource
import sqlite3
import threading

import httpx
import pytest

from tests.contract.api.postgres import restarted, running_server, server_programs
from tests.contract.api.processes import PATIENCE_SECONDS, Running, planned, serving, until

pytestmark = pytest.mark.slow
UNAVAILABLE = "urn:meshwright:problem:database-unavailable"
HEAVY = {
    "model": "deepseek-v3",
    "cluster": "64x8xh100-sxm5-80gb",
    "job": {"global_batch_size": 4096, "sequence_length": 4096},
}


def a_request(number: int) -> dict:
    """Return one of many requests that are quickly answered."""
    return {
        "model": "gpt2",
        "cluster": "8xh100-sxm5-80gb",
        "job": {"global_batch_size": 8 * number, "sequence_length": 512},
    }


def stored(client: httpx.Client, number: int) -> httpx.Response:
    """Ask for a plan and return the answer."""
    return planned(client, a_request(number))


def the_plans(client: httpx.Client, acknowledged: dict[str, bytes]) -> dict[str, bytes]:
    """Return what the service has of what it acknowledged."""
    answers = {name: client.get(f"/v1/plans/{name}") for name in acknowledged}
    return {name: answer.content for name, answer in answers.items() if answer.is_success}


def test_killing_it_in_the_middle_of_writing_loses_nothing_acknowledged(tmp_path):
    url = f"sqlite:///{tmp_path}/meshwright.db"
    acknowledged: dict[str, bytes] = {}
    enough = threading.Event()

    def keep_writing(client: httpx.Client) -> None:
        for number in range(1, 1000):
            try:
                answer = stored(client, number)
            except httpx.TransportError:
                return
            acknowledged[answer.json()["id"]] = answer.content
            if len(acknowledged) == 5:
                enough.set()

    with serving(tmp_path / "first", database_url=url) as service, service.client() as client:
        slow = client.post("/v1/plans", json=HEAVY, headers={"Prefer": "wait=0"}).json()["id"]
        client.delete(f"/v1/operations/{slow}")
        writer = threading.Thread(target=keep_writing, args=(client,))
        writer.start()
        assert enough.wait(PATIENCE_SECONDS)
        service.kill()
        writer.join()

    with serving(tmp_path / "second", database_url=url) as service, service.client() as client:
        assert the_plans(client, acknowledged) == acknowledged
        assert client.get(f"/v1/operations/{slow}").json()["state"] == "cancelled"
    connection = sqlite3.connect(tmp_path / "meshwright.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_solve_that_was_killed_with_its_service_says_so(tmp_path):
    url = f"sqlite:///{tmp_path}/meshwright.db"
    with serving(tmp_path / "first", database_url=url) as service, service.client() as client:
        begun = client.post("/v1/plans", json=HEAVY, headers={"Prefer": "wait=0"}).json()["id"]
        service.kill()

    with serving(tmp_path / "second", database_url=url) as service, service.client() as client:
        operation = client.get(f"/v1/operations/{begun}").json()

    assert operation["state"] == "failed"
    assert operation["problem"]["type"] == "urn:meshwright:problem:solve-abandoned"


def test_a_full_disk_refuses_writes_and_goes_on_reading(tmp_path):
    """A limit on the size of the service's files stands for the disk; then there is room again."""
    url = f"sqlite:///{tmp_path}/meshwright.db"
    with serving(tmp_path / "files", database_url=url) as service, service.client() as client:
        first = [stored(client, number) for number in (1, 2)]
        acknowledged = {answer.json()["id"]: answer.content for answer in first}
        _bound_files(service, 4096)

        refused = stored(client, 3)
        ready = client.get("/readyz")
        found = the_plans(client, acknowledged)
        _bound_files(service, resource.RLIM_INFINITY)

        assert refused.status_code == 503
        assert refused.json()["type"] == UNAVAILABLE
        assert "Retry-After" in refused.headers
        assert ready.status_code == 200
        assert found == acknowledged
        assert stored(client, 3).is_success


def _bound_files(service: Running, size_bytes: int) -> None:
    """Have the service's writes beyond that size fail."""
    limits = (size_bytes, resource.RLIM_INFINITY)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, limits)


def test_a_locked_database_is_waited_for_and_then_said_to_be_unavailable(tmp_path):
    url = f"sqlite:///{tmp_path}/meshwright.db?timeout=1"
    with serving(tmp_path / "files", database_url=url) as service, service.client() as client:
        known = stored(client, 1)
        other = sqlite3.connect(tmp_path / "meshwright.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")

        refused = stored(client, 2)
        read = client.get(f"/v1/plans/{known.json()['id']}")
        other.execute("ROLLBACK")
        other.close()

        assert refused.status_code == 503
        assert refused.json()["type"] == UNAVAILABLE
        assert read.content == known.content
        assert stored(client, 2).is_success


@pytest.mark.postgres
def test_a_restart_of_postgresql_is_survived(tmp_path):
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed")
    with (
        running_server(programs) as url,
        serving(tmp_path / "files", database_url=url) as service,
        service.client() as client,
    ):
        known = stored(client, 1)
        with restarted(programs, url):
            down = client.get("/v1/plans")
            ready = client.get("/readyz")
            alive = client.get("/healthz")
        until(lambda: client.get("/readyz").status_code == 200)

        assert (down.status_code, ready.status_code, alive.status_code) == (503, 503, 200)
        assert down.json()["type"] == UNAVAILABLE
        assert client.get(f"/v1/plans/{known.json()['id']}").content == known.content
        assert stored(client, 2).is_success
