"""States that all have 16 bits: no copies in 32, whatever the stack's own are."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.setting import Setting, setting
from planner.cost.states import local_parameters, state_memory
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.schema.job import Optimizer, Precision, Stack
from planner.workload.layer import ParameterCounts
from tests.builders import a_job


def a_setting(**job: Any) -> Setting:
    """Eight H100 that share the states."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of([Configuration(data_parallel_shard_degree=8)])
    return setting(a_job(**job), kind, rows)


@pytest.mark.parametrize("stack", list(Stack))
@pytest.mark.parametrize(
    ("zero_stage", "expected"),
    [(0, (2, 2, 4)), (1, (2, 2, 0.5)), (2, (2, 0.25, 0.5)), (3, (0.25, 0.25, 0.5))],
)
def test_a_parameter_its_gradient_and_two_moments_have_two_bytes_each(
    stack: Stack, zero_stage: int, expected: tuple[float, float, float]
) -> None:
    here = a_setting(stack=stack, states_in_16_bits=True)
    counts = ParameterCounts(sharded=1_000_000, replicated=0)
    choices = Choices.of([Choice(zero_stage=zero_stage)])
    memory = state_memory(local_parameters(counts, here), choices, here)
    found = (memory.parameters.item(), memory.gradients.item(), memory.optimizer.item())
    assert found == pytest.approx(tuple(1e6 * each for each in expected))


def test_moments_in_8_bits_stay_so() -> None:
    here = a_setting(states_in_16_bits=True, optimizer=Optimizer.ADAM8BIT)
    assert here.optimizer_state_bytes == 2.0


def test_a_step_moves_18_bytes_in_place_of_38() -> None:
    assert a_setting(gradient_clipping=True).optimizer_traffic_bytes == 38.0
    here = a_setting(gradient_clipping=True, states_in_16_bits=True)
    assert here.optimizer_traffic_bytes == pytest.approx(18.0)
    assert here.reduce_bytes == 2


def test_a_job_in_32_bits_has_its_states_in_32() -> None:
    here = a_setting(precision=Precision.FP32, states_in_16_bits=True)
    assert (here.optimizer_state_bytes, here.reduce_bytes) == (8.0, 4)
