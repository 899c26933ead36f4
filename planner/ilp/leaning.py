"""Leaning: cuts of given loads at which activations are counted virtual stage by virtual stage.

Earlier virtual stages of a rank hold more micro-batches than later ones, while the search counts
all of a rank's as if they held alike. Which of the ways to cut a chain into the same loads takes
the least memory is found by dynamic programming over the ranks (`planner.ilp.walk`): the largest
excess of a rank over its memory is made least, each kind of layer at the mean of its choices.
"""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Configuration, Floats, Integers
from planner.cost.holdings import peak_holdings
from planner.cost.schedule import in_flight
from planner.ilp.chunks import cuts_by_chunks
from planner.ilp.edges import loads_at_cuts
from planner.ilp.instance import Assignment, Instance, evaluate
from planner.ilp.levels import everything
from planner.ilp.patterns import TooManyError


def leanest_cuts(
    instance: Instance, assignment: Assignment, configuration: Configuration
) -> tuple[int, ...] | None:
    """Return the cuts of the assignment's loads with the least memory, None if none is found."""
    over = evaluate(instance, assignment).memory_bytes - instance.capacity_bytes
    kept = _mean_kept(instance, assignment)
    shape = {
        "pipeline_parallel_degree": configuration.pipeline_parallel_degree,
        "virtual_pipeline_degree": configuration.virtual_pipeline_degree,
        "micro_batch_count": configuration.micro_batch_count,
    }
    schedule = configuration.pipeline_schedule

    def excess(rank: int, counts: Integers) -> Floats:
        moments = np.array(peak_holdings(schedule, rank=rank, **shape))
        alike = in_flight(schedule, stage=rank, **shape)
        by_part = counts @ kept[rank]
        more = (by_part @ moments.T).max(axis=1) - alike * by_part.sum(axis=1)
        return np.asarray(over[rank] + np.maximum(more, 0.0))

    loads = loads_at_cuts(instance, assignment.cuts)
    try:
        return cuts_by_chunks(instance, everything(instance), loads, excess=excess)
    except TooManyError:
        return None


def _mean_kept(instance: Instance, assignment: Assignment) -> Floats:
    """Return what a layer keeps for a micro-batch, [stages, free kinds]."""
    found = np.zeros((instance.stage_count, len(instance.free_kinds)))
    for column, k in enumerate(instance.free_kinds):
        counts = assignment.counts[k]
        total = (counts * instance.kinds[k].kept).sum(axis=1)
        found[:, column] = total / np.maximum(counts.sum(axis=1), 1)
    return found
