"""Held: the layers of a virtual stage, and its exchanges with its neighbours."""

from __future__ import annotations

from collections.abc import Iterator

from planner.cost.boundary import boundary_places
from planner.cost.layer_costs import CostTable
from planner.cost.priced import PricedStrategy, choice_of, edge_choice, edges_of
from planner.cost.stage import Boundary, HeldLayers
from planner.schema.strategy import LayerGroup


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
    """Return the exchange between virtual stage `before` and the next, as `stage` keeps it."""
    if not 0 <= before < len(priced.stages) - 1:
        return None
    sender, receiver = priced.rank_of(before), priced.rank_of(before + 1)
    if sender == receiver:
        return None
    last_block = priced.stages[before].layers[-1]
    block = _kind_of(last_block.first_block + last_block.block_count - 1, priced.prices.tables[0])
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
