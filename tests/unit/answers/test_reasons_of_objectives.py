"""What explains a plan speaks of what it was asked to be best at, and of the whole cluster."""

from __future__ import annotations

import pytest

from planner.answers.objection import why_not_degrees, why_not_strategy
from planner.answers.reasons import planned_of, reasons
from planner.planning import plan
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import cluster_document
from planner.schema.job import DegreeLimit, Objective
from planner.schema.plan import Infeasible, Plan
from planner.schema.reasons import Objection, Reasons
from planner.schema.strategy import Strategy
from planner.units import GIB
from tests.tight_requests import FEW_CHOICES, a_tight_cluster, a_tight_request


def answer(objective: Objective, *, memory_gib: float = 20.0, **limits: int) -> Plan | Infeasible:
    """The plan on four devices, with some degrees fixed, of a program that copies no rows."""
    fixed = {name: DegreeLimit(min=degree, max=degree) for name, degree in limits.items()}
    request = a_tight_request(
        limits=FEW_CHOICES.model_copy(update=fixed),
        cluster=a_tight_cluster(memory_bytes=memory_gib * GIB),
        objective=objective,
        copied_rows=False,
    )
    cluster = request.cluster.resolved
    given = cluster_document(cluster.model_dump(mode="json"), cluster)
    return plan(request.model, given, request.job.resolved)


def planned(objective: Objective, **changes: float) -> Plan:
    found = answer(objective, **changes)
    assert isinstance(found, Plan)
    return found


def explained(found: Plan) -> Reasons:
    return reasons(found, inquiry=Inquiry.within(60.0))


def peak_bytes(found: Plan) -> float:
    return max(stage.peak_memory_bytes for stage in found.prediction.stages)


@pytest.fixture(scope="module")
def lean() -> Plan:
    return planned(Objective.MEMORY)


def test_more_memory_changes_nothing_where_the_leanest_plan_leaves_some_free(lean):
    found = explained(lean)
    assert (found.objective, found.objective_value) == (Objective.MEMORY, peak_bytes(lean))
    (price,) = found.shadow_prices
    assert (price.saved_value, price.saved_seconds, price.proven) == (0.0, 0.0, True)
    assert price.reason.startswith("memory does not bind")


def test_the_runner_up_of_a_lean_plan_is_the_next_leanest_of_other_degrees(lean):
    own = (lean.strategy.tensor_parallel_degree, lean.strategy.pipeline_parallel_degree)
    pairs = [(t, p) for t in (1, 2, 4) for p in (1, 2, 4) if t * p <= 4 and (t, p) != own]
    others = [
        answer(Objective.MEMORY, tensor_parallel_degree=t, pipeline_parallel_degree=p)
        for t, p in pairs
    ]
    least = min(peak_bytes(other) for other in others if isinstance(other, Plan))
    rival = explained(lean).runner_up
    assert rival.objective_value == pytest.approx(least, rel=1e-3)
    assert rival.more_value == pytest.approx(rival.objective_value - peak_bytes(lean))
    assert rival.more_value > 0.0
    assert rival.proven


def test_a_price_of_memory_is_in_cost_where_cost_is_the_objective():
    cheap = planned(Objective.COST, memory_gib=11.0)
    found = explained(cheap)
    dearer, cheaper = cheap.prediction, planned(Objective.COST, memory_gib=12.0).prediction
    (price,) = found.shadow_prices
    assert price.saved_value == pytest.approx(
        dearer.cost_per_million_tokens - cheaper.cost_per_million_tokens
    )
    assert price.saved_value > 0.0
    assert found.runner_up.objective_value > dearer.cost_per_million_tokens


def test_a_price_of_memory_is_in_devices_where_few_devices_are_the_objective(few):
    found = explained(few)
    assert (found.device_count, found.cluster_device_count) == (2, 4)
    (price,) = found.shadow_prices
    assert (found.objective_value, price.objective_value_with_more) == (2.0, 2.0)
    assert price.saved_value == 0.0
    rival = found.runner_up
    assert (rival.objective_value, rival.more_value) == (2.0, 0.0)
    assert rival.step_seconds == pytest.approx(few.prediction.step_seconds.p50, rel=1e-3)


def test_a_plan_on_a_part_of_a_cluster_is_asked_about_the_whole():
    few = planned_of(planned(Objective.DEVICES))
    assert few.request.hardware.device_count == 2
    assert few.asked.hardware.device_count == 4


def test_a_cluster_that_cannot_be_read_again_is_the_plans_own():
    few = planned(Objective.DEVICES)
    lost = few.cluster.model_copy(update={"given": "my cluster"})
    alone = planned_of(few.model_copy(update={"cluster": lost}))
    assert alone.asked.hardware.device_count == 2


def why_not(found: Plan, **fixed: int) -> Objection:
    return why_not_degrees(planned_of(found), fixed, asked="x", inquiry=Inquiry.within(60.0))


@pytest.fixture(scope="module")
def few() -> Plan:
    """Two devices of so much memory that splitting layers and stages are all but as fast."""
    return planned(Objective.DEVICES, memory_gib=20.82)


def test_degrees_that_take_more_devices_than_the_plan_are_answered_on_the_whole_cluster(few):
    found = why_not(few, data_parallel_shard_degree=4)
    assert (found.verdict, found.device_count) == ("worse", 4)
    assert (found.objective_value, found.more_value, found.more_ratio) == (4.0, 2.0, 1.0)
    assert "has 4 devices, 2 devices (100.00%) more" in found.answer


def test_degrees_on_as_many_devices_are_answered_with_the_step(few):
    own = few.strategy.tensor_parallel_degree
    found = why_not(few, tensor_parallel_degree=3 - own)
    assert (found.verdict, found.device_count, found.more_value) == ("faster", 2, 0.0)
    assert "(0.03%) faster, but by simulation alone: its closed form" in found.answer


def test_illegal_degrees_are_refused_for_the_cluster_that_was_asked_about(few):
    assert "the cluster's 4 devices" in why_not(few, tensor_parallel_degree=3).answer


def test_a_strategy_for_another_part_of_the_cluster_is_held_against_the_plan(few):
    strategy = Strategy(
        tensor_parallel_degree=4, sequence_parallel=True, activation_checkpointing="full"
    )
    found = why_not_strategy(planned_of(few), strategy, asked="mine.json")
    assert (found.verdict, found.device_count) == ("worse", 4)


def test_degrees_that_take_more_memory_are_worse_for_a_lean_plan(lean):
    found = why_not(lean, tensor_parallel_degree=1, pipeline_parallel_degree=1)
    assert found.verdict == "worse"
    assert found.more_value == pytest.approx(found.objective_value - peak_bytes(lean))
    assert "on the fullest device" in found.answer


def test_the_cells_of_few_devices_are_of_the_whole_cluster(few):
    grid = reasons(
        few,
        inquiry=Inquiry.within(60.0),
        axes=("tensor_parallel_degree", "pipeline_parallel_degree"),
    ).heatmap
    assert (grid.objective, grid.rows, grid.columns) == (Objective.DEVICES, (1, 2, 4), (1, 2, 4))
    counts = {(cell.row, cell.column): cell.objective_value for cell in grid.cells}
    assert (counts[2, 1], counts[1, 2], counts[2, 2], counts[4, 1]) == (2.0, 2.0, 4.0, 4.0)
    assert grid.cells[-1].status == "illegal"
