"""What full checkpointing runs again: under torch up to the last thing that backward needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.compute import compute_seconds
from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layers import layer_seconds, no_extras
from planner.cost.model_parallel import ModelParallelSeconds, model_parallel_seconds
from planner.cost.products import product_seconds
from planner.cost.setting import Setting, setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Stack
from planner.schema.strategy import ActivationCheckpointing
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LENGTH = 65536  # so long that nothing waits for its host


def a_layer(model: str = "llama-3-8b") -> LayerWorkload:
    return model_workload(read_model(model)[1]).runs[0][0]


def a_setting(tensor: int = 1, **job: Any) -> Setting:
    """One sequence on one or several H100."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    row = Configuration(
        tensor_parallel_degree=tensor,
        data_parallel_shard_degree=8 // tensor,
        sequence_parallel=True,
    )
    return setting(a_job(sequence_length=LENGTH, **job), kind, Configurations.of([row]))


def spared(layer: LayerWorkload, here: Setting) -> float:
    """Return the seconds of forward that are not run again."""
    seconds = compute_seconds(layer, here)
    return float((seconds.forward - seconds.recompute_full).item())


def test_torch_stops_before_the_product_that_ends_a_block() -> None:
    layer, here = a_layer(), a_setting()
    (down,) = (gemm for gemm in layer.gemms if gemm.name == "ffn_down")
    tokens = np.array([[float(LENGTH)]])
    assert spared(layer, here) == pytest.approx(product_seconds(down, tokens, here).forward.item())


@pytest.mark.parametrize("stack", [Stack.MEGATRON, Stack.DEEPSPEED])
def test_other_stacks_run_all_of_a_block_again(stack: Stack) -> None:
    assert spared(a_layer(), a_setting(stack=stack)) == 0.0


def test_dropout_reads_what_the_last_product_puts_out() -> None:
    assert spared(a_layer(), a_setting(dropout=True)) == 0.0


@pytest.mark.parametrize("model", ["gemma-2-9b", "mixtral-8x7b"])
def test_a_norm_or_a_routers_weight_reads_what_the_last_product_puts_out(model: str) -> None:
    assert spared(a_layer(model), a_setting()) == 0.0


def rounds(here: Setting) -> ModelParallelSeconds:
    return model_parallel_seconds(a_layer(), "block", here, np.zeros((1, 1)))


def test_the_scatter_that_ends_a_block_is_spared_with_its_product() -> None:
    """Of two, and two gathers that take as long where nothing is copied beside."""
    torch, megatron = (
        rounds(a_setting(tensor=8, stack=stack, copied_rows=False))
        for stack in (Stack.TORCH, Stack.MEGATRON)
    )
    again, forward = torch.tensor_recompute_full.item(), torch.tensor_forward.item()
    assert again == pytest.approx(forward * 3 / 4)
    assert megatron.tensor_recompute_full.item() == megatron.tensor_forward.item()


@pytest.mark.parametrize(
    ("choice", "is_divided"),
    [
        (Choice(), True),
        (Choice(zero_stage=2), True),
        (Choice(zero_stage=3), False),
        (Choice(activation_checkpointing=ActivationCheckpointing.SELECTIVE), False),
        (Choice(activation_checkpointing=ActivationCheckpointing.FULL), False),
    ],
)
def test_weights_gradients_of_what_is_recomputed_or_freed_come_with_the_inputs(
    choice: Choice, is_divided: bool
) -> None:
    """Of products a third is weights' gradients; attention and norms have none."""
    here = a_setting()
    seconds = layer_seconds(
        a_layer(), "block", choices=Choices.of([choice]), setting=here, extras=no_extras(here)
    )
    share = float(seconds.micro_batch_seconds.weight_gradient_share.item())
    assert (0.05 < share < 1.0 / 3.0) if is_divided else share == 0.0
