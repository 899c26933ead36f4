"""What explains a plan speaks of what it was asked to be best at, and of the whole cluster."""

from __future__ import annotations

import pytest

from planner.inquiry import Inquiry
from planner.planning import plan
from planner.reasons import planned_of, reasons
from planner.resolution import cluster_document
from planner.schema.job import DegreeLimit, Objective
from planner.schema.plan import Infeasible, Plan
from planner.schema.reasons import Reasons
from planner.units import GIB
from tests.tight_requests import FEW_CHOICES, a_tight_cluster, a_tight_request


def answer(objective: Objective, *, memory_gib: float = 20.0, **limits: int) -> Plan | Infeasible:
    """The plan on four devices, with some degrees fixed."""
    fixed = {name: DegreeLimit(min=degree, max=degree) for name, degree in limits.items()}
    request = a_tight_request(
        limits=FEW_CHOICES.model_copy(update=fixed),
        cluster=a_tight_cluster(memory_bytes=memory_gib * GIB),
        objective=objective,
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


def test_a_price_of_memory_is_in_devices_where_few_devices_are_the_objective():
    few = planned(Objective.DEVICES)
    found = explained(few)
    assert (found.device_count, found.cluster_device_count) == (2, 4)
    (price,) = found.shadow_prices
    assert (found.objective_value, price.objective_value_with_more) == (2.0, 2.0)
    assert price.saved_value == 0.0
    rival = found.runner_up
    assert (rival.objective_value, rival.more_value) == (2.0, 0.0)
    assert rival.slower_seconds > 0.0


def test_a_plan_on_a_part_of_a_cluster_is_asked_about_the_whole():
    few = planned_of(planned(Objective.DEVICES))
    assert few.request.hardware.device_count == 2
    assert few.asked.hardware.device_count == 4


def test_a_cluster_that_cannot_be_read_again_is_the_plans_own():
    few = planned(Objective.DEVICES)
    lost = few.cluster.model_copy(update={"given": "my cluster"})
    alone = planned_of(few.model_copy(update={"cluster": lost}))
    assert alone.asked.hardware.device_count == 2
