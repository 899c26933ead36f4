"""The proxy of `docker-compose.yml`, before a process that answers and one that is gone."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.contract.api.minutes import in_one_minute
from tests.contract.api.processes import PATIENCE_SECONDS, ROOT, serving, until

PROGRAM = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIGURATION = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
PROBLEM = "application/problem+json"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no nginx is installed"),
]


def a_free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def configured(folder: Path, *, port: int, upstream: Sequence[int]) -> str:
    """Return the shipped configuration for a port, a folder and processes of this machine.

    Names are not resolved here: nginx does so from 1.27.3 on, and there is no engine that has any.
    """
    changes = {
        "events {}": f"pid {folder}/pid; error_log {folder}/log; daemon off; events {{}}",
        "access_log off;": "access_log off; "
        + " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in TEMPORARY),
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "server api:8000 resolve max_fails=0;": " ".join(
            f"server 127.0.0.1:{each} max_fails=0;" for each in upstream
        ),
    }
    text = CONFIGURATION if os.geteuid() else f"user root;\n{CONFIGURATION}"
    for shipped, here in changes.items():
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, here)
    return text


@contextmanager
def proxying(folder: Path, upstream: Sequence[int]) -> Iterator[httpx.Client]:
    """Start the proxy, and yield a client of it."""
    port = a_free_port()
    file = folder / "nginx.conf"
    file.write_text(configured(folder, port=port, upstream=upstream), encoding="utf-8")
    with subprocess.Popen([PROGRAM, "-e", f"{folder}/log", "-c", str(file)]) as process:
        try:
            until(lambda: _listens(port))
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS
            ) as client:
                yield client
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    """Return whether something listens at the port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[httpx.Client]:
    """A client of the proxy before one process that answers and one that is gone."""
    folder = tmp_path_factory.mktemp("service")
    with serving(folder, database_url=f"sqlite:///{folder}/meshwright.db") as running:
        alive = httpx.URL(running.url).port
        with proxying(tmp_path_factory.mktemp("proxy"), [alive, a_free_port()]) as client:
            yield client


def test_a_process_that_is_gone_is_passed_over(client):
    assert [client.get("/readyz").status_code for _ in range(6)] == [200] * 6


@pytest.mark.parametrize(("length_mib", "said"), [(4.5, "4 MiB"), (6, "5 MiB")])
def test_a_body_that_is_too_large_is_a_problem_whoever_refuses_it(client, length_mib, said):
    answer = client.post(
        "/v1/plans",
        content=b" " * int(length_mib * 2**20),
        headers={"Content-Type": "application/json"},
    )

    assert (answer.status_code, answer.headers["Content-Type"]) == (413, PROBLEM)
    assert answer.json()["type"] == "urn:meshwright:problem:body-too-large"
    assert said in answer.json()["detail"]


def test_a_plan_and_its_events_pass(client):
    request = {"model": "gpt2", "cluster": "8xh100-sxm5-80gb", "job": {"global_batch_size": 64}}
    begun = client.post("/v1/plans", json=request, headers={"Prefer": "wait=0"})
    with client.stream("GET", f"/v1/operations/{begun.json()['id']}/events") as events:
        kind = events.headers["Content-Type"]
        told = list(events.iter_lines())

    assert begun.status_code == 202
    assert kind.startswith("text/event-stream")
    assert any('"succeeded"' in line for line in told)


@pytest.mark.parametrize(("proto", "secure"), [("https", True), ("http", False), ("gopher", False)])
def test_a_proxy_before_it_that_ends_tls_is_believed(client, proto, secure):
    cookie = client.get("/login", headers={"X-Forwarded-Proto": proto}).headers["Set-Cookie"]

    assert ("Secure" in cookie.split("; ")) is secure


def test_attempts_are_counted_by_who_that_proxy_says_came(client):
    """The service takes 30 attempts to sign in a minute from one address."""

    def attempt(forwarded: str) -> int:
        token = client.get("/login").text.partition('name="form_token" value="')[2][:64]
        answer = client.post(
            "/login",
            data={"key": "mw_wrong", "form_token": token},
            headers={"X-Forwarded-For": forwarded},
        )
        return answer.status_code

    addresses = (f"203.0.113.{number}" for number in itertools.count(7))

    def attempts_from_one() -> list[int]:
        address = next(addresses)
        return [attempt(f"198.51.100.{number}, {address}") for number in range(31)]

    from_one = in_one_minute(attempts_from_one)

    assert 429 not in from_one[:30]
    assert from_one[30] == 429
    assert attempt(next(addresses)) != 429


def test_a_service_that_is_gone_as_a_whole_is_a_problem_too(tmp_path):
    with proxying(tmp_path, [a_free_port()]) as client:
        answer = client.get("/v1/models")

    assert (answer.status_code, answer.headers["Content-Type"]) == (502, PROBLEM)
    assert answer.headers["Retry-After"] == "5"
    assert answer.json()["status"] == 502
