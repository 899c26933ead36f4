"""Server-sent events over a real connection, while the solve runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn

from tests.contract.api.processes import PATIENCE_SECONDS
from tests.contract.api.solving import ENDLESS, a_request

pytestmark = pytest.mark.slow


@pytest.fixture
def address(make_app) -> Iterator[str]:
    """A real server on a free port of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(make_app(), log_config=None, timeout_graceful_shutdown=5)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


def test_progress_arrives_while_the_solve_runs_and_the_stream_ends_with_it(address):
    with httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
        started = client.post("/v1/plans", json=a_request(ENDLESS), headers={"Prefer": "wait=0"})
        operation = started.headers["location"]
        kinds = []
        with client.stream("GET", f"{operation}/events") as stream:
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    kinds.append(line.removeprefix("event: "))
                if kinds == ["state", "progress"] and line == "":
                    httpx.delete(address + operation)

        assert kinds == ["state", "progress", "state"]
        assert client.get(operation).json()["state"] == "cancelled"
