"""The leanest cuts hold the same loads as others, and no other cuts of these take less memory."""

from __future__ import annotations

import pytest

from planner.cost.configuration import Configuration
from planner.cost.schedule import in_flight, peak_activation_bytes, peak_holdings
from planner.ilp.construction_heuristic import filling_of_cuts
from planner.ilp.incumbent import leanest_cuts
from planner.ilp.instance import Assignment, Instance, evaluate, load_of_cuts
from planner.schema.strategy import PipelineSchedule
from tests.oracle import every_cut
from tests.small_chains import seeded_instance

MICRO_BATCHES = 6


def configuration_of(instance: Instance) -> Configuration:
    """A configuration whose ranks hold the virtual stages of the instance."""
    stages = instance.stage_count
    return Configuration(
        pipeline_parallel_degree=stages,
        virtual_pipeline_degree=len(instance.holders) // stages,
        pipeline_schedule=PipelineSchedule.ZB_V
        if is_folded(instance)
        else PipelineSchedule.INTERLEAVED,
        micro_batch_count=MICRO_BATCHES,
    )


def largest_excess(
    instance: Instance, assignment: Assignment, cuts: tuple[int, ...], row: Configuration
) -> float:
    """The most that a rank exceeds its memory by, every layer at the mean of its kind's choices.

    The last rank of a V is left out: its two parts follow one another, cut anywhere.
    """
    over = evaluate(instance, assignment).memory_bytes - instance.capacity_bytes
    shape = {
        "pipeline_parallel_degree": row.pipeline_parallel_degree,
        "virtual_pipeline_degree": row.virtual_pipeline_degree,
        "micro_batch_count": row.micro_batch_count,
    }
    found = []
    for rank in range(instance.stage_count - is_folded(instance)):
        kept = []
        for part, holder in enumerate(instance.holders):
            if holder == rank:
                blocks = instance.block_kinds[cuts[part] : cuts[part + 1]].tolist()
                kept.append(sum(mean_kept(instance, assignment, rank, kind) for kind in blocks))
        moments = peak_holdings(row.pipeline_schedule, rank=rank, **shape)
        alike = in_flight(row.pipeline_schedule, stage=rank, **shape)
        apart = max(peak_activation_bytes(moments, kept), alike * sum(kept))
        found.append(float(over[rank]) + apart - alike * sum(kept))
    return max(found)


def is_folded(instance: Instance) -> bool:
    """Whether ranks hold parts there and back."""
    return instance.holders[instance.stage_count] != 0


def mean_kept(instance: Instance, assignment: Assignment, rank: int, kind: int) -> float:
    """What a layer of a kind keeps on a rank for one micro-batch."""
    counts = assignment.counts[kind][rank]
    return float(counts @ instance.kinds[kind].kept[rank]) / float(counts.sum())


@pytest.mark.parametrize("folded", [False, True])
def test_no_cuts_of_the_same_loads_take_less_memory(folded: bool) -> None:
    better = found = 0
    for seed in range(900):
        instance = seeded_instance(seed)
        if instance.stage_count == 1 or not instance.has_several_parts:
            continue
        if is_folded(instance) != folded:
            continue
        row = configuration_of(instance)
        *_, cuts = every_cut(instance.block_count, len(instance.holders))  # heavy in front
        assignment = Assignment(counts=filling_of_cuts(instance, cuts).counts, cuts=cuts)
        loads = load_of_cuts(instance, cuts)
        leanest = leanest_cuts(instance, assignment, row)
        assert leanest is not None, seed
        assert load_of_cuts(instance, leanest) == loads, seed
        least = min(
            largest_excess(instance, assignment, other, row)
            for other in every_cut(instance.block_count, len(instance.holders))
            if load_of_cuts(instance, other) == loads
        )
        own = largest_excess(instance, assignment, leanest, row)
        assert own == pytest.approx(least), seed
        found += 1
        better += own < largest_excess(instance, assignment, cuts, row) - 1e-9
    assert found > 20
    assert better > 0
