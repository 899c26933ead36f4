"""The device mesh of a strategy: the one place that names axes.

We say *axis* for a direction of the mesh and *dimension* for one of a tensor. Ranks are numbered
with `pp` outermost and `tp` innermost, so that the tensor-parallel ranks, which talk most, are
neighbours.
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

    `data` joins the replicate and the shard axis; `hybrid` holds both as two axes.
    """

    world: DeviceMesh
    data: DeviceMesh
    hybrid: DeviceMesh
    degrees: dict[str, int]

    @staticmethod
    def of(strategy: Strategy, device_type: str) -> RankMesh:
        """Return the mesh over all ranks of the initialised process group."""
        degrees = axis_degrees(strategy)
        world = init_device_mesh(device_type, tuple(degrees.values()), mesh_dim_names=AXES)
        hybrid = world[REPLICATE, SHARD]
        data = hybrid._flatten(DATA)  # noqa: SLF001 - torch has no public name for it yet
        return RankMesh(world=world, data=data, hybrid=hybrid, degrees=degrees)

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
    def is_first_stage(self) -> bool:
        """Return whether this rank holds the embedding."""
        return self.stage == 0

    @property
    def is_last_stage(self) -> bool:
        """Return whether this rank holds the head and computes the loss."""
        return self.stage == self.degrees[PIPELINE] - 1

    @property
    def data_degree(self) -> int:
        """Return the ranks that see different sequences."""
        return self.degrees[REPLICATE] * self.degrees[SHARD]

    @property
    def data_index(self) -> int:
        """Return which of the batch's `data_degree` parts is this rank's."""
        return self.coordinate(REPLICATE) * self.degrees[SHARD] + self.coordinate(SHARD)
