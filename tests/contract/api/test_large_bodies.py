"""Bodies above the limit, sent as clients and proxies do: whole, before the answer is read."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from tests.contract.api.processes import PATIENCE_SECONDS, Running, serving

LIMIT_BYTES = 4 * 2**20
PART = b" " * 65_536

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service in a process of its own, with the limit that it has by default."""
    folder = tmp_path_factory.mktemp("service")
    with serving(folder, database_url=f"sqlite:///{folder}/meshwright.db") as running:
        yield running


def connected(service: Running) -> socket.socket:
    """Return a connection to the service."""
    address = urlsplit(service.url)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS)


def status_of(connection: socket.socket) -> bytes:
    """Return the status that the service answers with."""
    return connection.recv(64).split(b" ")[1]


def head(*headers: str) -> bytes:
    """Return what goes before the body."""
    lines = ("POST /v1/plans HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")
    return "".join(f"{line}\r\n" for line in (*lines, *headers, "")).encode()


@pytest.mark.parametrize("length_bytes", [LIMIT_BYTES + 1, 2 * LIMIT_BYTES])
def test_who_sends_all_of_a_body_that_is_too_large_reads_why(service, length_bytes):
    with connected(service) as connection:
        connection.sendall(head(f"Content-Length: {length_bytes}"))
        connection.sendall(b" " * length_bytes)

        assert status_of(connection) == b"413"


def test_who_sends_one_in_chunks_reads_why(service):
    chunk = b"10000\r\n" + PART + b"\r\n"
    count = LIMIT_BYTES // len(PART) + 2
    with connected(service) as connection:
        connection.sendall(head("Transfer-Encoding: chunked"))
        connection.sendall(chunk * count + b"0\r\n\r\n")

        assert status_of(connection) == b"413"


@pytest.mark.parametrize(
    "headers",
    [("Content-Length: 1099511627776",), ("Content-Length: 5000000", "Expect: 100-continue")],
)
def test_one_that_is_far_too_large_or_only_announced_is_refused_unread(service, headers):
    with connected(service) as connection:
        connection.sendall(head(*headers))

        assert status_of(connection) == b"413"
