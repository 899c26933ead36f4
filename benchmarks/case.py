"""A case: a model, a cluster and a job as documents, and a draw of many at random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from benchmarks.random_clusters import device_count_of, devices_of, random_cluster
from benchmarks.random_jobs import random_job
from benchmarks.random_models import random_model
from planner.hardware import device_profile
from planner.importers.models import model_from_fields, read_model
from planner.schema.job import Precision
from planner.schema.model import ModelGraph
from planner.units import GIB
from planner.workload.model import model_workload

STATE_BYTES_PER_PARAMETER = 16
SMALL_SHARE_KEPT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What to plan, in the words that the service and the command line take."""

    index: int
    model: str | dict[str, Any]
    cluster: str | dict[str, Any]
    job: dict[str, Any]

    def fields(self) -> dict[str, Any]:
        """Return the case for JSON."""
        return asdict(self)

    def title(self) -> str:
        """Return the case in one line."""
        model = self.model if isinstance(self.model, str) else self.model["name"]
        cluster = self.cluster if isinstance(self.cluster, str) else self.cluster["name"]
        job = self.job
        return (
            f"{model} on {cluster}, {job.get('global_batch_size')} x {job.get('sequence_length')}"
        )


def random_cases(
    *, count: int, seed: int, seconds_limit: float, mixed: bool = True
) -> Iterator[Case]:
    """Yield `count` cases; each depends on the seed and its own index alone."""
    for index in range(count):
        yield random_case(index, seed=seed, seconds_limit=seconds_limit, mixed=mixed)


def random_case(index: int, *, seed: int, seconds_limit: float, mixed: bool = True) -> Case:
    """Return one case.

    Clusters whose memory is smaller than the model's states are mostly drawn again: one answer in
    ten that nothing fits is enough of them. Jobs in fp8 are in bf16 where a device has no fp8.
    """
    random = Random(f"{seed}/{index}")  # noqa: S311 - a draw of cases, no secret
    model = random_model(random)
    graph = graph_of(model)
    cluster = random_cluster(random, mixed=mixed)
    while _too_small(graph, cluster) and random.random() >= SMALL_SHARE_KEPT:
        cluster = random_cluster(random, mixed=mixed)
    job = random_job(
        random,
        device_count=device_count_of(cluster),
        longest=graph.learned_position_count or None,
        seconds_limit=seconds_limit,
    )
    if job["precision"] == Precision.FP8 and not _has_fp8(cluster):
        job["precision"] = Precision.BF16.value
    return Case(index=index, model=model, cluster=cluster, job=job)


def graph_of(model: str | dict[str, Any]) -> ModelGraph:
    """Return the model graph of a reference."""
    if isinstance(model, str):
        return read_model(model)[1]
    return model_from_fields(model, name=str(model["name"]))


def _has_fp8(cluster: str | dict[str, Any]) -> bool:
    profiles = map(device_profile, devices_of(cluster))
    return not any(Precision.FP8 in profile.not_in_hardware for profile in profiles)


def _too_small(graph: ModelGraph, cluster: str | dict[str, Any]) -> bool:
    least = min(device_profile(device).memory_gib * GIB for device in devices_of(cluster))
    needed = model_workload(graph).parameter_count * STATE_BYTES_PER_PARAMETER
    return needed > device_count_of(cluster) * least
