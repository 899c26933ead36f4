"""`python -m benchmarks.agents`: simulated agents against one real server process.

Agents in pairs hold runs of two nodes each, send heartbeats as they are told to, and a log, metrics
and a poll with each. Measured is how long each call takes, and how late heartbeats come, which is
when they were answered less when they were due. With `--write` the table goes into
docs/agent-protocol.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.machine import machine, machine_line
from benchmarks.page import DOCS, put

AGENT_COUNT = 50
SECONDS = 60.0
BAR_SECONDS = 0.1
START_SECONDS_LIMIT = 60.0
_CLUSTER = "2x2xcpu-gloo"
_MODEL = "tiny-llama-cpu"
_JOB = {"global_batch_size": 8, "sequence_length": 128, "precision": "fp32"}


@dataclass(kw_only=True)
class Measured:
    """Seconds of every call by kind, and how late every heartbeat was."""

    call_seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    late_seconds: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost_count: int = 0
    server_cpu_seconds: float = 0.0


@dataclass(kw_only=True)
class SimulatedAgent:
    """One agent; it runs nothing, and says that it does."""

    client: httpx.AsyncClient
    measured: Measured
    number: int
    agent_id: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    lease: dict[str, Any] = field(default_factory=dict)
    heartbeat_seconds: float = 0.0
    log_bytes: int = 0
    row_count: int = 0

    async def enrol(self) -> None:
        """Enrol by a token of its own."""
        token = (await self.client.post("/v1/enrolment-tokens", json={})).json()["token"]
        device = {"name": "cpu", "profile": "cpu-gloo"}
        report = {
            "enrolment_token": token,
            "name": f"node-{self.number}",
            "address": "127.0.0.1",
            "devices": [{"index": index, **device} for index in range(2)],
            "versions": {"agent": "simulated"},
            "commands": ["train"],
        }
        enrolment = (await self.client.post("/v1/agents", json=report)).json()
        self.agent_id = enrolment["agent_id"]
        self.headers = {"Authorization": f"Bearer {enrolment['token']}"}
        self.heartbeat_seconds = enrolment["intervals"]["heartbeat_seconds"]

    async def wait_for_lease(self) -> None:
        """Poll until there is a lease, and acknowledge it."""
        while not self.lease:
            path = f"/v1/agents/{self.agent_id}/leases?wait=20"
            answer = await self.client.post(path, headers=self.headers)
            if answer.status_code == 200:
                self.lease = answer.json()
                body = {"epoch": self.lease["epoch"], "state": "preparing"}
                path = f"/v1/leases/{self.lease['id']}"
                await self.client.patch(path, json=body, headers=self.headers)

    async def work(self, *, until: float) -> None:
        """Send heartbeats when they are due, with a log, metrics and a poll each, to the end."""
        state = "ready"
        due = time.monotonic() + self.heartbeat_seconds * self.number / AGENT_COUNT
        while due < until:
            await asyncio.sleep(due - time.monotonic())
            answer = await self._beat(state)
            self.measured.late_seconds.append(time.monotonic() - due)
            state = "running" if answer.get("go") else "ready"
            await self._write()
            due += self.heartbeat_seconds
        body = {"epoch": self.lease["epoch"], "outcome": "succeeded"}
        await self._call("result", "PUT", f"/v1/leases/{self.lease['id']}/result", body)

    async def _beat(self, state: str) -> dict[str, Any]:
        body = {"epoch": self.lease["epoch"], "state": state, "progress": {"step": self.row_count}}
        answer = await self._call("heartbeat", "PATCH", f"/v1/leases/{self.lease['id']}", body)
        self.measured.lost_count += answer.status_code == 409
        found: dict[str, Any] = answer.json()
        return found

    async def _write(self) -> None:
        epoch, path = self.lease["epoch"], f"/v1/leases/{self.lease['id']}"
        text = f"step {self.row_count} of a run that is none\n" * 20
        body: dict[str, Any] = {"epoch": epoch, "offset": self.log_bytes, "text": text}
        answer = await self._call("log", "POST", f"{path}/logs", body)
        self.log_bytes = answer.json().get("acknowledged_offset", self.log_bytes)
        rows = [
            {"rank": rank, "step": self.row_count + step, "step_seconds": 0.3, "loss": 3.0}
            for step in range(10)
            for rank in self.lease["ranks"]
        ]
        body = {"epoch": epoch, "sequence": self.row_count, "rows": rows}
        answer = await self._call("metrics", "POST", f"{path}/metrics", body)
        self.row_count = answer.json().get("acknowledged_sequence", self.row_count)
        await self._call("poll", "POST", f"/v1/agents/{self.agent_id}/leases?wait=0", None)

    async def _call(
        self, kind: str, method: str, path: str, body: dict[str, Any] | None
    ) -> httpx.Response:
        started = time.perf_counter()
        try:
            answer = await self.client.request(method, path, json=body, headers=self.headers)
        except httpx.TransportError as error:
            answer = httpx.Response(599, json={"acknowledged": repr(error)})
        self.measured.call_seconds[kind].append(time.perf_counter() - started)
        if answer.status_code != 200:
            self.measured.refused.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
        return answer


def main() -> int:
    """Measure, print the table, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agents", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/agent-protocol.md")
    parser.add_argument("--agents", type=int, default=AGENT_COUNT)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--database-url", help="instead of a SQLite file of its own")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="meshwright-agents-") as folder:
        url = options.database_url or f"sqlite:///{folder}/meshwright.db"
        measured = _measure(url, options.agents, options.seconds)
    lines = table(measured, agent_count=options.agents, seconds=options.seconds)
    print("\n".join(lines))
    for refused in measured.refused[:5]:
        print(refused, file=sys.stderr)
    if options.write:
        put("agents", lines, page=DOCS / "agent-protocol.md")
    return 0 if holds(measured) else 1


def table(measured: Measured, *, agent_count: int, seconds: float) -> list[str]:
    """Return the lines of the table."""
    calls = [call for times in measured.call_seconds.values() for call in times]
    rows = {**measured.call_seconds, "all calls": calls, "heartbeat late by": measured.late_seconds}
    command = "python -m benchmarks.agents --write"
    return [
        "",
        f"{agent_count} agents in {agent_count // 2} runs of two nodes for {seconds:g} s, one",
        f"server process that shares the machine with them; `{command}` on",
        f"{machine_line(machine())}.",
        f"Refused: {len(measured.refused)} of {len(calls)} calls, leases lost:",
        f"{measured.lost_count}. The server took {_cpu_milliseconds(measured):.1f} ms of processor",
        "time for a call. The bar is 100 ms for the 99th percentile of all calls.",
        "",
        "| call | count | median ms | p99 ms | worst ms |",
        "|---|---|---|---|---|",
        *(_row(name, times) for name, times in rows.items()),
        "",
    ]


def holds(measured: Measured) -> bool:
    """Return whether calls are quick enough, and no heartbeat was refused."""
    calls = [call for times in measured.call_seconds.values() for call in times]
    return percentile(calls, 0.99) < BAR_SECONDS and not measured.refused


def percentile(values: Sequence[float], ratio: float) -> float:
    """Return the least of `values` that `ratio` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * ratio), len(ordered) - 1)]


def _cpu_milliseconds(measured: Measured) -> float:
    """Return the server's processor time per call, which other processes change least."""
    call_count = sum(len(times) for times in measured.call_seconds.values())
    return 1e3 * measured.server_cpu_seconds / call_count


def _row(name: str, times: Sequence[float]) -> str:
    figures = (statistics.median(times), percentile(times, 0.99), max(times))
    return f"| {name} | {len(times)} | " + " | ".join(f"{1e3 * x:.1f}" for x in figures) + " |"


def _measure(database_url: str, agent_count: int, seconds: float) -> Measured:
    port = _free_port()
    with _serving(database_url, port) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            return asyncio.run(_simulate(address, agent_count, seconds, server_id=server.pid))
        finally:
            server.terminate()
            server.wait(timeout=30)


async def _simulate(address: str, agent_count: int, seconds: float, *, server_id: int) -> Measured:
    measured = Measured()
    async with _client(address) as client:
        await _ready(client)
        request = {"model": _MODEL, "cluster": _CLUSTER, "job": _JOB}
        plan = await client.post("/v1/plans", json=request, headers={"Prefer": "wait=30"})
        # A client each, as agents are processes: a shared one looks through all its connections.
        agents = [
            SimulatedAgent(client=_client(address), measured=measured, number=number)
            for number in range(agent_count)
        ]
        for agent in agents:
            await agent.enrol()
        polls = [asyncio.create_task(agent.wait_for_lease()) for agent in agents]
        for _ in range(agent_count // 2):
            await client.post("/v1/runs", json={"plan_id": plan.json()["id"]})
        await asyncio.gather(*polls)
        until = time.monotonic() + seconds
        before = _cpu_seconds(server_id)
        await asyncio.gather(*(agent.work(until=until) for agent in agents))
        measured.server_cpu_seconds = _cpu_seconds(server_id) - before
        for agent in agents:
            await agent.client.aclose()
    return measured


def _client(address: str) -> httpx.AsyncClient:
    """Return a client that keeps its connections as long as the server does; no TLS here."""
    limits = httpx.Limits(keepalive_expiry=60)
    return httpx.AsyncClient(base_url=address, timeout=60, limits=limits, verify=False)  # noqa: S501


async def _ready(client: httpx.AsyncClient) -> None:
    deadline = time.monotonic() + START_SECONDS_LIMIT
    while time.monotonic() < deadline:
        try:
            if (await client.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)
    raise TimeoutError(f"the server did not start within {START_SECONDS_LIMIT:g} s")


def _serving(database_url: str, port: int) -> subprocess.Popen[bytes]:
    """Return the server's process; it allows callers on this machine everything."""
    variables = {
        **os.environ,
        "MESHWRIGHT_DATABASE_URL": database_url,
        "MESHWRIGHT_PORT": str(port),
        "MESHWRIGHT_ANONYMOUS_SCOPES": "read,plan,run,admin",
    }
    root = Path(__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, "-m", "api"],
        env=variables,
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _cpu_seconds(process_id: int) -> float:
    """Return the processor time that a process has taken (Linux)."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
