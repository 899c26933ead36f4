"""Real jobs small enough to be searched in full: tiny models, few devices, little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.cost.configuration import Choices, LayerChoices
from planner.cost.fitting import room
from planner.cost.schedule import in_flight, peak_holdings
from planner.hardware import ClusterHardware, DeviceHardware, cluster_hardware
from planner.ilp.instance import Assignment, Instance
from planner.ilp.pricing import Pricing
from planner.ilp.problem import Problem
from planner.schema.cluster import NodeGroup
from planner.schema.job import Job
from planner.schema.model import Block, BlockRun, DenseFeedForward, MixtureFeedForward, ModelGraph
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import ConfigurationSpace, enumerate_configurations
from planner.units import MIB
from planner.workload.layer import ModelWorkload
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_job, a_model
from tests.oracle import Keeping

CHOICE_SETS = (
    {"zero_stages": (0, 3), "activation_checkpointing": ("none", "full"), "offload": ()},
    {"zero_stages": (1,), "activation_checkpointing": ("none",), "offload": ("optimizer",)},
    {"zero_stages": (3,), "activation_checkpointing": ("none",), "offload": ("parameters",)},
    {"zero_stages": (0,), "activation_checkpointing": ("none", "selective", "full"), "offload": ()},
    {"zero_stages": (2,), "activation_checkpointing": ("none",), "offload": ("activations",)},
    {
        "zero_stages": (3,),
        "activation_checkpointing": ("none", "full"),
        "offload": ("optimizer",),
    },
)
STACKS = ("torch", "torch", "torch", "megatron", "deepspeed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A job with its space and the instances of it."""

    problem: Problem
    space: ConfigurationSpace
    pricing: Pricing

    def layer_choices(self) -> LayerChoices:
        """Every choice of blocks and of edges that the job allows."""
        job = self.problem.job
        edges = Choices.of(edge_choices(job.limits, job.offload_to))
        blocks = Choices.of(block_choices(job.limits, job.offload_to))
        return LayerChoices(blocks=blocks, embedding=edges, head=edges)

    def instances(self) -> Iterator[tuple[int, Instance]]:
        """Every configuration's place and instance."""
        for index in range(len(self.space.configurations)):
            yield index, self.pricing.instance(index)

    def keeping(self, index: int) -> tuple[Keeping, ...] | None:
        """What every rank of a configuration holds, where that differs by virtual stage."""
        row = self.space.configurations.row(index)
        degree, virtual = row.pipeline_parallel_degree, row.virtual_pipeline_degree
        if degree == 1 or virtual == 1:
            return None
        count, schedule = row.micro_batch_count, row.pipeline_schedule
        shape = {"pipeline_parallel_degree": degree, "virtual_pipeline_degree": virtual}
        return tuple(
            Keeping(
                in_flight=in_flight(schedule, micro_batch_count=count, stage=rank, **shape),
                moments=peak_holdings(schedule, micro_batch_count=count, rank=rank, **shape),
            )
            for rank in range(degree)
        )


def priced(problem: Problem) -> Priced:
    """The job's space, priced."""
    space = enumerate_configurations(problem.graph, problem.hardware, problem.job)
    limits = problem.job.limits
    return Priced(
        problem=problem,
        space=space,
        pricing=Pricing(
            problem,
            configurations=space.configurations,
            choices=block_choices(limits),
            edges=edge_choices(limits),
        ),
    )


def small_jobs(seeds: range, **limits: Any) -> Iterator[tuple[int, Priced]]:
    """Every seed whose job has any configuration, with the job."""
    for seed in seeds:
        problem = small_problem(seed, **limits)
        space = enumerate_configurations(problem.graph, problem.hardware, problem.job)
        if len(space.configurations):
            yield seed, priced(problem)


def small_problem(seed: int, **changed_limits: Any) -> Problem:
    """The same job for the same seed: one or two kinds of blocks, one or two of devices."""
    numbers = np.random.default_rng(seed)
    mixed = bool(numbers.integers(3) == 0)
    graph = _model(numbers)
    limits = dict(CHOICE_SETS[int(numbers.integers(len(CHOICE_SETS)))])
    shares_sequences = numbers.integers(5) == 0
    limits["context_parallel_degree"] = {"min": 2, "max": 4} if shares_sequences else 1
    job = a_job(
        global_batch_size=int(numbers.choice([4, 6, 8])),
        sequence_length=int(numbers.choice([64, 128])),
        precision="bf16" if mixed else "fp32",
        stack=str(numbers.choice(STACKS)),
        limits={**limits, "solver_seconds": 600.0, **changed_limits},
    )
    hardware = _mixed(numbers) if mixed else _alike(numbers, shares_cores=seed % 2 == 1)
    workload = model_workload(graph)
    kinds = tuple(_tight(workload, kind, numbers, job) for kind in hardware.kinds)
    return Problem(
        graph=graph,
        workload=workload,
        hardware=replace(hardware, kinds=kinds),
        job=job,
    )


def _model(numbers: np.random.Generator) -> ModelGraph:
    """Two to eight blocks, of one kind, of two in runs, or of two in turns."""
    attention = a_model().runs[0].block.attention
    blocks = [
        Block(attention=attention, feed_forward=DenseFeedForward(ffn_size=128)),
        Block(attention=attention, feed_forward=DenseFeedForward(ffn_size=512)),
        Block(
            attention=attention,
            feed_forward=MixtureFeedForward(
                expert_count=4, experts_per_token=2, expert_ffn_size=64
            ),
        ),
    ]
    first, second = numbers.permutation(3)[:2].tolist()
    form = int(numbers.integers(4))
    if form == 0:
        runs = [(first, int(numbers.integers(3, 8)))]
    elif form == 3:
        runs = [(first, 1), (second, 1)] * 4
        runs = runs[: int(numbers.integers(3, 9))]
    else:
        runs = [(first, int(numbers.integers(1, 5))), (second, int(numbers.integers(1, 5)))]
    return a_model(
        runs=tuple(BlockRun(block=blocks[kind], block_count=count) for kind, count in runs)
    )


def _alike(numbers: np.random.Generator, *, shares_cores: bool) -> ClusterHardware:
    """One, two or, mostly, four ranks of one node, which may share cores."""
    count = int(numbers.choice([1, 2, 2, 4, 4, 4]))
    group = NodeGroup(name="ranks", device="cpu-gloo", node_count=1, devices_per_node=count)
    (kind,) = cluster_hardware(a_cluster(name="ranks", node_groups=(group,))).kinds
    speed = {"lone_speed_ratio": 2.0 if shares_cores else 1.0}
    return ClusterHardware(kinds=(replace(kind, profile=kind.profile.model_copy(update=speed)),))


def _mixed(numbers: np.random.Generator) -> ClusterHardware:
    """Two kinds of devices, one or two of each."""
    count = int(numbers.choice([1, 1, 2]))
    other = str(numbers.choice(["a100-sxm4-80gb", "l40s-48gb"]))
    groups = tuple(
        NodeGroup(name=device, device=device, node_count=1, devices_per_node=count)
        for device in ("h100-sxm5-80gb", other)
    )
    return cluster_hardware(a_cluster(name="mixed", node_groups=groups))


def _tight(
    workload: ModelWorkload, kind: DeviceHardware, numbers: np.random.Generator, job: Job
) -> DeviceHardware:
    """The device with 1.5 to 16 MiB for tensors, beside what must stay free, and little host."""
    own = room(workload, kind.profile, job)
    live_bytes = float(numbers.integers(6, 64)) * MIB / 4.0
    capacity = live_bytes * (1.0 + own.slack_ratio) + own.runtime_bytes
    return replace(
        kind,
        device_memory_bytes=own.device_bytes(capacity),
        host_memory_bytes_per_device=float(numbers.choice([0.0, 1.0, 64.0])) * MIB,
    )


def random_assignment(instance: Instance, numbers: np.random.Generator) -> Assignment:
    """Cuts and choices at random, whether or not they fit."""
    blocks, parts = instance.block_count, len(instance.holders)
    inner = sorted((numbers.permutation(blocks - 1)[: parts - 1] + 1).tolist())
    cuts = (0, *inner, blocks)
    counts = tuple(
        np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        for kind in instance.kinds
    )
    for k, kind in enumerate(instance.kinds):
        if kind.pinned_stage is not None:
            counts[k][kind.pinned_stage, numbers.integers(len(kind.choice))] += 1
    for part, rank in enumerate(instance.holders):
        for k in instance.block_kinds[cuts[part] : cuts[part + 1]].tolist():
            counts[k][rank, numbers.integers(len(instance.kinds[k].choice))] += 1
    return Assignment(counts=counts, cuts=cuts)
