"""Limits counted in Redis: processes share them, and say so when it cannot be reached."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.contract.api.callers import a_key
from tests.contract.api.minutes import in_one_minute
from tests.contract.api.processes import until

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Redis is installed"),
]


@contextmanager
def counting(folder: Path) -> Iterator[str]:
    """Start a server on a socket in `folder`, and yield the address of the storage."""
    socket = folder / "redis.sock"
    command = [
        PROGRAM,
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            until(lambda: _answers(socket))
            yield f"redis+unix://{socket}"
        finally:
            server.terminate()


def _answers(socket: Path) -> bool:
    """Return whether the server answers."""
    try:
        return bool(redis.Redis(unix_socket_path=str(socket)).ping())
    except redis.ConnectionError:
        return False


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="mw-redis-") as path:
        yield Path(path)


def test_processes_count_together(make_client, database, folder):
    with counting(folder) as storage:
        settings = {"rate_limit_storage": storage, "requests_per_minute": 5}
        with make_client(**settings) as one, make_client(**settings) as other:

            def answers():
                header = {"Authorization": f"Bearer {a_key(database).key}"}
                turns = (one, other, one, other, other, one, other)
                return [client.get("/v1/models", headers=header) for client in turns]

            *given, first, second = in_one_minute(answers)
            refused = [first, second]

    assert [answer.status_code for answer in given] == [200] * 5
    assert [answer.status_code for answer in refused] == [429, 429]
    assert all(1 <= int(answer.headers["Retry-After"]) <= 60 for answer in refused)


def test_a_storage_that_has_gone_is_told_and_one_that_is_back_is_used(
    make_client, database, folder
):
    header = {"Authorization": f"Bearer {a_key(database).key}"}
    with counting(folder) as storage:
        client = make_client(rate_limit_storage=storage)
    with client:
        gone = client.get("/v1/models", headers=header)
        with counting(folder):
            back = client.get("/v1/models", headers=header)

    assert gone.status_code == 503
    assert gone.json()["detail"] == "the storage of rate limits cannot be reached"
    assert gone.headers["Retry-After"] == "5"
    assert back.status_code == 200
