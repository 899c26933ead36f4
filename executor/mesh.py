"""The device mesh of a strategy: the one place that names axes.

We say *axis* for a direction of the mesh and *dimension* for one of a tensor. Ranks are numbered
with `pp` outermost and `tp` innermost, so that the tensor-parallel ranks, which talk most, are
neighbours.

Model states shard over the ranks that see different tokens: `dp_shard` x `cp`. Routed experts have
a mesh of their own over the same ranks and those of `tp`: `ep` ranks hold different experts, `etp`
ranks parts of the same ones, and over the rest, `dp_shard_experts`, their states shard.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from planner.schema.strategy import Strategy

PIPELINE = "pp"
REPLICATE = "dp_replicate"
SHARD = "dp_shard"
CONTEXT = "cp"
TENSOR = "tp"
DATA = "dp"
SHARD_CONTEXT = "dp_shard_cp"
EXPERT = "ep"
EXPERT_TENSOR = "etp"
EXPERT_SHARD = "dp_shard_experts"
ZERO_AXES = (SHARD, SHARD_CONTEXT, EXPERT_SHARD)
AXES = (PIPELINE, REPLICATE, SHARD, CONTEXT, TENSOR)


def axis_degrees(strategy: Strategy) -> dict[str, int]:
    """Return the degree of each axis of `strategy`, outermost first."""
    return {
        PIPELINE: strategy.pipeline_parallel_degree,
        REPLICATE: strategy.replicate_degree,
        SHARD: strategy.shard_degree,
        CONTEXT: strategy.context_parallel_degree,
        TENSOR: strategy.tensor_parallel_degree,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMesh:
    """The mesh as one rank sees it.

    `sharding` is the axis over which ZeRO shards: `dp_shard`, joined with `cp` where there is one.
    `data` joins it with the replicate axis, over which gradients are averaged; `hybrid` holds both
    as two axes. `experts` is there where the strategy spreads routed experts otherwise than dense
    weights.
    """

    world: DeviceMesh
    sharding: DeviceMesh
    data: DeviceMesh
    hybrid: DeviceMesh
    degrees: dict[str, int]
    experts: ExpertMesh | None = None

    @staticmethod
    def of(strategy: Strategy, device_type: str) -> RankMesh:
        """Return the mesh over all ranks of the initialised process group."""
        degrees = axis_degrees(strategy)
        world = init_device_mesh(device_type, tuple(degrees.values()), mesh_dim_names=AXES)
        if degrees[CONTEXT] == 1:
            sharding, hybrid = world[SHARD], world[REPLICATE, SHARD]
            data = _flattened(hybrid, DATA)
        else:
            sharding = _flattened(world[SHARD, CONTEXT], SHARD_CONTEXT)
            hybrid = _beside(world[REPLICATE], sharding)
            data = _flattened(world[REPLICATE, SHARD, CONTEXT], DATA)
        return RankMesh(
            world=world,
            sharding=sharding,
            data=data,
            hybrid=hybrid,
            degrees=degrees,
            experts=ExpertMesh.of(strategy, world),
        )

    def axis(self, name: str) -> DeviceMesh:
        """Return the one-axis mesh of this rank along `name`."""
        return self.world[name]

    def coordinate(self, name: str) -> int:
        """Return this rank's place on axis `name`."""
        return int(self.world.get_local_rank(name))

    @property
    def stage(self) -> int:
        """Return the pipeline stage that this rank holds."""
        return self.coordinate(PIPELINE)

    @property
    def shard_degree(self) -> int:
        """Return the ranks over which ZeRO shards dense model states."""
        return self.degrees[SHARD] * self.degrees[CONTEXT]

    @property
    def gradient_degree(self) -> int:
        """Return the ranks that see different tokens, over which gradients are averaged."""
        return self.degrees[REPLICATE] * self.shard_degree

    @property
    def reported_degrees(self) -> dict[str, int]:
        """Return the degree of every axis, the experts' too where they have a mesh of their own."""
        return {**self.degrees, **({} if self.experts is None else self.experts.degrees)}

    @property
    def data_degree(self) -> int:
        """Return the ranks that see different sequences."""
        return self.degrees[REPLICATE] * self.degrees[SHARD]

    @property
    def data_index(self) -> int:
        """Return which of the batch's `data_degree` parts is this rank's."""
        return self.coordinate(REPLICATE) * self.degrees[SHARD] + self.coordinate(SHARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMesh:
    """Where routed experts lie: over the shard, context and tensor-parallel ranks of a replica.

    `sharding` is the axis over which ZeRO shards what `ep` and `etp` ranks hold alike; `data` joins
    it with the replicate axis, `hybrid` holds both as two axes. `exchange` joins `ep` and `etp`.
    """

    world: DeviceMesh
    sharding: DeviceMesh
    data: DeviceMesh
    hybrid: DeviceMesh
    exchange: DeviceMesh
    degrees: dict[str, int]

    @staticmethod
    def of(strategy: Strategy, world: DeviceMesh) -> ExpertMesh | None:
        """Return the mesh, `None` where experts lie as dense weights do.

        With s shard, c context and t tensor-parallel ranks, e ranks with different experts and a
        ranks with parts of one, their states shard over s c t / (e a) ranks.
        """
        degrees = expert_degrees(strategy)
        if degrees is None:
            return None
        inner = _flattened(world[SHARD, CONTEXT, TENSOR], "expert_ranks")
        mesh = inner._unflatten(  # noqa: SLF001 - torch has no public name for it yet
            0, tuple(degrees.values()), tuple(degrees)
        )
        hybrid = _beside(world[REPLICATE], mesh[EXPERT_SHARD])
        return ExpertMesh(
            world=mesh,
            sharding=mesh[EXPERT_SHARD],
            data=_flattened(hybrid, "dp_experts"),
            hybrid=hybrid,
            exchange=_flattened(mesh[EXPERT, EXPERT_TENSOR], "ep_etp"),
            degrees=degrees,
        )

    def axis(self, name: str) -> DeviceMesh:
        """Return the one-axis mesh of this rank along `name`."""
        return self.world[name]


def expert_degrees(strategy: Strategy) -> dict[str, int] | None:
    """Return the degree of each axis of the experts' mesh, `None` where they need none."""
    tensor = strategy.tensor_parallel_degree
    split = strategy.expert_tensor_parallel_degree or tensor
    expert = strategy.expert_parallel_degree
    if expert == 1 and split == tensor:
        return None
    ranks = tensor * strategy.context_parallel_degree * strategy.shard_degree
    return {EXPERT_SHARD: ranks // (expert * split), EXPERT: expert, EXPERT_TENSOR: split}


def _flattened(mesh: DeviceMesh, name: str) -> DeviceMesh:
    return mesh._flatten(name)  # noqa: SLF001 - torch has no public name for it yet


def _beside(outer: DeviceMesh, inner: DeviceMesh) -> DeviceMesh:
    """Return the mesh whose axes are those of `outer` and `inner`."""
    return DeviceMesh._concatenate([outer, inner])  # noqa: SLF001 - as above
