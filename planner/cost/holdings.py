"""Holdings: how many micro-batches' activations a rank holds, virtual stage by virtual stage.

Activations are held from a forward to the end of its weight gradient. When that is most depends on
the order of the rank's actions alone, and not on how long they take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from planner.cost.orders import ActionKind, Order, interleaved_order, interleaved_round, rank_order
from planner.cost.schedule import in_flight
from planner.schema.strategy import V_SCHEDULES, PipelineSchedule

Holding = tuple[int, ...]
"""Micro-batches held at one moment, by the rank's virtual stages in the order of the chain."""


def most_held(order: Order) -> float:
    """Return the most micro-batches held, in all of the rank's layers.

    One of the rank's v virtual stages counts 1/v, as if they held alike.
    """
    return max((sum(held) / len(held) for held in _moments(order)), default=0.0)


@lru_cache(maxsize=4096)
def peak_holdings(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
    rank: int,
) -> tuple[Holding, ...]:
    """Return the moments of a rank of which no other holds as much in every virtual stage.

    `peak_activation_bytes` is what they come to. Where the bytes of a micro-batch do not fall along
    the rank's virtual stages, that is no more than `schedule.in_flight` times their sum, and where
    they fall it is more: earlier virtual stages hold more micro-batches. One alone holds what the
    schedule has in flight.

    Raises:
        ValueError: as `planner.cost.orders.rank_orders`.
    """
    if pipeline_parallel_degree == 1:
        return ((1,) * virtual_pipeline_degree,)
    if virtual_pipeline_degree == 1:
        held = in_flight(
            schedule,
            micro_batch_count=micro_batch_count,
            pipeline_parallel_degree=pipeline_parallel_degree,
            virtual_pipeline_degree=virtual_pipeline_degree,
            stage=rank,
        )
        return ((int(held),),)
    order = _short_order(
        schedule,
        rank,
        pipeline_parallel_degree=pipeline_parallel_degree,
        virtual_pipeline_degree=virtual_pipeline_degree,
        micro_batch_count=micro_batch_count,
    )
    return _largest(set(_moments(order)))


def peak_activation_bytes(holdings: Sequence[Holding], bytes_kept: Sequence[float]) -> float:
    """Return the most that a rank keeps: the largest of sum_j held_j a_j over its moments.

    `bytes_kept` is a_j, what each of the rank's virtual stages keeps per micro-batch.
    """
    return max(
        sum(held * kept for held, kept in zip(moment, bytes_kept, strict=True))
        for moment in holdings
    )


def _short_order(
    schedule: PipelineSchedule,
    rank: int,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
) -> Order:
    """Return the rank's order with just so many micro-batches that it has every moment.

    Once the pipeline is full, moments repeat: those of the interleaved schedule from the third
    round on, those of V-shaped ones from the 2 p-th micro-batch on.
    """
    degree, count = pipeline_parallel_degree, micro_batch_count
    if schedule is PipelineSchedule.INTERLEAVED:
        length = interleaved_round(degree, count)
        return interleaved_order(
            rank,
            degree,
            virtual_pipeline_degree=virtual_pipeline_degree,
            micro_batch_count=min(count, 3 * length),
            round_length=length,
        )
    return rank_order(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual_pipeline_degree,
        micro_batch_count=min(count, 2 * degree) if schedule in V_SCHEDULES else count,
        rank=rank,
    )


def _moments(order: Order) -> Iterator[Holding]:
    """Yield what is held after each forward."""
    stages = sorted({action.virtual_stage for action in order})
    place = {stage: index for index, stage in enumerate(stages)}
    held = [0] * len(stages)
    for action in order:
        if action.kind is ActionKind.FORWARD:
            held[place[action.virtual_stage]] += 1
            yield tuple(held)
        elif action.kind is not ActionKind.INPUT_GRADIENT:
            held[place[action.virtual_stage]] -= 1


def _largest(moments: set[Holding]) -> tuple[Holding, ...]:
    return tuple(
        sorted(
            held
            for held in moments
            if not any(
                other != held and all(a >= b for a, b in zip(other, held, strict=True))
                for other in moments
            )
        )
    )
