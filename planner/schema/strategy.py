"""Strategy: everything that a plan decides, and what a user writes to have theirs priced."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from planner.schema.document import Count, Degree, Document, Flag, Name, Part, PositiveCount


class PipelineSchedule(StrEnum):
    """The order in which a stage runs forwards and backwards of its micro-batches."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved_1f1b"
    ZB_V = "zb_v"
    DUALPIPE_V = "dualpipe_v"


V_SCHEDULES = frozenset({PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V})


class ContextParallelKind(StrEnum):
    """How ranks that share a sequence see all keys: passed round, or heads exchanged (Ulysses)."""

    RING = "ring"
    ALL_TO_ALL = "all_to_all"


class ActivationCheckpointing(StrEnum):
    """What backward finds of forward: all, the dear part, or each block's input only."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Offload(StrEnum):
    """State kept in host memory."""

    OPTIMIZER = "optimizer"
    PARAMETERS = "parameters"
    ACTIVATIONS = "activations"


ZeroStage = Annotated[int, Field(ge=0, le=3)]


class EdgeChoice(Part):
    """How the embedding or the LM head is kept: it is no block, so it has a choice of its own."""

    zero_stage: ZeroStage = 0
    offload: tuple[Offload, ...] = ()


class LayerGroup(Part):
    """Consecutive blocks of one stage that are treated alike."""

    first_block: Count
    block_count: PositiveCount
    zero_stage: ZeroStage = 0
    activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing.NONE
    offload: tuple[Offload, ...] = ()


class Stage(Part):
    """Contiguous blocks on one pipeline coordinate.

    With virtual stages these are the virtual ones, in the order of the chain.
    """

    stage: Count
    device_group: Name | None = None
    layers: tuple[LayerGroup, ...]

    @property
    def block_count(self) -> int:
        """Return how many blocks the stage holds."""
        return sum(group.block_count for group in self.layers)


class Strategy(Document):
    """Degrees, schedule and batches, and per layer group ZeRO, checkpointing and offload.

    `stages` may be left out: then blocks are spread evenly and the flat keys `zero_stage`,
    `activation_checkpointing` and `offload` hold for all. `data_parallel_degree` may stand for
    shard x replicate. `expert_tensor_parallel_degree` is the tensor-parallel degree where it is
    left out. `resolved` returns the explicit form, which is what plans contain.
    """

    tensor_parallel_degree: Degree = 1
    sequence_parallel: Flag = False
    pipeline_parallel_degree: Degree = 1
    virtual_pipeline_degree: Degree = 1
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    context_parallel_degree: Degree = 1
    context_parallel_kind: ContextParallelKind = ContextParallelKind.RING
    expert_parallel_degree: Degree = 1
    expert_tensor_parallel_degree: Degree | None = None
    data_parallel_replicate_degree: Degree | None = None
    data_parallel_shard_degree: Degree | None = None
    data_parallel_degree: Degree | None = None
    micro_batch_size: PositiveCount = 1
    micro_batch_count: PositiveCount | None = None
    stages: tuple[Stage, ...] | None = None
    embedding: EdgeChoice | None = None
    head: EdgeChoice | None = None
    zero_stage: ZeroStage | None = None
    activation_checkpointing: ActivationCheckpointing | None = None
    offload: tuple[Offload, ...] | None = None

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Self:
        flat = ("zero_stage", "activation_checkpointing", "offload")
        if self.stages is not None:
            for name in flat:
                if getattr(self, name) is not None:
                    what = f"stages and the flat key {name} are both given; leave one out"
                    raise ValueError(what)
            _check_stages(self.stages, self.virtual_stage_count)
        if self.data_parallel_degree is not None and (
            self.data_parallel_shard_degree is not None
            or self.data_parallel_replicate_degree is not None
        ):
            raise ValueError(
                "data_parallel_degree is given beside the shard or replicate degree; leave one out"
            )
        return self

    @property
    def virtual_degree(self) -> int:
        """Return the virtual stages of a rank: V-shaped schedules have two in any case."""
        if self.pipeline_schedule in V_SCHEDULES and self.pipeline_parallel_degree > 1:
            return max(self.virtual_pipeline_degree, 2)
        return self.virtual_pipeline_degree

    @property
    def virtual_stage_count(self) -> int:
        """Return the stages that the chain is cut into."""
        return self.pipeline_parallel_degree * self.virtual_degree

    @property
    def shard_degree(self) -> int:
        """Return the ranks over which ZeRO shards model states."""
        return self.data_parallel_shard_degree or self.data_parallel_degree or 1

    @property
    def replicate_degree(self) -> int:
        """Return the replicas of each shard group (HSDP)."""
        return self.data_parallel_replicate_degree or 1

    @property
    def world_size(self) -> int:
        """Return the number of ranks that the degrees multiply to."""
        return (
            self.tensor_parallel_degree
            * self.pipeline_parallel_degree
            * self.context_parallel_degree
            * self.shard_degree
            * self.replicate_degree
        )

    def resolved(self, *, block_count: int, global_batch_size: int) -> Strategy:
        """Return the same strategy with every default spelled out and no shorthand left.

        Blocks are spread evenly where `stages` is absent, earlier stages taking the remainder.

        Raises:
            ValueError: if the stages do not hold exactly `block_count` blocks, if there are more
                stages than blocks, or if the batch does not divide.
        """
        stages = self.stages or self._even_stages(block_count)
        held = sum(stage.block_count for stage in stages)
        if held != block_count:
            raise ValueError(f"stages hold {held} blocks, but the model has {block_count}")
        first, last = stages[0].layers[0], stages[-1].layers[-1]
        return Strategy(
            tensor_parallel_degree=self.tensor_parallel_degree,
            sequence_parallel=self.sequence_parallel,
            pipeline_parallel_degree=self.pipeline_parallel_degree,
            virtual_pipeline_degree=self.virtual_degree,
            pipeline_schedule=self.pipeline_schedule,
            context_parallel_degree=self.context_parallel_degree,
            context_parallel_kind=self.context_parallel_kind,
            expert_parallel_degree=self.expert_parallel_degree,
            expert_tensor_parallel_degree=self.expert_tensor_parallel_degree
            or self.tensor_parallel_degree,
            data_parallel_replicate_degree=self.replicate_degree,
            data_parallel_shard_degree=self.shard_degree,
            micro_batch_size=self.micro_batch_size,
            micro_batch_count=self.micro_batch_count or self._micro_batches(global_batch_size),
            stages=stages,
            embedding=self.embedding or _edge_like(first),
            head=self.head or _edge_like(last),
        )

    def _micro_batches(self, global_batch_size: int) -> int:
        per_micro_batch = self.micro_batch_size * self.shard_degree * self.replicate_degree
        if global_batch_size % per_micro_batch:
            raise ValueError(
                f"global_batch_size {global_batch_size} is not a multiple of micro_batch_size x "
                f"data-parallel degree = {per_micro_batch}"
            )
        return global_batch_size // per_micro_batch

    def _even_stages(self, block_count: int) -> tuple[Stage, ...]:
        degree = self.virtual_stage_count
        if degree > block_count:
            virtual = f" x {self.virtual_degree} virtual stages" if self.virtual_degree > 1 else ""
            raise ValueError(
                f"pipeline_parallel_degree {self.pipeline_parallel_degree}{virtual} exceeds the "
                f"model's {block_count} blocks"
            )
        stages = []
        first = 0
        for index in range(degree):
            count = block_count // degree + (1 if index < block_count % degree else 0)
            group = LayerGroup(
                first_block=first,
                block_count=count,
                zero_stage=self.zero_stage or 0,
                activation_checkpointing=self.activation_checkpointing
                or ActivationCheckpointing.NONE,
                offload=self.offload or (),
            )
            stages.append(Stage(stage=index, layers=(group,)))
            first += count
        return tuple(stages)


def _edge_like(group: LayerGroup) -> EdgeChoice:
    kept = tuple(item for item in group.offload if item is not Offload.ACTIVATIONS)
    return EdgeChoice(zero_stage=group.zero_stage, offload=kept)


def _check_stages(stages: tuple[Stage, ...], stage_count: int) -> None:
    if len(stages) != stage_count:
        raise ValueError(
            f"{len(stages)} stages given where pipeline_parallel_degree x virtual stages is "
            f"{stage_count}; list every stage, or leave stages out"
        )
    expected_block = 0
    for index, stage in enumerate(stages):
        if stage.stage != index:
            raise ValueError(f"stages[{index}].stage is {stage.stage}; number the stages from 0 on")
        if not stage.layers:
            raise ValueError(f"stages[{index}].layers is empty; give every stage a block")
        for group in stage.layers:
            if group.first_block != expected_block:
                raise ValueError(
                    f"stages[{index}] has first_block {group.first_block} where block "
                    f"{expected_block} must follow; list all blocks in their order"
                )
            expected_block += group.block_count
