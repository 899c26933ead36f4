"""Offloaded activations move beside compute or in its way, as the stack has it, by hand."""

from __future__ import annotations

import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layer_costs import MicroBatchSeconds
from planner.cost.layers import layer_seconds, no_extras
from planner.cost.setting import setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Stack
from planner.schema.strategy import ActivationCheckpointing, Offload
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA: LayerWorkload = model_workload(read_model("llama-3-8b")[1]).runs[0][0]
KEPT = 8192 * 4096 * 2  # bytes of a block's input: tokens, hidden size, bf16
SHARD = 218_112_000 / 8  # parameters of a block, on each of eight devices
DOWN, UP = 46.8e9, 54.8e9  # bytes per second of an H100's host link
MOVED = KEPT / DOWN + KEPT / UP  # 2.66 ms; a block's forward alone takes longer


def seconds(
    stack: Stack, *offload: Offload, device_count: int = 8, **job: bool
) -> MicroBatchSeconds:
    """Price a checkpointed block of Llama-3-8B, sharded over H100s, on 8,192 tokens."""
    cluster = cluster_from_short_form(f"1x{device_count}xh100-sxm5-80gb")
    (kind,) = cluster_hardware(cluster).kinds
    rows = Configurations.of([Configuration(data_parallel_shard_degree=device_count)])
    here = setting(a_job(sequence_length=8192, stack=stack, **job), kind, rows)
    full = ActivationCheckpointing.FULL
    choices = Choices.of([Choice(zero_stage=3, activation_checkpointing=full, offload=offload)])
    found = layer_seconds(LLAMA, "block", choices=choices, setting=here, extras=no_extras(here))
    return found.micro_batch_seconds


def test_torch_waits_for_activations_both_ways() -> None:
    """64 MiB at 46.8 GB/s and at 54.8: 1.434 and 1.225 ms, on the stream that computes."""
    found = seconds(Stack.TORCH, Offload.ACTIVATIONS)
    assert found.offload_exposed.item() == pytest.approx(2.65857e-3, rel=1e-5)
    more = found.total().item() - seconds(Stack.TORCH).total().item()
    assert more == pytest.approx(MOVED)


def test_a_job_says_where_activations_move_beside_compute() -> None:
    """A fifth of it slows torch's compute; DeepSpeed's waits for it all."""
    beside = seconds(Stack.TORCH, Offload.ACTIVATIONS, overlapped_offload=True)
    assert beside.offload_exposed.item() == pytest.approx(0.2 * MOVED)
    waits = seconds(Stack.DEEPSPEED, Offload.ACTIVATIONS, overlapped_offload=False)
    assert waits.offload_exposed.item() == pytest.approx(MOVED)


def test_what_leaves_is_part_of_forward_and_what_comes_back_of_backward() -> None:
    """1.434 ms are added to forward."""
    with_it, without = seconds(Stack.TORCH, Offload.ACTIVATIONS), seconds(Stack.TORCH)
    forward, usual = ((s.total() * s.forward_share).item() for s in (with_it, without))
    assert forward - usual == pytest.approx(KEPT / DOWN)


@pytest.mark.parametrize("stack", [Stack.MEGATRON, Stack.DEEPSPEED])
def test_others_move_activations_under_compute(stack: Stack) -> None:
    """Compute is slowed by 8 % of what hides beneath it, and nothing else is left."""
    found = seconds(stack, Offload.ACTIVATIONS).offload_exposed.item()
    assert found == pytest.approx(0.08 * MOVED)


def test_torch_fetches_parameters_under_compute_all_the_same() -> None:
    """4 bytes each, twice, and of gradients back: a fifth of it slows compute.

    Activations are waited for.
    """
    both = seconds(Stack.TORCH, Offload.PARAMETERS, Offload.ACTIVATIONS).offload_exposed.item()
    assert both == pytest.approx(0.2 * SHARD * (2 * 4 / UP + 4 / DOWN) + MOVED)


def test_a_rank_alone_waits_for_its_parameters() -> None:
    """218 M of them come in 4 bytes twice, and as many gradients leave; DeepSpeed's do later."""
    alone = seconds(Stack.TORCH, Offload.PARAMETERS, device_count=1).offload_exposed.item()
    assert alone == pytest.approx(8 * SHARD * (2 * 4 / UP + 4 / DOWN))
    others = seconds(Stack.DEEPSPEED, Offload.PARAMETERS, device_count=1).offload_exposed.item()
    assert others < 0.5 * alone


def step_end(*offload: Offload) -> float:
    """Return what a block of Llama-3-8B adds to the end of a step for moving its states."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of([Configuration(data_parallel_shard_degree=8)])
    here = setting(a_job(sequence_length=8192, stack=Stack.TORCH), kind, rows)
    choices = Choices.of([Choice(zero_stage=3, offload=offload)])
    found = layer_seconds(LLAMA, "block", choices=choices, setting=here, extras=no_extras(here))
    return float(found.step_end_seconds.offload_exposed.item())


def test_parameters_alone_meet_their_gradients_on_the_device_once_a_step() -> None:
    """Gradients left in backward and come back, fp32 parameters come and leave: 27.3 M of each."""
    assert step_end() == 0.0
    assert step_end(Offload.PARAMETERS) == pytest.approx(SHARD * (4 / DOWN + 8 / UP))
