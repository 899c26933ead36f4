"""Training configurations: what reading one needs to know, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import DocumentError
from planner.schema.model import ModelGraph
from planner.schema.strategy import (
    ActivationCheckpointing,
    LayerGroup,
    Offload,
    Stage,
    Strategy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The model and the devices that a configuration is for; most do not say them.

    The batch and the micro-batch are what was given beside the file and holds in its place.
    `folder` is where the file lies, for files that it names.
    """

    graph: ModelGraph
    device_count: int
    global_batch_size: int | None = None
    micro_batch_size: int | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """A strategy, the job's fields that the file says, and what it leaves open.

    `names` has the file's own name of each of the strategy's fields, for messages.
    """

    format: str
    strategy: Strategy
    job: Mapping[str, object]
    assumptions: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How all blocks are treated; the first `first_full` of each virtual stage are recomputed.

    Every `every_full`-th block of the model is recomputed in full where it is not 0, and the first
    `offloaded_blocks` of the model have their activations in host memory.
    """

    zero_stage: int = 0
    activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing.NONE
    offload: tuple[Offload, ...] = ()
    first_full: int = 0
    every_full: int = 0
    offloaded_blocks: int = 0

    def stages(self, counts: Sequence[int]) -> tuple[Stage, ...]:
        """Return stages of so many blocks with the treatment of each."""
        stages: list[Stage] = []
        block = 0
        for index, count in enumerate(counts):
            groups = tuple(self._group(block + place, place) for place in range(count))
            stages.append(Stage(stage=index, layers=merged(groups)))
            block += count
        return tuple(stages)

    def _group(self, block: int, place: int) -> LayerGroup:
        kept = self.activation_checkpointing
        if place < self.first_full or (self.every_full and (block + 1) % self.every_full == 0):
            kept = ActivationCheckpointing.FULL
        moved = [Offload.ACTIVATIONS] if block < self.offloaded_blocks else []
        return LayerGroup(
            first_block=block,
            block_count=1,
            zero_stage=self.zero_stage,
            activation_checkpointing=kept,
            offload=(*self.offload, *moved),
        )


def merged(groups: Sequence[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Return the groups with neighbours that are treated alike as one."""
    found: list[LayerGroup] = []
    for group in groups:
        alike = {"first_block": 0, "block_count": 1}
        if found and found[-1].model_copy(update=alike) == group.model_copy(update=alike):
            count = found[-1].block_count + group.block_count
            found[-1] = found[-1].model_copy(update={"block_count": count})
        else:
            found.append(group)
    return tuple(found)


def even_counts(blocks: int, stages: int) -> list[int]:
    """Return the blocks of each stage, spread evenly, earlier stages taking the remainder."""
    return [blocks // stages + (1 if index < blocks % stages else 0) for index in range(stages)]


def data_parallel_degree(setting: Setting, degrees: Mapping[str, int]) -> int:
    """Return the ranks that are left for data parallelism; `degrees` are by the file's names.

    Raises:
        DocumentError: if the degrees do not divide the devices.
    """
    product = 1
    for degree in degrees.values():
        product *= degree
    if setting.device_count % product:
        above = {name: degree for name, degree in degrees.items() if degree > 1}
        words = " x ".join(f"{name} {degree}" for name, degree in above.items())
        shown = f"and the others, {words} = {product}, do" if len(above) > 1 else "does"
        raise DocumentError(
            f"{shown} not divide the cluster's {setting.device_count} devices",
            field=next(iter(above)),
            value=product,
            remedy="give the cluster that the file is for, or degrees that divide it",
        )
    return setting.device_count // product


def require_counts(counts: Sequence[int], setting: Setting, *, field_name: str) -> None:
    """Raise unless the stages hold the model's blocks, and one each at least.

    Raises:
        DocumentError: naming the field that divides them.
    """
    if sum(counts) != setting.graph.block_count:
        raise DocumentError(
            f"has {sum(counts)} blocks, and the model has {setting.graph.block_count}",
            field=field_name,
            value=", ".join(map(str, counts[:16])),
            remedy="give the model that the file is for, or correct the stages",
        )
    if min(counts) < 1:
        raise DocumentError(
            "has a stage without a block, which is not modelled: the embedding and the loss go "
            "with a block's stage",
            field=field_name,
            value=", ".join(map(str, counts[:16])),
            remedy="give every stage a block",
        )


def require_one_decoder(setting: Setting, *, pipeline: int, field_name: str) -> None:
    """Raise if a program whose stages are of one decoder's layers has a pipeline of other blocks.

    Raises:
        DocumentError: naming the field of the pipeline's degree.
    """
    graph = setting.graph
    if pipeline == 1:
        return
    if graph.tower_block_count or graph.cross_sources() or graph.is_hybrid:
        raise DocumentError(
            f"cuts {graph.name} where no block of it ends: its {graph.block_count} blocks are not "
            "the layers of one decoder, which the program counts",
            field=field_name,
            value=pipeline,
            remedy="use 1, or write the stages as a strategy of your own",
        )


def require_models(field_name: str, given: int, found: int) -> None:
    """Raise unless a number of the model in the file is that of the model that it is used with.

    Raises:
        DocumentError: naming the field.
    """
    if given != found:
        raise DocumentError(
            f"is not the model's, {found}",
            field=field_name,
            value=given,
            remedy="give the model that the file is for",
        )
