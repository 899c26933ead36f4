"""A database that is locked or does not answer holds nobody up but who needs it, and not for long.

Nothing here is timed: what would wait for ever runs into the client's patience.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from api.db import READER_THREADS, WRITERS_LIMIT
from tests.contract.api.postgres import running_server, server_programs, silent
from tests.contract.api.processes import serving, until

pytestmark = pytest.mark.slow
UNAVAILABLE = "urn:meshwright:problem:database-unavailable"
NEVER_WAIT = ("/healthz", "/login", "/static/style.css", "/static/plotly.min.js")
EVERYTHING = "read,plan,run,admin"
PATH = "/v1/enrolment-tokens"


def answers(client: httpx.Client, method: str, path: str, *, count: int) -> list[httpx.Response]:
    """Return what is answered to that many requests at the same time."""

    def ask(_: int) -> httpx.Response:
        return client.request(method, path, json={} if method == "POST" else None)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(ask, range(count)))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's write lock, as another process does that is stuck."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def test_every_writer_is_refused_while_the_file_is_locked_and_readers_are_served(tmp_path):
    url = f"sqlite:///{tmp_path}/meshwright.db?timeout=1"
    with (
        serving(tmp_path, database_url=url, ANONYMOUS_SCOPES=EVERYTHING) as service,
        service.client() as client,
    ):
        with locked(tmp_path / "meshwright.db"), ThreadPoolExecutor(1) as beside:
            writers = beside.submit(answers, client, "POST", PATH, count=WRITERS_LIMIT + 16)
            reads = [client.get(path) for path in (*NEVER_WAIT, "/", "/v1/plans", "/readyz")]
            refused = writers.result()

        assert [answer.status_code for answer in reads] == [200] * len(reads)
        assert {answer.status_code for answer in refused} == {503}
        assert {answer.json()["type"] for answer in refused} == {UNAVAILABLE}
        assert all("Retry-After" in answer.headers for answer in refused)
        assert client.post(PATH, json={}).status_code == 201


@pytest.mark.postgres
def test_a_postgresql_that_does_not_answer_holds_up_no_page_that_needs_none(tmp_path):
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed")
    with (
        running_server(programs) as url,
        serving(tmp_path, database_url=url) as service,
        service.client() as client,
    ):
        assert client.get("/v1/plans").status_code == 200
        with silent(url), ThreadPoolExecutor(1) as beside:
            count = WRITERS_LIMIT + READER_THREADS + 4
            waiting = beside.submit(answers, client, "GET", "/v1/plans", count=count)
            found = [client.get(path).status_code for path in (*NEVER_WAIT, "/readyz")]
            refused = waiting.result()
        until(lambda: client.get("/v1/plans").status_code == 200)

    assert found == [200] * len(NEVER_WAIT) + [503]
    assert {answer.status_code for answer in refused} == {503}
    assert {answer.json()["type"] for answer in refused} == {UNAVAILABLE}
