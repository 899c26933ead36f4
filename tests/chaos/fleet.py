"""Fleet: a server and agents with work folders of their own, as real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from executor.agent.processes import TAG, kill_all
from tests.chaos.clocks import Clock
from tests.chaos.databases import ChaosDatabase, Kind, PostgresDatabase, SqliteDatabase
from tests.chaos.proxy import Proxy
from tests.chaos.server import (
    ASK_SECONDS,
    ROOT,
    START_SECONDS,
    Server,
    Tempo,
    free_port,
    wait_until,
)

FINAL = {"succeeded", "failed", "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node is: `prefix` starts its processes there, and its server is at `server_host`."""

    prefix: tuple[str, ...] = ()
    server_host: str = "127.0.0.1"


HERE = Place()


class Node:
    """An agent behind a proxy, with a folder of its own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        server: Server,
        commands: str,
        seed: int,
        clock: Clock,
        root: Path = ROOT,
        place: Place = HERE,
        ranks: int = 2,
    ) -> None:
        self.name = name
        self._prefix = place.prefix
        self._root = root
        self.clock = clock
        self.folder = folder / name
        self.folder.mkdir()
        self.proxy = Proxy(server.port, seed=seed, host=place.server_host)
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
    def is_at_work(self) -> bool:
        """Return whether it has a lease that it is not done with."""
        return any(not (path / "closed").exists() for path in self.folder.glob("runs/*"))

    @property
    def log(self) -> str:
        """Return what the agent printed."""
        return (self.folder / "agent.log").read_text()

    def enrol(self, server: Server) -> None:
        """Take it into the fleet with a one-time token."""
        token = server.ask("POST", "/v1/enrolment-tokens", {"note": self.name})["token"]
        command = [
            *self._prefix, sys.executable, "-m", "executor.agent", "enrol",
            "--server", self.proxy.url, "--token", token, "--config", str(self._configuration),
        ]  # fmt: skip
        answer = subprocess.run(
            command, cwd=self._root, check=False, capture_output=True, text=True
        )
        assert answer.returncode == 0, answer.stderr

    def start(self) -> None:
        """Start the agent."""
        variables = {name: value for name, value in os.environ.items() if name != TAG}
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", "executor.agent", "run", "--config",
                 str(self._configuration)],
                cwd=self._root, env={**variables, **self.clock.environment, "OMP_NUM_THREADS": "1"},
                stdout=log, stderr=log, start_new_session=True,
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
        status = self._process.wait()
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
    """A server, agents, and a plan for them. Each has a wall clock of its own.

    All run the sources that lie in `root`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tempo: Tempo | None = None,
        database: Kind = "sqlite",
        root: Path = ROOT,
    ) -> None:
        self.folder = folder
        self._root = root
        # Where the account of the database's server can read.
        self._clocks = Path(tempfile.mkdtemp(prefix="mw-clocks-"))
        self._clocks.chmod(0o755)
        self.clock = Clock(self._clocks, "server")
        self.database: ChaosDatabase = (
            SqliteDatabase(folder)
            if database == "sqlite"
            else PostgresDatabase(self.clock.environment)
        )
        self.server = Server(
            folder,
            tempo or Tempo(),
            database_url=self.database.url,
            environment=self.clock.environment,
            root=root,
        )
        self.nodes: list[Node] = []
        self.run_ids: set[str] = set()
        self.surprises: list[str] = []

    def start(
        self,
        commands: str,
        *,
        node_count: int,
        seed: int = 0,
        places: Mapping[int, Place] = MappingProxyType({}),
    ) -> None:
        """Start the server and agents that allow `commands` (TOML), some in other `places`."""
        self.server.start()
        self.server.let_in()
        for index in range(node_count):
            node = Node(
                f"node-{index}", self.folder, server=self.server, commands=commands,
                seed=seed * 1000 + index, clock=Clock(self._clocks, f"node-{index}"),
                root=self._root, place=places.get(index, HERE),
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
        """Queue a run; return its number. Asked again, it is the same run."""
        body = {"plan_id": plan_id, "command": command, **fields}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        run_id = str(self.server.ask("POST", "/v1/runs", body, headers=key)["id"])
        self.run_ids.add(run_id)
        return run_id

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
            found: dict[str, Any] = wait_until(
                there, seconds, f"run {run_id} is not {states}", look_seconds=ASK_SECONDS
            )
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
        self.database.close()
        shutil.rmtree(self._clocks)
