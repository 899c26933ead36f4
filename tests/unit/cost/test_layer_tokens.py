"""Layers are priced by their own tokens, by those that they read, and by what crosses a cut."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from planner.cost.compute import compute_seconds
from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layer_costs import LayerCosts
from planner.cost.layers import layer_costs, no_extras
from planner.cost.model_parallel import model_parallel_seconds
from planner.cost.setting import Setting, boundary_elements, layer_tokens, setting, source_tokens
from planner.hardware import cluster_hardware
from planner.schema.model import Block, BlockRun, CrossAttention, ModelGraph, RunPart
from planner.schema.strategy import ActivationCheckpointing
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_job, a_model

CHOICES = Choices.of(
    [Choice(zero_stage=1, activation_checkpointing=item) for item in ActivationCheckpointing]
)


def a_setting(sequence_length: int, **degrees: Any) -> Setting:
    """One configuration on eight H100."""
    hardware = cluster_hardware(a_cluster())
    rows = Configurations.of([Configuration(**degrees)])
    return setting(a_job(sequence_length=sequence_length), hardware.kinds[0], rows)


def a_block(**attention: Any) -> Block:
    """The block of the tiny model."""
    (run,) = a_model().runs
    changed = run.block.attention.model_copy(update=attention)
    return run.block.model_copy(update={"attention": changed})


def reading(source_tokens_per_sequence: int) -> ModelGraph:
    """An encoder of so many tokens, and a decoder that reads it."""
    cross = CrossAttention(
        head_count=4,
        key_value_head_count=2,
        head_size=16,
        source_width=64,
        source_tokens_per_sequence=source_tokens_per_sequence,
    )
    block = a_block().model_copy(update={"cross_attention": cross})
    encoder = BlockRun(
        block=a_block(causal=False),
        block_count=2,
        part=RunPart.ENCODER,
        tokens_per_sequence=source_tokens_per_sequence,
    )
    return a_model(runs=(encoder, BlockRun(block=block, block_count=2)))


def costs(layer: LayerWorkload, priced: Setting) -> LayerCosts:
    """The layer's costs under each checkpointing."""
    return layer_costs(layer, "block", choices=CHOICES, setting=priced, extras=no_extras(priced))


@pytest.mark.parametrize(
    "degrees",
    [
        {"micro_batch_size": 3},
        {"tensor_parallel_degree": 2, "sequence_parallel": True},
        {"tensor_parallel_degree": 2, "context_parallel_degree": 2},
    ],
)
def test_a_layer_of_512_tokens_costs_what_it_costs_in_a_job_of_512(degrees):
    """Its job has 4,096: no price may take the job's tokens for the layer's."""
    layer = model_workload(a_model()).runs[0][0]
    own = replace(layer, tokens_per_sequence=512)
    among, alone = costs(own, a_setting(4096, **degrees)), costs(layer, a_setting(512, **degrees))
    for part in fields(LayerCosts):
        first, second = getattr(among, part.name), getattr(alone, part.name)
        for item in fields(first):
            assert np.array_equal(getattr(first, item.name), getattr(second, item.name)), item.name


def test_tokens_of_layer_and_source_are_divided_by_context_ranks():
    layer = model_workload(reading(600)).runs[1][0]
    priced = a_setting(4096, micro_batch_size=2, context_parallel_degree=4)
    assert layer_tokens(layer, priced).item() == 2 * 4096 / 4
    assert source_tokens(layer.sources[0], priced).item() == 2 * 600 / 4


def test_boundary_of_an_encoder_is_its_rows_and_the_text_that_waits():
    layers = [layer for layer, _ in model_workload(reading(600)).runs]
    priced = a_setting(4096, micro_batch_size=2, context_parallel_degree=4)
    elements = [boundary_elements(layer, priced).item() for layer in layers]
    assert elements == [2 * (600 + 4096) * 64 / 4] * 2


def test_a_cross_attention_keeps_its_keys_and_values_for_every_source_token():
    """2 x 32 elements of 2 bytes a token, halved by two tensor-parallel ranks."""
    short, long = (model_workload(reading(count)).runs[1][0] for count in (600, 1600))
    priced = a_setting(4096, tensor_parallel_degree=2)
    kept = [costs(layer, priced).bytes.activations[0] for layer in (short, long)]
    by_choice = dict(zip(ActivationCheckpointing, kept[1] - kept[0], strict=True))
    assert by_choice[ActivationCheckpointing.NONE] == 1000 * 2 * 32 * 2 / 2
    assert by_choice[ActivationCheckpointing.FULL] == 0.0


def test_a_cross_attention_s_products_and_scores_take_their_time():
    plain = model_workload(a_model()).runs[0][0]
    read = model_workload(reading(600)).runs[1][0]
    more = model_workload(reading(6000)).runs[1][0]
    priced = a_setting(4096)
    seconds = [compute_seconds(layer, priced).forward.item() for layer in (plain, read, more)]
    assert seconds[0] < seconds[1] < seconds[2]


def test_keys_that_ranks_split_reduce_the_source_s_gradient_and_nothing_forward():
    layer = model_workload(reading(600)).runs[1][0]
    without = replace(layer, sources=())
    priced = a_setting(4096, tensor_parallel_degree=2)
    nothing = np.zeros((1, 1))
    read = model_parallel_seconds(layer, "block", priced, nothing)
    alone = model_parallel_seconds(without, "block", priced, nothing)
    assert read.tensor_forward.item() == alone.tensor_forward.item()
    assert read.tensor_backward.item() > alone.tensor_backward.item()


def test_a_cross_attention_reduces_its_own_output_in_both_directions():
    """Three row-split products of a reading block, two of a plain one."""
    plain = model_workload(a_model()).runs[0][0]
    layer = replace(model_workload(reading(600)).runs[1][0], sources=())
    priced = a_setting(4096, tensor_parallel_degree=2)
    nothing = np.zeros((1, 1))
    three = model_parallel_seconds(layer, "block", priced, nothing).tensor_forward.item()
    two = model_parallel_seconds(plain, "block", priced, nothing).tensor_forward.item()
    assert three == pytest.approx(1.5 * two, rel=1e-12)
