"""Stage: the layers that one pipeline rank holds, their sums, and exchanges with neighbours.

Ranks are laid out stage after stage, so that stage r holds devices r S to (r + 1) S - 1, and a
device exchanges with the one in its place on the other stage. The narrowest level that any such
pair crosses sets the pace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from planner.cost.layer_costs import CostTable, LayerFigures, MemoryLimits
from planner.cost.price_list import PricedStrategy, choice_of, edge_choice, edges_of
from planner.cost.schedule import BoundaryShares, FillWeights, Holding, peak_activation_bytes
from planner.hardware import ClusterHardware
from planner.network import Level
from planner.schema.plan import MemoryBreakdown
from planner.schema.strategy import LayerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLayers:
    """`count` equal layers that a rank holds, and what one of them takes."""

    figures: LayerFigures
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """One exchange with a neighbour: seconds per micro-batch, and what the rank keeps for it.

    `sent_bytes` are per micro-batch in flight, `buffer_bytes` there throughout.
    """

    seconds: float
    sent_bytes: float
    buffer_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSchedule:
    """What the schedule makes of one rank.

    `in_flight` counts micro-batches of all that the rank holds, `holdings` by its virtual stages.
    """

    weights: FillWeights
    shares: BoundaryShares
    in_flight: float
    holdings: tuple[Holding, ...]

    def kept_bytes(self, kept: Sequence[float]) -> float:
        """Return the bytes of activations at the peak, from those of each virtual stage.

        `in_flight` is enough unless earlier virtual stages keep more than later ones.
        """
        return max(self.in_flight * sum(kept), peak_activation_bytes(self.holdings, kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStageSeconds:
    """Seconds of one micro-batch in one virtual stage; recompute counts as input gradient."""

    forward: float
    input_gradient: float
    weight_gradient: float

    @property
    def total(self) -> float:
        """Return the seconds of all three."""
        return self.forward + self.input_gradient + self.weight_gradient

    def by_kind(self) -> tuple[float, float, float, float]:
        """Return the seconds of each of `KINDS`; a whole backward takes both gradients' time."""
        backward = self.input_gradient + self.weight_gradient
        return self.forward, self.input_gradient, self.weight_gradient, backward


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals:
    """Seconds and bytes of one pipeline rank. `memory` sums to the peak."""

    micro_batch_seconds: dict[str, float]
    forward_seconds: float
    fill_seconds: float
    step_end_seconds: dict[str, float]
    memory: MemoryBreakdown
    host_bytes: float

    @property
    def pace_seconds(self) -> float:
        """Return t_r: the rank's seconds per micro-batch."""
        return sum(self.micro_batch_seconds.values())

    @property
    def end_seconds(self) -> float:
        """Return u_r: the rank's seconds once a step."""
        return sum(self.step_end_seconds.values())


def stage_totals(
    held: Sequence[Sequence[HeldLayers]],
    boundaries: Sequence[Boundary],
    *,
    schedule: RankSchedule,
    step_end_seconds: float,
    limits: MemoryLimits,
) -> StageTotals:
    """Return what the rank that holds `held`, by virtual stage, takes."""
    every = [layers for stage in held for layers in stage]
    micro_batch = _sums([(h.count, h.figures.micro_batch_seconds) for h in every])
    exchange = sum(boundary.seconds for boundary in boundaries)
    paced = schedule.shares.pace * exchange
    micro_batch["pipeline_point_to_point"] += paced
    step_end = _sums([(h.count, h.figures.step_end_seconds) for h in every])
    step_end["optimizer"] += step_end_seconds
    fill = sum(h.count * schedule.weights.of_one(*h.figures.split_seconds) for h in every)
    buffers = sum(schedule.in_flight * b.sent_bytes + b.buffer_bytes for b in boundaries)
    kept = [_sum_bytes(stage, "activations") for stage in held]
    return StageTotals(
        micro_batch_seconds=micro_batch,
        forward_seconds=sum(h.count * h.figures.split_seconds[0] for h in every) + paced / 2.0,
        fill_seconds=fill + schedule.shares.fill * exchange,
        step_end_seconds=step_end,
        memory=_memory(every, limits, activations=schedule.kept_bytes(kept), boundary=buffers),
        host_bytes=_sum_bytes(every, "host")
        + schedule.in_flight * _sum_bytes(every, "host_activations"),
    )


def virtual_stage_seconds(held: Sequence[HeldLayers]) -> VirtualStageSeconds:
    """Return the forward, input-gradient and weight-gradient seconds of one micro-batch."""
    parts = [h.figures.split_seconds for h in held]
    counts = [h.count for h in held]
    forward, inputs, weights = (
        sum(count * part[place] for count, part in zip(counts, parts, strict=True))
        for place in range(3)
    )
    return VirtualStageSeconds(forward=forward, input_gradient=inputs, weight_gradient=weights)


def _sums(parts: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return the sum of each part, so many times each, by name."""
    return {name: sum(count * own[name] for count, own in parts) for name in parts[0][1]}


def _sum_bytes(held: Sequence[HeldLayers], name: str) -> float:
    return sum(h.count * h.figures.bytes[name] for h in held)


def _memory(
    held: Sequence[HeldLayers], limits: MemoryLimits, *, activations: float, boundary: float
) -> MemoryBreakdown:
    """Return the peak by cause: what is always held, activations in flight, largest transient."""
    largest = max((h.figures.bytes for h in held), key=itemgetter("transient"))
    transient, logits = largest["transient"], largest["logits"]
    parts = {
        name: _sum_bytes(held, name)
        for name in ("parameters", "gradients", "optimizer", "communication_buffers")
    }
    parts["communication_buffers"] += boundary
    live = sum(parts.values()) + activations + transient
    return MemoryBreakdown(
        **parts,
        activations=activations,
        logits=logits,
        workspace=transient - logits,
        runtime=limits.runtime_bytes + limits.slack_ratio * live,
    )


def held_layers(index: int, priced: PricedStrategy) -> list[HeldLayers]:
    """Return what a virtual stage holds: its blocks, and embedding and head where they sit."""
    table = priced.prices.tables[priced.rank_kinds[priced.rank_of(index)]]
    first_edge, last_edge = (
        priced.prices.edges[edge_choice(edge)] for edge in edges_of(priced.strategy)
    )
    layers: list[HeldLayers] = []
    if index == 0:
        layers.append(
            HeldLayers(figures=priced.prices.figures(table.embedding, first_edge), count=1)
        )
    for group in priced.stages[index].layers:
        layers.extend(_group_layers(group, table, priced))
    if index == len(priced.stages) - 1:
        layers.append(HeldLayers(figures=priced.prices.figures(table.head, last_edge), count=1))
    return layers


def boundaries(index: int, priced: PricedStrategy) -> Iterator[Boundary]:
    """Yield the exchanges of a virtual stage with the one before it and the one after it.

    There is none at an end of the chain, and none between virtual stages of one rank.
    """
    for before in (index - 1, index):
        boundary = boundary_after(before, priced, stage=index)
        if boundary is not None:
            yield boundary


def boundary_after(before: int, priced: PricedStrategy, *, stage: int) -> Boundary | None:
    """Return the exchange between virtual stage `before` and the next, as `stage` keeps it.

    What an embedding alone hands on is as wide as what the first block does.
    """
    if not 0 <= before < len(priced.stages) - 1:
        return None
    sender, receiver = priced.rank_of(before), priced.rank_of(before + 1)
    if sender == receiver:
        return None
    held = sum(own.block_count for own in priced.stages[: before + 1])
    block = _kind_of(max(held - 1, 0), priced.prices.tables[0])
    places = boundary_places(
        priced.prices.hardware, priced.rank_kinds, stage=sender, other=receiver
    )
    fixed = priced.prices.tables[priced.rank_kinds[priced.rank_of(stage)]].fixed
    return Boundary(
        seconds=max(
            float(priced.prices.tables[kind].fixed.boundary_seconds[0, block, level])
            for kind, level in places
        ),
        sent_bytes=float(fixed.sent_bytes[0, block]) if stage == before else 0.0,
        buffer_bytes=float(fixed.buffer_bytes[0, block]),
    )


def _kind_of(block: int, table: CostTable) -> int:
    """Return the kind of a block of the chain."""
    end = 0
    for kind, count in table.chain:
        end += count
        if block < end:
            return kind
    raise ValueError(f"the model has no block {block}")


def _group_layers(group: LayerGroup, table: CostTable, priced: PricedStrategy) -> list[HeldLayers]:
    """Return the group's blocks by the kind that each is of."""
    held = []
    first_of_run = 0
    choice = priced.prices.choices[choice_of(group)]
    end = group.first_block + group.block_count
    for kind, count in table.chain:
        inside = min(end, first_of_run + count) - max(group.first_block, first_of_run)
        if inside > 0:
            figures = priced.prices.figures(table.blocks[kind], choice)
            held.append(HeldLayers(figures=figures, count=inside))
        first_of_run += count
    return held


def crossed_level(levels: Sequence[Level], *, stage_size: int, stage: int, other: int) -> int:
    """Return the place in `levels` of the outermost link between two stages of `stage_size`.

    All pairs lie within one domain exactly if the first device of the lower stage and the last of
    the higher do: the first device's peer is already beyond the lower stage's last.
    """
    if stage == other:
        return 0
    first = min(stage, other) * stage_size
    last = (max(stage, other) + 1) * stage_size - 1
    for place, level in enumerate(levels[:-1]):
        if first // level.device_count == last // level.device_count:
            return place
    return len(levels) - 1


def boundary_places(
    hardware: ClusterHardware, kinds: Sequence[int], *, stage: int, other: int
) -> tuple[tuple[int, int], ...]:
    """Return (kind, level) of each end of the exchange between two stages; `kinds` are by stage.

    Within one kind both ends are the same link; between kinds each end has its outermost link,
    and the slower one sets the pace.
    """
    kind, peer = kinds[stage], kinds[other]
    if kind != peer:
        return tuple((k, len(hardware.kinds[k].levels) - 1) for k in (kind, peer))
    own = hardware.kinds[kind]
    size = own.device_count // kinds.count(kind)
    ends = (kinds[:stage].count(kind), kinds[:other].count(kind))
    place = crossed_level(own.levels, stage_size=size, stage=ends[0], other=ends[1])
    return ((kind, place),)
