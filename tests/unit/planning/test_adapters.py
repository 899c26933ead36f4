"""Plans for adapters: a model that is too large to be trained whole can be adapted."""

from __future__ import annotations

from planner.planning import estimate, plan
from planner.proof.verify import verify
from planner.schema.job import Adapters
from planner.schema.plan import Infeasible, Plan
from planner.units import GIB
from tests.tight_requests import a_tight_cluster, a_tight_request

TWO_OF_16_GIB = a_tight_cluster(devices_per_node=2, memory_bytes=16.0 * GIB)


def an_answer(adapters: Adapters | None) -> Plan | Infeasible:
    """1.6 G parameters on two devices: 18 bytes each are 13 GiB a device, without activations."""
    request = a_tight_request(cluster=TWO_OF_16_GIB, adapters=adapters)
    return plan(request.model, request.cluster, request.job.resolved)


def test_adapters_leave_the_optimizer_next_to_nothing_to_hold() -> None:
    adapted, whole = an_answer(Adapters(rank=16)), an_answer(None)
    assert isinstance(adapted, Plan)
    verify(adapted)
    assert max(stage.memory_bytes.optimizer for stage in adapted.prediction.stages) < 0.2 * GIB
    if isinstance(whole, Plan):
        assert adapted.prediction.step_seconds.p50 < whole.prediction.step_seconds.p50


def test_an_estimate_of_its_strategy_is_the_plans_prediction() -> None:
    adapted = an_answer(Adapters(rank=16, base_bits=4))
    assert isinstance(adapted, Plan)
    found = estimate(adapted.model, adapted.cluster, adapted.job.resolved, adapted.strategy)
    assert found.prediction.step_seconds == adapted.prediction.step_seconds
