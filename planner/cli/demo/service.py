"""The service as the demo uses it: started on a free loopback port, asked, and stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from planner.cli.demo.steps import DemoError

HOST = "127.0.0.1"
START_SECONDS_LIMIT = 30.0
STOP_SECONDS_LIMIT = 10.0
ANSWER_SECONDS_LIMIT = 60.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service and where its messages go."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        """Return the URL of the service's root."""
        return f"http://{HOST}:{self.port}"

    def store_plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Have the service plan `request` and keep the plan; return the plan's fields.

        Raises:
            DemoError: if the service does not answer with a plan.
        """
        status, answer = _ask(self.port, "POST", "/v1/plans", request)
        if status == 202:
            status, answer = self._awaited(str(answer.get("id")))
        if answer.get("status") != "planned":
            raise DemoError(f"POST /v1/plans answered {status}: {_reason(answer)}; see {self.log}")
        return answer

    def _awaited(self, operation_id: str) -> tuple[int, dict[str, Any]]:
        """Return the plan that the operation ends with, or the problem that it ended in."""
        deadline = time.monotonic() + ANSWER_SECONDS_LIMIT
        while time.monotonic() < deadline:
            status, operation = _ask(self.port, "GET", f"/v1/operations/{operation_id}", None)
            if operation.get("plan_id"):
                return _ask(self.port, "GET", f"/v1/plans/{operation['plan_id']}", None)
            if operation.get("state") != "running":
                return status, operation.get("problem") or operation
            time.sleep(POLL_SECONDS)
        raise DemoError(f"planning took more than {ANSWER_SECONDS_LIMIT:.0f} s; see {self.log}")

    def compare_url(self, plan_ids: list[str]) -> str:
        """Return the address of the page that shows the plans side by side."""
        query = "&".join(f"plan={plan_id}" for plan_id in plan_ids)
        return f"{self.address}/compare?{query}"


@contextmanager
def running_service(directory: Path) -> Iterator[Service]:
    """Yield a service on a fresh SQLite database in `directory`; stop it at the end.

    Raises:
        DemoError: if it does not become ready.
    """
    database = directory / "meshwright.db"
    for stale in directory.glob("meshwright.db*"):
        stale.unlink()
    port = _free_port()
    environment = {
        **os.environ,
        "MESHWRIGHT_DATABASE_URL": f"sqlite:///{database.resolve()}",
        "MESHWRIGHT_FIRST_KEY": "false",
        "MESHWRIGHT_HOST": HOST,
        "MESHWRIGHT_PORT": str(port),
    }
    log = directory / "service.log"
    with log.open("wb") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", "api"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    service = Service(process=process, port=port, log=log)
    try:
        _wait_until_ready(service)
        yield service
    finally:
        _stop(process)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port


def _wait_until_ready(service: Service) -> None:
    deadline = time.monotonic() + START_SECONDS_LIMIT
    while time.monotonic() < deadline:
        if service.process.poll() is not None:
            raise DemoError(
                f"`python -m api` ended with code {service.process.returncode}: "
                f"{last_line(service.log)}"
            )
        try:
            status, _ = _ask(service.port, "GET", "/readyz", None)
        except (OSError, HTTPException):
            status = 0
        if status == 200:
            return
        time.sleep(POLL_SECONDS)
    raise DemoError(f"the service was not ready in {START_SECONDS_LIMIT:.0f} s; see {service.log}")


def _ask(
    port: int, method: str, path: str, body: Mapping[str, Any] | None
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON fields that the service answers."""
    connection = HTTPConnection(HOST, port, timeout=ANSWER_SECONDS_LIMIT)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, body=content, headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    try:
        fields = json.loads(text)
    except ValueError:
        fields = {}
    return response.status, fields if isinstance(fields, dict) else {}


def _reason(answer: Mapping[str, Any]) -> str:
    for name in ("detail", "state", "status"):
        if answer.get(name):
            return str(answer[name])
    return "no reason given"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_line(log: Path) -> str:
    """Return the last line that stands in `log`, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it printed nothing"
