"""Ranking: even strategies of a whole space by a rough price, so that a search can start well.

Embedding, head and boundaries are left out and stages taken as equal, so that thousands of
configurations with all their choices are ranked at once. Nothing is proven by it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.moves import Moves
from planner.cost.configuration import Choices, Configuration, Configurations, Floats, LayerChoices
from planner.cost.layer_costs import CostTable, LayerCosts
from planner.cost.schedule import in_flight, repeat_count
from planner.cost.table import cost_table
from planner.schema.strategy import V_SCHEDULES, PipelineSchedule

Start = tuple[int, int]
"""A place among the moves' configurations, and one among their choices of a block."""

CONFIGURATIONS_MOST = 3000


def ranked_starts(moves: Moves, *, most: int) -> list[Start]:
    """Return the even strategies that look fastest of those that look as if they fit."""
    count = len(moves.configurations)
    stride = -(-count // CONFIGURATIONS_MOST)
    places = range(0, count, stride)
    rows = [moves.configurations[place] for place in places]
    step = _rough_steps(moves, rows)
    order = np.argsort(step, axis=None, kind="stable")[:most]
    order = order[np.isfinite(step.ravel()[order])]
    found = zip(*np.unravel_index(order, step.shape), strict=True)
    return [(places[int(row)], int(choice)) for row, choice in found]


def _rough_steps(moves: Moves, rows: list[Configuration]) -> Floats:
    """Return seconds [configurations, choices], inf where the memory looks too small."""
    columns = Configurations.of(rows)
    edges = Choices.of(moves.edges[:1])
    choices = LayerChoices(blocks=Choices.of(moves.blocks), embedding=edges, head=edges)
    shape = np.array([_shape(row) for row in rows])
    request = moves.request
    job = request.job.resolved
    tables = [
        cost_table(request.workload, kind, job, configurations=columns, choices=choices)
        for kind in request.hardware.kinds
    ]
    steps = [_of_table(table, shape) for table in tables]
    return np.asarray(np.mean(steps, axis=0))


def _shape(row: Configuration) -> tuple[float, float, float]:
    """Return how often a rank's pace counts, what it has in flight, and the ranks."""
    degrees = {
        "pipeline_parallel_degree": row.pipeline_parallel_degree,
        "virtual_pipeline_degree": row.virtual_pipeline_degree,
        "micro_batch_count": row.micro_batch_count,
    }
    fill = 1.0 / row.virtual_pipeline_degree
    if row.pipeline_schedule in V_SCHEDULES:
        fill = 0.2
    if row.pipeline_schedule in {PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B}:
        fill = 1.0
    paces = repeat_count(row.pipeline_schedule, **degrees) + fill * row.pipeline_parallel_degree
    return paces, in_flight(row.pipeline_schedule, stage=0, **degrees), row.pipeline_parallel_degree


def _of_table(table: CostTable, shape: Floats) -> Floats:
    """Return seconds [configurations, choices] as if all devices were of the table's kind."""
    paces, flight, ranks = (shape[:, [column]] for column in range(3))
    pace = _sum(table, lambda costs: costs.micro_batch_seconds.total()) / ranks
    end = _sum(table, lambda costs: costs.step_end_seconds.total()) / ranks
    held = _sum(table, lambda costs: costs.bytes.static() + flight * costs.bytes.activations)
    transient = np.max([costs.bytes.transient for costs in table.blocks], axis=0)
    host = _sum(table, lambda costs: costs.bytes.host + flight * costs.bytes.host_activations)
    fits = (held / ranks + transient <= table.limits.live_capacity_bytes) & (
        host / ranks <= table.limits.host_capacity_bytes
    )
    return np.where(fits, paces * pace + end, np.inf)


def _sum(table: CostTable, column: Callable[[LayerCosts], Floats]) -> Floats:
    """Return the sum of a column over all blocks of the chain."""
    return np.asarray(sum(count * column(table.blocks[kind]) for kind, count in table.chain))
