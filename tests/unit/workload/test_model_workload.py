"""Model workload: the chain of layers that a graph becomes."""

from __future__ import annotations

import pytest

from planner.importers.models import model_names, read_model
from planner.schema.model import BlockRun, DenseFeedForward, Norm
from planner.workload.model import model_workload
from tests.builders import a_model


def test_runs_keep_their_order_and_length():
    (run,) = a_model().runs
    wide = run.block.model_copy(update={"feed_forward": DenseFeedForward(ffn_size=256)})
    graph = a_model(runs=(run, BlockRun(block=wide, block_count=2)))
    workload = model_workload(graph)
    assert [count for _, count in workload.runs] == [4, 2]
    assert workload.block_count == 6
    assert workload.runs[1][0].gemms[4].outer_size == 256


def test_embedding_multiplies_nothing():
    embedding = model_workload(a_model()).embedding
    assert embedding.gemms == ()
    assert embedding.forward_flop_per_token(128) == 0.0


def test_head_multiplies_by_the_vocabulary():
    head = model_workload(a_model()).head
    (product,) = head.layer.gemms
    assert (product.inner_size, product.outer_size, product.split) == (64, 256, "outer")
    assert head.vocabulary_size == 256


def test_head_follows_the_final_norm():
    rms, layer = model_workload(a_model()), model_workload(a_model(final_norm=Norm.LAYER))
    assert rms.head.layer.activations.none.replicated == 64
    assert rms.head.layer.activations.none.norm_copies == 2 * 64
    assert layer.head.layer.activations.none.replicated == 64
    assert layer.head.layer.activations.none.norm_copies == 0


def test_dense_blocks_choose_no_experts():
    assert model_workload(a_model()).runs[0][0].experts_per_token == 0


def test_routed_blocks_say_how_many_experts_a_token_chooses():
    workload = model_workload(read_model("qwen3-30b-a3b")[1])
    assert workload.runs[0][0].experts_per_token == 8


def test_deepseek_v3_is_three_dense_and_fifty_eight_routed_blocks():
    workload = model_workload(read_model("deepseek-v3")[1])
    assert [(layer.experts_per_token, count) for layer, count in workload.runs] == [(0, 3), (8, 58)]


@pytest.mark.parametrize("name", model_names())
def test_every_shipped_shape_becomes_a_workload_with_its_blocks(name):
    _, graph = read_model(name)
    workload = model_workload(graph)
    assert workload.block_count == graph.block_count
    assert workload.model_flop_per_token(1024) > 0.0
