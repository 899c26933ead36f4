"""From the cost table's columns on: instances, both bounds and the program, against all plans."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from planner.cost.configuration import Configurations
from planner.ilp.bounds import memory_bound, quick_bounds
from planner.ilp.instance import instance_of
from planner.ilp.optimise import optimise
from planner.ilp.solver import SolverName, Status
from planner.schema.strategy import PipelineSchedule
from tests.oracle import Chain, LayerOption, configuration_of, least_step, table_of
from tests.small_chains import chain_families, chains

many = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def optimum_step(chain: Chain, solver: SolverName) -> float | None:
    """The step of the program's optimum, None where it is proven that nothing fits."""
    instance = instance_of(table_of([chain]), 0, configuration_of(chain))
    optimum = optimise(instance, cutoff_seconds=None, solver=solver, seconds=60.0)
    assert optimum.status in {Status.OPTIMAL, Status.INFEASIBLE}
    return optimum.step_seconds


@pytest.mark.parametrize("solver", list(SolverName))
@many
@given(chain=chains())
def test_program_of_a_table_row_finds_what_exhaustive_search_finds(
    solver: SolverName, chain: Chain
) -> None:
    """Up to three runs, three stages and six blocks, both schedules, one micro-batch included."""
    expected = least_step(chain)
    assert optimum_step(chain, solver) == (
        None if expected is None else pytest.approx(expected, rel=1e-9)
    )


@many
@given(family=chain_families())
def test_no_bound_of_any_row_exceeds_its_optimum(family: tuple[Chain, ...]) -> None:
    """A bound above the optimum would prune it silently; inf is right only where nothing fits."""
    table, configurations = table_of(family), [configuration_of(chain) for chain in family]
    quick = quick_bounds(table, Configurations.of(configurations))
    for row, chain in enumerate(family):
        expected = least_step(chain)
        best = math.inf if expected is None else expected * (1 + 1e-9)
        assert quick[row] <= best
        assert memory_bound(instance_of(table, row, configurations[row])) <= best


def chain_with(**changes: object) -> Chain:
    """Three blocks of 1 s and no bytes on one stage, between layers that cost nothing."""
    nothing, block = (LayerOption(pace=0),), (LayerOption(pace=1),)
    plain = Chain(
        stage_count=1,
        micro_batch_count=1,
        embedding=nothing,
        runs=((3, block),),
        head=nothing,
        capacity=100,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", list(SolverName))
def test_uneven_stages_and_mixed_choices_balance_a_heavy_head(solver: SolverName) -> None:
    """Five blocks, kept (2 s, 3 bytes) or recomputed (3 s, 1 byte), a head of 4 s, 8 bytes.

    Three and two: 2 + 2 + 3 = 7 s in 7 bytes, and 2 + 2 + 4 = 8 s: 15 + 9 x 8 = 87. Four and one:
    2 + 2 + 3 + 3 = 10 s in 8 bytes, and 6 s: 16 + 9 x 10 = 106.
    """
    block = (LayerOption(pace=2, static=3), LayerOption(pace=3, static=1))
    chain = chain_with(
        stage_count=2,
        micro_batch_count=10,
        runs=((5, block),),
        head=(LayerOption(pace=4),),
        capacity=8,
    )
    assert optimum_step(chain, solver) == pytest.approx(87.0)


@pytest.mark.parametrize("solver", list(SolverName))
def test_a_single_micro_batch_counts_every_stage_once(solver: SolverName) -> None:
    """With m = 1 the maxima of paces weigh nothing: 3 x 1 s on two stages, and a step end of 5."""
    chain = chain_with(stage_count=2, stage_end=5)
    assert optimum_step(chain, solver) == pytest.approx(8.0)


@pytest.mark.parametrize("solver", list(SolverName))
def test_the_largest_transient_counts_once(solver: SolverName) -> None:
    """Three layers of 2 bytes share one transient of 4: 10 bytes hold them, 9 do not."""
    runs = ((3, (LayerOption(pace=1, static=2, transient=4),)),)
    assert optimum_step(chain_with(runs=runs, capacity=10), solver) == pytest.approx(3.0)
    assert optimum_step(chain_with(runs=runs, capacity=9), solver) is None


@pytest.mark.parametrize("solver", list(SolverName))
def test_host_memory_limits_offload(solver: SolverName) -> None:
    """A layer is offloaded (3 s, 2 host bytes) or held (1 s, 5 bytes); device bytes hold one.

    Two must be offloaded, which takes 4 host bytes: 1 + 3 + 3.
    """
    options = (LayerOption(pace=1, static=5), LayerOption(pace=3, host=2))
    chain = chain_with(runs=((3, options),), capacity=9, host_capacity=4)
    assert optimum_step(chain, solver) == pytest.approx(7.0)
    assert optimum_step(replace(chain, host_capacity=3), solver) is None


def test_light_blocks_before_heavy_ones_are_not_called_infeasible() -> None:
    """The heavy pair fits on the last stage alone, so light blocks must be left for the second."""
    chain = chain_with(
        stage_count=3,
        micro_batch_count=3,
        runs=((4, (LayerOption(pace=1),)), (2, (LayerOption(pace=1, activation=5),))),
        boundary_bytes=1,
        capacity=12,
    )
    bound = memory_bound(instance_of(table_of([chain]), 0, configuration_of(chain)))
    assert least_step(chain) == 10.0
    assert 6.0 <= bound <= 10.0


@pytest.mark.parametrize("solver", list(SolverName))
@pytest.mark.parametrize("cutoff", [96.0001, 97.0, 100.0, 150.0])
def test_no_cutoff_above_the_optimum_is_called_infeasible(
    solver: SolverName, cutoff: float
) -> None:
    """With its presolve on, HiGHS 1.15.1 fails at 96.0001 and finds nothing below 100."""
    light = (
        LayerOption(pace=2, end=4, static=2, transient=2, host=3),
        LayerOption(pace=1, end=18, static=2, activation=2),
    )
    single = (
        LayerOption(pace=8, end=17, static=6, transient=5),
        LayerOption(pace=6, end=5, static=5, activation=1, transient=5, host=3),
        LayerOption(pace=3, end=6, static=4, activation=1),
        LayerOption(pace=5, end=14, static=1, transient=2, host=3),
    )
    heavy = (
        LayerOption(pace=5, end=6, static=3, host=3),
        LayerOption(pace=7, end=5, static=4),
        LayerOption(pace=9, end=19, activation=2),
        LayerOption(pace=5, end=6, transient=2),
    )
    chain = Chain(
        stage_count=4,
        micro_batch_count=5,
        schedule=PipelineSchedule.GPIPE,
        embedding=(LayerOption(pace=4, end=11, static=1, activation=1, transient=5),),
        runs=((3, light), (1, single), (2, heavy)),
        head=(
            LayerOption(pace=4, end=9, static=6, activation=1, transient=5),
            LayerOption(pace=7, end=10, static=2, activation=1),
        ),
        boundary_pace=1,
        boundary_bytes=1,
        stage_end=2,
        capacity=51,
        host_capacity=5,
    )
    instance = instance_of(table_of([chain]), 0, configuration_of(chain))
    optimum = optimise(instance, cutoff_seconds=cutoff, solver=solver, seconds=60.0)
    assert least_step(chain) == 96.0
    assert optimum.step_seconds == pytest.approx(96.0)
