"""Server: `python -m api` as a process that can be killed and started again."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 600.0
ASK_SECONDS = 0.5  # between questions to the server, whose answers cost more than a look at a file
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """How often agents speak and how long a lease lasts, in seconds."""

    heartbeat: float = 0.5
    lease: float = 4.0
    poll: float = 2.0
    acknowledge: float = 3.0
    replan_after: float = 2.0


class Server:
    """`python -m api` of the sources in `root`; survives kills with the same port and database."""

    def __init__(
        self,
        folder: Path,
        tempo: Tempo,
        *,
        database_url: str,
        environment: Mapping[str, str] = MappingProxyType({}),
        root: Path = ROOT,
    ) -> None:
        self._root = root
        self._folder = folder
        self._tempo = tempo
        self._environment = environment
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._url = database_url
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=180.0)

    def start(self) -> None:
        """Start, and wait until it is ready."""
        variables = {
            "MESHWRIGHT_DATABASE_URL": self._url,
            "MESHWRIGHT_PORT": str(self.port),
            "MESHWRIGHT_SOLVER_PROCESSES": "1",
            "MESHWRIGHT_REQUESTS_PER_MINUTE": "1000000",
            "MESHWRIGHT_AGENT_REQUESTS_PER_MINUTE": "1000000",
            "MESHWRIGHT_AGENT_HEARTBEAT_SECONDS": str(self._tempo.heartbeat),
            "MESHWRIGHT_AGENT_LEASE_SECONDS": str(self._tempo.lease),
            "MESHWRIGHT_AGENT_POLL_SECONDS": str(self._tempo.poll),
            "MESHWRIGHT_AGENT_ACKNOWLEDGE_SECONDS": str(self._tempo.acknowledge),
            "MESHWRIGHT_REPLAN_AFTER_SECONDS": str(self._tempo.replan_after),
            "MESHWRIGHT_SWEEP_SECONDS": "0.2",
        }
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "api"],
                cwd=self._root,
                env={**os.environ, **variables, **self._environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until requests are answered."""
        wait_until(
            self._is_ready, START_SECONDS, "the server does not start", look_seconds=ASK_SECONDS
        )

    def let_in(self) -> None:
        """Take the first key, which the server has shown in its log."""
        log = (self._folder / "server.log").read_text()
        (key,) = re.findall(r"it may do everything:\n +(\S+)", log)
        self._http.headers["Authorization"] = f"Bearer {key}"

    @property
    def pid(self) -> int:
        """Return the process's number."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill it as an outage would, with its solvers."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        allowed: frozenset[int] | set[int] = frozenset(),
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        """Return the JSON answer, a success or `allowed`; asks again while the server is away."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                response = self._http.request(method, path, json=body, headers=dict(headers))
            except httpx.HTTPError:
                response = None
            if response is not None and (
                response.status_code < 400 or response.status_code in allowed
            ):
                return response.json() if response.content else None
            said = "no answer" if response is None else f"{response.status_code} {response.text}"
            away = response is None or response.status_code in {429, 503}
            assert away, f"{method} {path}: {said}"
            assert time.monotonic() < deadline, f"{method} {path}: {said}"
            time.sleep(0.1)

    def status_of(self, method: str, path: str, body: Mapping[str, Any]) -> int | None:
        """Return the status of one answer, `None` if there is none."""
        try:
            return self._http.request(method, path, json=body).status_code
        except httpx.HTTPError:
            return None

    def close(self) -> None:
        """End it."""
        self.kill()
        self._http.close()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False


def wait_until(
    happened: Callable[[], Any],
    seconds: float,
    otherwise: str,
    *,
    look_seconds: float = _LOOK_SECONDS,
) -> Any:
    """Return what `happened` says once it is true.

    Raises:
        AssertionError: if that takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, otherwise
        time.sleep(look_seconds)
    return found


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
