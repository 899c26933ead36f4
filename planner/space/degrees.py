"""Degrees: every configuration that model, cluster and job allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from planner.cost.configuration import Configuration, Configurations
from planner.hardware import ClusterHardware
from planner.schema.job import DegreeLimit, Job
from planner.schema.model import ModelGraph
from planner.schema.strategy import PipelineSchedule
from planner.space.legality import expert_count, needs_full_pipeline, tensor_parallel_sizes

MICRO_BATCH_SIZE_LIMIT = 64
CONTEXT_TOKENS_LEAST = 8192
SEARCHED_SCHEDULES = (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationSpace:
    """The legal configurations in a fixed order, and how many were refused by which rule."""

    rows: tuple[Configuration, ...]
    refused: dict[str, int]

    def columns(self) -> Configurations:
        """Return the configurations as columns."""
        return Configurations.of(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mesh:
    tensor: int
    pipeline: int
    context: int
    shard: int
    replicate: int


def enumerate_configurations(
    graph: ModelGraph, hardware: ClusterHardware, job: Job
) -> ConfigurationSpace:
    """Return every configuration of the searched space.

    Tensor parallelism stays within the innermost network level. Data-parallel ranks are sharded
    whole, or (HSDP) in groups that fill one domain of a level and are replicated over the others.
    A rank alone with its shard has nothing to shard, so ZeRO stages above 0 cost it nothing.
    """
    refused: Counter[str] = Counter()
    rows = [
        configuration
        for mesh in _meshes(graph, hardware, job, refused)
        for configuration in _batched(mesh, graph, job, refused)
    ]
    return ConfigurationSpace(rows=tuple(rows), refused=dict(refused))


def _outside(name: str, job: Job, possible: tuple[int, ...] = ()) -> str:
    """Return the rule that a degree lies within the job's limit, and what would be possible."""
    limit: DegreeLimit = getattr(job.limits, name)
    bounds = f"{limit.min}" if limit.min == limit.max else f"{limit.min} to {limit.max}"
    choice = f"; model and devices allow {', '.join(map(str, possible))}" if possible else ""
    return f"job.limits.{name} is {bounds}, which rules these out{choice}"


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of `number` in increasing order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _meshes(
    graph: ModelGraph, hardware: ClusterHardware, job: Job, refused: Counter[str]
) -> Iterator[_Mesh]:
    limits, world = job.limits, hardware.device_count
    for tensor in _tensor_degrees(graph, hardware, job, refused):
        for pipeline in divisors(world // tensor):
            if pipeline > graph.block_count:
                refused["more stages than blocks"] += 1
                continue
            if not limits.pipeline_parallel_degree.allows(pipeline):
                refused[_outside("pipeline_parallel_degree", job)] += 1
                continue
            for context in _context_degrees(world // (tensor * pipeline), job, refused):
                data = world // (tensor * pipeline * context)
                for shard in _shard_degrees(
                    data, stride=tensor * context, hardware=hardware, job=job, refused=refused
                ):
                    yield _Mesh(
                        tensor=tensor,
                        pipeline=pipeline,
                        context=context,
                        shard=shard,
                        replicate=data // shard,
                    )


def _tensor_degrees(
    graph: ModelGraph, hardware: ClusterHardware, job: Job, refused: Counter[str]
) -> Iterator[int]:
    sizes = tensor_parallel_sizes(graph).values()
    domain = min(kind.levels[0].device_count for kind in hardware.kinds)
    degrees = divisors(hardware.device_count)
    possible = tuple(d for d in degrees if d <= domain and all(size % d == 0 for size in sizes))
    for degree in degrees:
        if degree > domain:
            refused["tensor parallelism beyond the innermost network level"] += 1
        elif degree not in possible:
            refused["tensor_parallel_degree does not divide the model"] += 1
        elif not job.limits.tensor_parallel_degree.allows(degree):
            refused[_outside("tensor_parallel_degree", job, possible)] += 1
        else:
            yield degree


def _context_degrees(ranks: int, job: Job, refused: Counter[str]) -> Iterator[int]:
    """Yield 1 and, for sequences long enough to keep a few thousand tokens a rank, larger ones."""
    length = job.sequence_length or 1
    for degree in divisors(ranks):
        if not job.limits.context_parallel_degree.allows(degree):
            refused[_outside("context_parallel_degree", job)] += 1
        elif degree > 1 and (length % (2 * degree) or length // degree < CONTEXT_TOKENS_LEAST):
            refused["context parallelism of a short or indivisible sequence"] += 1
        else:
            yield degree


def _shard_degrees(
    data: int, *, stride: int, hardware: ClusterHardware, job: Job, refused: Counter[str]
) -> Iterator[int]:
    """Yield the whole data-parallel degree, and those that fill one domain of a level."""
    within = {max(level.device_count // stride, 1) for level in hardware.kinds[0].levels}
    for degree in sorted({data, *(d for d in within if d < data and data % d == 0 and d > 1)}):
        limits = job.limits
        if not limits.data_parallel_shard_degree.allows(degree):
            refused[_outside("data_parallel_shard_degree", job)] += 1
        elif not limits.data_parallel_replicate_degree.allows(data // degree):
            refused[_outside("data_parallel_replicate_degree", job)] += 1
        else:
            yield degree


def _batched(
    mesh: _Mesh, graph: ModelGraph, job: Job, refused: Counter[str]
) -> Iterator[Configuration]:
    batch, data = job.global_batch_size or 1, mesh.shard * mesh.replicate
    if batch % data:
        refused["global_batch_size not a multiple of the data-parallel degree"] += 1
        return
    for size in divisors(batch // data):
        if size > MICRO_BATCH_SIZE_LIMIT or not job.limits.micro_batch_size.allows(size):
            refused[_outside("micro_batch_size", job)] += 1
            continue
        count = batch // data // size
        for expert in _expert_degrees(mesh, graph, job, refused):
            for sequence in _sequence_options(mesh, job, refused):
                for schedule in _schedules(mesh, job, count, refused):
                    yield Configuration(
                        tensor_parallel_degree=mesh.tensor,
                        sequence_parallel=sequence,
                        pipeline_parallel_degree=mesh.pipeline,
                        pipeline_schedule=schedule,
                        context_parallel_degree=mesh.context,
                        expert_parallel_degree=expert,
                        data_parallel_replicate_degree=mesh.replicate,
                        data_parallel_shard_degree=mesh.shard,
                        micro_batch_size=size,
                        micro_batch_count=count,
                    )


def _expert_degrees(
    mesh: _Mesh, graph: ModelGraph, job: Job, refused: Counter[str]
) -> Iterator[int]:
    ranks = mesh.shard * mesh.context
    for degree in divisors(expert_count(graph)):
        if ranks % degree:
            refused["expert_parallel_degree does not divide shard x context ranks"] += 1
        elif not job.limits.expert_parallel_degree.allows(degree):
            refused[_outside("expert_parallel_degree", job)] += 1
        else:
            yield degree


def _sequence_options(mesh: _Mesh, job: Job, refused: Counter[str]) -> Iterator[bool]:
    """Yield whether activations between products are split over tensor-parallel ranks.

    Without tensor parallelism there is nothing to split, whatever the limit says.
    """
    if mesh.tensor == 1:
        yield False
        return
    wanted, length = job.limits.sequence_parallel, job.sequence_length or 1
    if wanted is not True:
        yield False
    if wanted is False:
        return
    if length % (mesh.tensor * mesh.context):
        refused["sequence parallelism of an indivisible sequence"] += 1
    else:
        yield True


def _schedules(
    mesh: _Mesh, job: Job, count: int, refused: Counter[str]
) -> Iterator[PipelineSchedule]:
    """Yield the schedules; without a pipeline all are the same, and one stands for them."""
    allowed = [item for item in SEARCHED_SCHEDULES if item in job.limits.pipeline_schedules]
    if not allowed:
        refused["no schedule of pipeline_schedules can be priced"] += 1
    if mesh.pipeline == 1:
        yield from allowed[-1:]
        return
    for schedule in allowed:
        if needs_full_pipeline(job.stack, schedule) and count < mesh.pipeline:
            refused["fewer micro-batches than stages"] += 1
        else:
            yield schedule
