"""Gradients and optimizer states that lie on the host, or nowhere, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layers import layer_seconds, local_states, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.states import StateMemory, state_memory
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Optimizer, Stack
from planner.schema.strategy import Offload
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

BLOCK: LayerWorkload = model_workload(read_model("llama-3-8b")[1]).runs[0][0]
PARAMETERS = 218_112_000
HOSTED = Choices.of([Choice(zero_stage=0, offload=(Offload.OPTIMIZER,))])


def a_setting(**job: Any) -> Setting:
    """One device; a sequence of 65,536 tokens, whose backward hides whatever can be hidden."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x1xh100-sxm5-80gb")).kinds
    count = job.pop("micro_batch_count", 1)
    rows = Configurations.of([Configuration(micro_batch_count=count)])
    return setting(a_job(sequence_length=65536, **job), kind, rows)


def states(choices: Choices = HOSTED, **job: Any) -> StateMemory:
    here = a_setting(**job)
    return state_memory(local_states(BLOCK, here, no_extras(here)), choices, here)


def step_end(**job: Any) -> float:
    here = a_setting(**job)
    found = layer_seconds(
        BLOCK, "block", choices=HOSTED, setting=here, extras=no_extras(here)
    ).step_end_seconds
    return float(found.offload_exposed.item())


@pytest.mark.parametrize(
    ("job", "gradient_bytes"),
    [
        ({"stack": Stack.TORCH}, 4),
        ({"stack": Stack.TORCH, "offloaded_gradients": True}, 0),
        ({"stack": Stack.DEEPSPEED}, 0),
        ({"stack": Stack.DEEPSPEED, "offloaded_gradients": False}, 4),
        ({"stack": Stack.MEGATRON}, 4),
    ],
)
def test_gradients_follow_states_to_the_host_where_the_software_sends_them(
    job: dict[str, Any], gradient_bytes: int
) -> None:
    assert states(**job).gradients.item() == gradient_bytes * PARAMETERS
    here = Choices.of([Choice(zero_stage=0)])
    assert states(here, **job).gradients.item() == 4 * PARAMETERS


def test_a_gradient_is_held_until_its_update_alone() -> None:
    """Unless micro-batches add to it."""
    plain, spent = states(), states(steps_in_backward=True)
    assert spent.gradients.item() == 0.0
    assert spent.unreduced.item() - plain.unreduced.item() == plain.gradients.item()
    assert states(steps_in_backward=True, micro_batch_count=2).gradients.item() > 0.0


def test_paged_states_come_and_leave_once_a_step_and_the_device_updates() -> None:
    """Two bytes a parameter each way beside the update's own 24 x 18 / 38, less the norm's."""
    job = {"states_in_16_bits": True, "optimizer": Optimizer.ADAM8BIT, "paged_states": True}
    here = a_setting(**job)
    moved = 2 / here.hardware.to_device_bytes_per_second
    moved += 2 / here.hardware.from_device_bytes_per_second
    update = here.optimizer_seconds_per_parameter
    assert step_end(**job) == pytest.approx(PARAMETERS * (moved + update))


def test_states_that_are_paged_under_backward_slow_it_alone() -> None:
    job = {"states_in_16_bits": True, "optimizer": Optimizer.ADAM8BIT, "paged_states": True}
    here = a_setting(**job)
    update = PARAMETERS * here.optimizer_seconds_per_parameter
    hidden = step_end(steps_in_backward=True, **job) - update
    exposed = step_end(**job) - update
    assert hidden == pytest.approx(here.overlap.contention_ratio * exposed)


def test_the_host_updates_16_bits_in_half_the_time() -> None:
    """Gradients leave and parameters come back in 2 bytes each, and 14 of 28 are moved there."""
    here = a_setting(states_in_16_bits=True)
    links = 2 / here.hardware.from_device_bytes_per_second
    links += 2 / here.hardware.to_device_bytes_per_second
    host = 14 / (here.hardware.profile.host.optimizer_gb_per_second * 1e9)
    assert step_end(states_in_16_bits=True) == pytest.approx(PARAMETERS * (links + host))
