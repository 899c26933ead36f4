"""Fleet: a server on SQLite and agents with work folders of their own, as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from executor.agent.processes import TAG, kill_all
from tests.chaos.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]
PLACES = {"python": sys.executable, "root": str(ROOT)}
START_SECONDS = 90.0
FINAL = {"succeeded", "failed", "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """How often agents speak and how long a lease lasts, in seconds."""

    heartbeat: float = 0.5
    lease: float = 4.0
    poll: float = 2.0
    acknowledge: float = 3.0
    replan_after: float = 2.0


class Server:
    """`python -m api` on SQLite; survives kills with the same port and database."""

    def __init__(self, folder: Path, tempo: Tempo) -> None:
        self._folder = folder
        self._tempo = tempo
        self.port = free_port()
        self.database = folder / "meshwright.db"
        self._process: subprocess.Popen[bytes] | None = None
        self._url = f"sqlite:///{self.database}"
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30.0)

    def start(self) -> None:
        """Start, and wait until it is ready."""
        variables = {
            "MESHWRIGHT_DATABASE_URL": self._url,
            "MESHWRIGHT_PORT": str(self.port),
            "MESHWRIGHT_FIRST_KEY": "false",
            "MESHWRIGHT_SOLVER_PROCESSES": "1",
            "MESHWRIGHT_REQUESTS_PER_MINUTE": "1000000",
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
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until requests are answered."""
        wait_until(self._is_ready, START_SECONDS, "the server does not start")

    def let_in(self) -> None:
        """Make a key for this harness."""
        answer = subprocess.run(
            [sys.executable, "-m", "planner.cli", "keys", "create", "--name", "chaos", "--json",
             *(f"--scope={scope}" for scope in ("read", "plan", "run", "admin")),
             "--database-url", self._url],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        self._http.headers["Authorization"] = f"Bearer {json.loads(answer.stdout)['key']}"

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
    ) -> Any:
        """Return the JSON answer, a success or `allowed`; asks again while the server is away."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                response = self._http.request(method, path, json=body)
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

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Return rows of the database, read beside the server."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=30)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

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


class Node:
    """An agent behind a proxy, with a folder of its own."""

    def __init__(
        self, name: str, folder: Path, *, server: Server, commands: str, seed: int, ranks: int = 2
    ) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.proxy = Proxy(server.port, seed=seed)
        self._configuration = self.folder / "agent.toml"
        # Below the ports that systems give to outgoing connections.
        first = 20_000 + 40 * (free_port() % 200)
        self._configuration.write_text(
            f'server = "{self.proxy.url}"\nname = "{name}"\naddress = "127.0.0.1"\n'
            f"ports = [{first}, {first + 39}]\n"
            f'work_folder = "{self.folder}"\ncheckpoint_folder = "{folder}/checkpoints"\n'
            f'[devices]\nkind = "cpu"\ncount = {ranks}\nprofile = "cpu-gloo"\n{commands}'
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def agent_id(self) -> str:
        """Return what the server calls it."""
        return str(json.loads((self.folder / "token.json").read_text())["agent_id"])

    @property
    def log(self) -> str:
        """Return what the agent printed."""
        return (self.folder / "agent.log").read_text()

    def enrol(self, server: Server) -> None:
        """Take it into the fleet with a one-time token."""
        token = server.ask("POST", "/v1/enrolment-tokens", {"note": self.name})["token"]
        subprocess.run(
            [sys.executable, "-m", "executor.agent", "enrol", "--server", self.proxy.url,
             "--token", token, "--config", str(self._configuration)],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip

    def start(self) -> None:
        """Start the agent."""
        variables = {name: value for name, value in os.environ.items() if name != TAG}
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "executor.agent", "run", "--config",
                 str(self._configuration)],
                cwd=ROOT, env={**variables, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        """Return whether the agent's process lives."""
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send the agent alone a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the agent alone: its run's processes live on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """Ask the agent to stop; return its exit status."""
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(60)
        self._process = None
        return status

    def die(self) -> None:
        """Kill the agent and all that it started, as when a machine loses its power."""
        self.kill()
        kill_all(f"{self.agent_id}/")

    def close(self) -> None:
        """End all of it."""
        self.kill()
        if (self.folder / "token.json").exists():
            kill_all(f"{self.agent_id}/")
        self.proxy.close()


class Fleet:
    """A server, agents, and a plan for them."""

    def __init__(self, folder: Path, *, tempo: Tempo | None = None) -> None:
        self.folder = folder
        self.server = Server(folder, tempo or Tempo())
        self.nodes: list[Node] = []

    def start(self, commands: str, *, node_count: int, seed: int = 0) -> None:
        """Start the server and agents that allow `commands` (TOML)."""
        self.server.start()
        self.server.let_in()
        for index in range(node_count):
            node = Node(
                f"node-{index}", self.folder, server=self.server, commands=commands,
                seed=seed * 1000 + index,
            )  # fmt: skip
            self.nodes.append(node)
            node.enrol(self.server)
            node.start()

    def plan(self, request: Mapping[str, Any]) -> str:
        """Return the number of a plan that the server made."""
        answer = self.server.ask("POST", "/v1/plans", request)
        if not str(answer["id"]).startswith("operation-"):
            return str(answer["id"])

        def made() -> Any:
            found = self.server.ask("GET", f"/v1/operations/{answer['id']}")
            assert found["state"] not in {"failed", "cancelled"}, found
            return found["plan_id"]

        return str(wait_until(made, START_SECONDS, "the plan is not made"))

    def run(self, plan_id: str, *, command: str, **fields: Any) -> str:
        """Queue a run; return its number."""
        body = {"plan_id": plan_id, "command": command, **fields}
        return str(self.server.ask("POST", "/v1/runs", body)["id"])

    def state(self, run_id: str) -> dict[str, Any]:
        """Return the run as the server shows it."""
        found: dict[str, Any] = self.server.ask("GET", f"/v1/runs/{run_id}")
        return found

    def wait_for(self, run_id: str, states: set[str], seconds: float) -> dict[str, Any]:
        """Return the run once it is in one of `states`, or over."""

        def there() -> dict[str, Any] | None:
            run = self.state(run_id)
            return run if run["state"] in states | FINAL else None

        try:
            found: dict[str, Any] = wait_until(there, seconds, f"run {run_id} is not {states}")
        except AssertionError as error:
            run = self.state(run_id)
            logs = "\n".join(f"{node.name}:\n{node.log[-1500:]}" for node in self.nodes)
            raise AssertionError(f"{error}\n{json.dumps(run, indent=1)}\n{logs}") from None
        return found

    def close(self) -> None:
        """End everything."""
        for node in self.nodes:
            node.close()
        self.server.close()


def wait_until(happened: Callable[[], Any], seconds: float, otherwise: str) -> Any:
    """Return what `happened` says once it is true.

    Raises:
        AssertionError: if that takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
    return found


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
