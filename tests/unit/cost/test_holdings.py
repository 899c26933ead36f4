"""Holdings: micro-batches held, virtual stage by virtual stage."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from planner.cost.orders import rank_orders
from planner.cost.schedule import in_flight, most_held, peak_activation_bytes, peak_holdings
from planner.schema.strategy import V_SCHEDULES, PipelineSchedule


def cases() -> Iterator[tuple[PipelineSchedule, int, int, int]]:
    """Schedules with degrees, virtual stages and micro-batches that torch runs."""
    for degree in (2, 3, 4, 5, 8):
        for count in (1, 2, degree, degree + 1, 2 * degree - 1, 2 * degree, 5 * degree):
            yield PipelineSchedule.GPIPE, degree, 1, count
            yield PipelineSchedule.ONE_F_ONE_B, degree, 1, count
            yield PipelineSchedule.ZB_V, degree, 2, count
            if count >= 2 * degree:
                yield PipelineSchedule.DUALPIPE_V, degree, 2, count
            if count % max(1, count // degree) == 0:
                for virtual in (1, 2, 3, 4):
                    yield PipelineSchedule.INTERLEAVED, degree, virtual, count


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_the_closed_form_in_flight_is_what_the_orders_hold(schedule: PipelineSchedule) -> None:
    """On every rank and exactly."""
    for case, degree, virtual, count in cases():
        if case is not schedule:
            continue
        orders = rank_orders(
            schedule,
            pipeline_parallel_degree=degree,
            virtual_pipeline_degree=virtual,
            micro_batch_count=count,
        )
        closed = [
            in_flight(
                schedule,
                micro_batch_count=count,
                pipeline_parallel_degree=degree,
                virtual_pipeline_degree=virtual,
                stage=rank,
            )
            for rank in range(degree)
        ]
        assert closed == [most_held(order) for order in orders], (degree, virtual, count)


def test_peak_holdings_by_hand() -> None:
    """Rank 0 of four under ZB-V: seven on the way down, then one up, or eight before it."""
    held = peak_holdings(
        PipelineSchedule.ZB_V,
        pipeline_parallel_degree=4,
        virtual_pipeline_degree=2,
        micro_batch_count=64,
        rank=0,
    )
    assert held == ((7, 1), (8, 0))


def test_a_heavier_early_virtual_stage_keeps_more_than_the_mean_says() -> None:
    """Rank 0 of four under ZB-V, five blocks down and four up: 8 x 5, where 4 x 9 is the mean's."""
    holdings = ((7, 1), (8, 0))
    assert peak_activation_bytes(holdings, (5.0, 4.0)) == 40.0
    assert peak_activation_bytes(holdings, (4.0, 5.0)) == 33.0


def test_a_lone_rank_holds_one_of_each() -> None:
    held = peak_holdings(
        PipelineSchedule.INTERLEAVED,
        pipeline_parallel_degree=1,
        virtual_pipeline_degree=3,
        micro_batch_count=8,
        rank=0,
    )
    assert held == ((1, 1, 1),)


def test_a_short_order_has_every_moment_of_a_long_one() -> None:
    """The count that `peak_holdings` cuts off changes nothing."""
    for schedule, degree, virtual, count in cases():
        if schedule is PipelineSchedule.INTERLEAVED and count % degree:
            continue
        shape = {"pipeline_parallel_degree": degree, "virtual_pipeline_degree": virtual}
        orders = rank_orders(schedule, micro_batch_count=count, **shape)
        for rank, order in enumerate(orders):
            held = peak_holdings(schedule, micro_batch_count=count, rank=rank, **shape)
            most = max(sum(moment) for moment in held) / len(held[0])
            assert most == most_held(order), (schedule, degree, virtual, count, rank)


@pytest.mark.parametrize("schedule", [PipelineSchedule.INTERLEAVED, *sorted(V_SCHEDULES)])
def test_in_flight_covers_virtual_stages_that_keep_more_the_later_they_come(
    schedule: PipelineSchedule,
) -> None:
    """Activation bytes that do not fall along a rank: the mean times the sum is enough."""
    generator = np.random.default_rng(11)
    for case, degree, virtual, count in cases():
        if case is not schedule:
            continue
        shape = {"pipeline_parallel_degree": degree, "virtual_pipeline_degree": virtual}
        bytes_kept = np.sort(generator.uniform(0.0, 3.0, virtual))
        for rank in range(degree):
            held = peak_holdings(schedule, micro_batch_count=count, rank=rank, **shape)
            peak = peak_activation_bytes(held, tuple(bytes_kept))
            flight = in_flight(schedule, micro_batch_count=count, stage=rank, **shape)
            assert peak <= flight * bytes_kept.sum() * (1.0 + 1e-12)


def test_a_lone_virtual_stage_holds_what_its_order_holds() -> None:
    """Its peak is known without the order, however many micro-batches there are."""
    checked = 0
    for schedule, degree, virtual, count in cases():
        if virtual != 1:
            continue
        shape = {"pipeline_parallel_degree": degree, "virtual_pipeline_degree": virtual}
        orders = rank_orders(schedule, micro_batch_count=count, **shape)
        for rank, order in enumerate(orders):
            held = peak_holdings(schedule, micro_batch_count=count, rank=rank, **shape)
            assert held == ((most_held(order),),), (schedule, degree, count, rank)
            checked += 1
    assert checked > 300
