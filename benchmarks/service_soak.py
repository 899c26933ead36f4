"""The soak: mixed load for as long as one likes; what memory and handles do, and the answers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.service_process import ServiceProcess

BATCH_COUNT = 10
CYCLE_COUNT = 40
REMEMBERED_REQUESTS = 256  # by `api.services.requests`
PATIENT = {"Prefer": "wait=30"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the service held at one moment; solvers' own processes count as theirs."""

    minute: float
    request_count: int
    resident_bytes: int
    file_handle_count: int
    thread_count: int

    def line(self) -> str:
        """Return what a log says of it."""
        return (
            f"soak: minute {self.minute:.1f}, {self.request_count} requests, "
            f"{self.resident_bytes / 2**20:.1f} MiB, {self.file_handle_count} handles, "
            f"{self.thread_count} threads"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """What a soak found: samples, and how many answers had each status, those of filling too."""

    samples: tuple[Sample, ...]
    answer_counts: Mapping[int, int]

    def failures(self) -> dict[int, int]:
        """Return how many answers had each status of 500 and more."""
        return {status: count for status, count in self.answer_counts.items() if status >= 500}

    def statuses(self) -> str:
        """Return the answers by status, such as "200: 12, 503: 1"."""
        return _shown(self.answer_counts)

    def complaint(self) -> str | None:
        """Return what the service may not answer under this load; None where all was well."""
        failures = self.failures()
        if not failures:
            return None
        return f"the service failed during the soak (status: answers): {_shown(failures)}"


def _shown(counts: Mapping[int, int]) -> str:
    return ", ".join(f"{status}: {counts[status]}" for status in sorted(counts))


async def soak(
    service: ServiceProcess,
    *,
    minutes: float,
    pause_seconds: float,
    known: dict[str, Any],
    heavy: dict[str, Any],
) -> Soaked:
    """Return samples, one each few seconds and one at the end, under mixed load; and the answers.

    Every `pause_seconds` ten requests are sent at once over connections of their own: pages, lists,
    stored plans, estimates that go wrong; one in forty begins a solve and cancels it. Before it,
    what the service remembers of requests is filled, so that what grows afterwards is a leak.
    """
    answers: Counter[int] = Counter()
    async with _client(service, answers) as client:
        plan_id = await _stored(client, known)
        await _fill_what_is_remembered(client, heavy)
    samples: list[Sample] = []
    started = time.monotonic()
    number = 0
    sampling_seconds = min(20.0, minutes * 60 / 20)
    while (elapsed := time.monotonic() - started) < minutes * 60:
        async with _client(service, answers) as client:
            requests = (
                _mixed(client, number + at, plan_id=plan_id, known=known, heavy=heavy)
                for at in range(BATCH_COUNT)
            )
            await asyncio.gather(*requests)
        number += BATCH_COUNT
        if elapsed >= sampling_seconds * len(samples):
            samples.append(_sampled(service, minute=elapsed / 60, request_count=number))
            print(samples[-1].line(), flush=True)
        await asyncio.sleep(pause_seconds)
    minute = (time.monotonic() - started) / 60
    samples.append(_sampled(service, minute=minute, request_count=number))
    return Soaked(samples=tuple(samples), answer_counts=answers)


def _client(service: ServiceProcess, answers: Counter[int]) -> httpx.AsyncClient:
    """Return a client that counts whatever it is answered."""

    async def count(answer: httpx.Response) -> None:
        answers[answer.status_code] += 1

    return httpx.AsyncClient(base_url=service.url, timeout=60, event_hooks={"response": [count]})


def soak_line(soaked: Soaked) -> str:
    """Return what was found: the first tenth is the warming up, and is left out.

    Growth is the slope of the least-squares line through the samples, in MiB and handles an hour.
    """
    settled = soaked.samples[len(soaked.samples) // 10 :]
    first, last = settled[0], settled[-1]
    count = last.request_count - first.request_count
    return (
        f"Soak: from minute {first.minute:.1f} to {last.minute:.1f} of mixed load ({count} "
        f"requests), memory went from {first.resident_bytes / 2**20:.1f} to "
        f"{last.resident_bytes / 2**20:.1f} MiB (a straight line through {len(settled)} samples: "
        f"{_slope(settled, 'resident_bytes') / 2**20:+.1f} MiB an hour), file handles from "
        f"{first.file_handle_count} to {last.file_handle_count} "
        f"({_slope(settled, 'file_handle_count'):+.1f} an hour), threads from "
        f"{first.thread_count} to {last.thread_count}. Answers by status, from the beginning: "
        f"{soaked.statuses()}."
    )


def _slope(samples: Sequence[Sample], name: str) -> float:
    hours = [sample.minute / 60 for sample in samples]
    values = [float(getattr(sample, name)) for sample in samples]
    mean_hour, mean_value = sum(hours) / len(hours), sum(values) / len(values)
    spread = sum((hour - mean_hour) ** 2 for hour in hours)
    products = zip(hours, values, strict=True)
    return sum((hour - mean_hour) * (value - mean_value) for hour, value in products) / spread


def _sampled(service: ServiceProcess, *, minute: float, request_count: int) -> Sample:
    return Sample(
        minute=minute,
        request_count=request_count,
        resident_bytes=service.resident_bytes(),
        file_handle_count=service.file_handle_count(),
        thread_count=service.thread_count(),
    )


async def _stored(client: httpx.AsyncClient, known: dict[str, Any]) -> str:
    answer = await client.post("/v1/plans", json=known, headers=PATIENT)
    answer.raise_for_status()
    identifier: str = answer.json()["id"]
    return identifier


async def _fill_what_is_remembered(client: httpx.AsyncClient, heavy: dict[str, Any]) -> None:
    for number in range(REMEMBERED_REQUESTS):
        job = {"global_batch_size": 2**20 + number}
        await _begun_and_cancelled(client, {**heavy, "job": job})


async def _begun_and_cancelled(client: httpx.AsyncClient, request: dict[str, Any]) -> None:
    begun = await client.post("/v1/plans", json=request, headers={"Prefer": "wait=0"})
    if begun.status_code == httpx.codes.ACCEPTED:
        await client.delete(f"/v1/operations/{begun.json()['id']}")


async def _mixed(
    client: httpx.AsyncClient,
    number: int,
    *,
    plan_id: str,
    known: dict[str, Any],
    heavy: dict[str, Any],
) -> None:
    """Read, plan anew, go wrong, or begin and cancel, as `number` has it."""
    if number % CYCLE_COUNT == CYCLE_COUNT - 1:
        await _begun_and_cancelled(client, {**heavy, "job": {"global_batch_size": 1024 + number}})
        return
    match number % 6:
        case 0:
            await client.get(f"/plans/{plan_id}")
        case 1:
            await client.post("/v1/plans", json=known)
        case 2:
            await client.get("/v1/plans?limit=50")
        case 3:
            await client.post("/v1/plans", json={"model": "none", "cluster": "none"})
        case 4:
            await client.get("/metrics")
        case _:
            await client.get("/plans")
