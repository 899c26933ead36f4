"""How the service does under load: `python -m benchmarks.service`.

Each part prints what it measured. `--write` puts the figures into docs/service.md; `--only load` or
`--only soak` leaves the other part and its figures alone; `--soak-minutes 30` is the long form of
the soak.

    paced   50 clients ask for the same plan, which is stored, each twice a second
    flood   the same clients ask again as soon as they are answered
    reads   a list, a plan and its page, ten times a second each, while four solves run
    soak    pages, lists, stored plans, errors, solves that are cancelled: ten requests each
            `--soak-pause` seconds, what memory and file handles do meanwhile, and the answers by
            status: one of 500 or more is an error, and nothing is written

The clients share the machine's cores with the service, so the figures are upper bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from benchmarks.page import put
from benchmarks.service_process import ServiceProcess, running_service
from benchmarks.service_soak import soak, soak_line

PAGE = Path(__file__).resolve().parent.parent / "docs" / "service.md"
CLIENT_COUNT = 50
PAUSE_SECONDS = 0.5
SOLVE_COUNT = 4
KNOWN = {
    "model": "llama-3-8b",
    "cluster": "8xh100-sxm5-80gb",
    "job": {"global_batch_size": 512, "sequence_length": 8192},
}
HEAVY = {"model": "deepseek-v3", "cluster": "64x8xh100-sxm5-80gb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """How long each of a number of requests took."""

    seconds: tuple[float, ...]
    wall_seconds: float

    def quantile_seconds(self, ratio: float) -> float:
        """Return the time within which `ratio` of the requests were answered (nearest rank)."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(ratio * len(ordered)))]

    def row(self, name: str, bar: str) -> str:
        """Return the line of the table that shows them."""
        rate = len(self.seconds) / self.wall_seconds
        shown = " | ".join(f"{self.quantile_seconds(at) * 1e3:.1f}" for at in (0.5, 0.95, 0.99))
        return f"| {name} | {len(self.seconds)} | {rate:.0f} | {shown} | {bar} |"


async def cached_plans(
    service: ServiceProcess, *, seconds: float, pause_seconds: float
) -> Latencies:
    """Return how long a stored plan takes while 50 clients ask for it."""
    await _store(service)

    async def ask(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/plans", json=KNOWN)
        assert answer.status_code == httpx.codes.OK, answer.text

    return await _hammer(
        service, [ask] * CLIENT_COUNT, seconds=seconds, pause_seconds=pause_seconds
    )


async def reads_while_solving(service: ServiceProcess, *, seconds: float) -> Latencies:
    """Return how long reads take while four solves run."""
    plan_id = await _store(service)
    solving = asyncio.create_task(_keep_solving(service))
    paths = ("/v1/plans?limit=20", f"/v1/plans/{plan_id}", f"/plans/{plan_id}")

    def reader(path: str) -> Callable[[httpx.AsyncClient], Awaitable[None]]:
        async def read(client: httpx.AsyncClient) -> None:
            answer = await client.get(path)
            assert answer.status_code == httpx.codes.OK, answer.text

        return read

    found = await _hammer(
        service, [reader(path) for path in paths], seconds=seconds, pause_seconds=0.1
    )
    solving.cancel()
    await asyncio.wait({solving})
    return found


async def _store(service: ServiceProcess) -> str:
    async with _client(service) as client:
        answer = await client.post("/v1/plans", json=KNOWN, headers={"Prefer": "wait=30"})
        answer.raise_for_status()
        identifier: str = answer.json()["id"]
        return identifier


async def _keep_solving(service: ServiceProcess) -> None:
    """Have four solves run, a new one for each that ends, until cancelled."""
    numbers = itertools.count()
    running: list[str] = []
    async with _client(service) as client:
        try:
            while True:
                running = [name for name in running if await _is_running(client, name)]
                while len(running) < SOLVE_COUNT:
                    running.append(await _begin_solve(client, next(numbers)))
                await asyncio.sleep(0.25)
        finally:
            for name in running:
                await client.delete(f"/v1/operations/{name}")


async def _is_running(client: httpx.AsyncClient, operation_id: str) -> bool:
    operation = (await client.get(f"/v1/operations/{operation_id}")).json()
    return bool(operation["state"] == "running")


async def _begin_solve(client: httpx.AsyncClient, number: int) -> str:
    request = {**HEAVY, "job": {"global_batch_size": 4096 + 512 * number}}
    answer = await client.post("/v1/plans", json=request, headers={"Prefer": "wait=0"})
    answer.raise_for_status()
    identifier: str = answer.json()["id"]
    return identifier


async def _hammer(
    service: ServiceProcess,
    requests: Sequence[Callable[[httpx.AsyncClient], Awaitable[None]]],
    *,
    seconds: float,
    pause_seconds: float,
) -> Latencies:
    """Return the latencies of requests that go on side by side, each on a connection of its own."""
    found: list[float] = []
    connected = asyncio.Barrier(len(requests))
    started: list[float] = []

    async def repeat(request: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async with _client(service) as client:
            await request(client)  # the connection is made before anything is measured
            await connected.wait()
            started.append(time.monotonic())
            await asyncio.sleep(pause_seconds * len(started) / len(requests))  # not all at once
            while time.monotonic() < started[0] + seconds:
                begun = time.perf_counter()
                await request(client)
                found.append(time.perf_counter() - begun)
                await asyncio.sleep(pause_seconds)

    await asyncio.gather(*(repeat(request) for request in requests))
    return Latencies(seconds=tuple(found), wall_seconds=time.monotonic() - started[0])


def _client(service: ServiceProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=service.url, timeout=60)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def _measured_service() -> Iterator[ServiceProcess]:
    with (
        tempfile.TemporaryDirectory() as home,
        running_service(
            Path(home), port=_free_port(), MESHWRIGHT_SOLVER_PROCESSES=str(SOLVE_COUNT)
        ) as service,
    ):
        yield service


def measured_load(*, seconds: float) -> list[str]:
    """Return the lines of the table of figures."""
    busy = os.getloadavg()[0]
    with _measured_service() as service:
        paced = asyncio.run(cached_plans(service, seconds=seconds, pause_seconds=PAUSE_SECONDS))
        print("paced", flush=True)
        flood = asyncio.run(cached_plans(service, seconds=seconds / 2, pause_seconds=0))
        print("flood", flush=True)
        reads = asyncio.run(reads_while_solving(service, seconds=seconds))
    return [
        "| what | requests | per second | p50 (ms) | p95 (ms) | p99 (ms) | bar |",
        "|---|---|---|---|---|---|---|",
        paced.row("stored plan, 50 clients, each twice a second", "p99 < 50 ms"),
        flood.row("stored plan, 50 clients without a pause", "none"),
        reads.row("reads while 4 solves run", "p99 < 100 ms"),
        "",
        _machine_line(busy),
    ]


def measured_soak(*, minutes: float, pause_seconds: float) -> list[str]:
    """Return the line that says what a soak found."""
    busy = os.getloadavg()[0]
    with _measured_service() as service:
        soaking = soak(
            service, minutes=minutes, pause_seconds=pause_seconds, known=KNOWN, heavy=HEAVY
        )
        soaked = asyncio.run(soaking)
    line = soak_line(soaked)
    complaint = soaked.complaint()
    if complaint is not None:
        raise SystemExit(f"{line}\n{complaint}")
    return [line, "", _machine_line(busy)]


def _machine_line(busy: float) -> str:
    today = datetime.now(tz=UTC).date()
    return (
        f"Measured on {today}. The machine had {os.cpu_count()} cores and, when this was begun, "
        f"{busy:.0f} other processes that wanted one (load average of a minute)."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument("--only", choices=("load", "soak"), help="one part alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default 20)")
    parser.add_argument("--soak-minutes", type=float, default=1.0, help="default 1")
    parser.add_argument("--soak-pause", type=float, default=0.0, help="seconds (default 0)")
    parser.add_argument("--write", action="store_true", help="put the figures into the page")
    given = parser.parse_args(arguments)
    parts: dict[str, Callable[[], list[str]]] = {
        "load": lambda: measured_load(seconds=given.seconds),
        "soak": lambda: measured_soak(minutes=given.soak_minutes, pause_seconds=given.soak_pause),
    }
    for mark, measured in parts.items():
        if given.only in (None, mark):
            lines = measured()
            print("\n".join(lines), flush=True)
            if given.write:
                put(mark, lines, page=PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
