"""Strategy: shorthand spelled out, and contradictions refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import DocumentError
from planner.schema.strategy import (
    ActivationCheckpointing,
    EdgeChoice,
    LayerGroup,
    Offload,
    Stage,
    Strategy,
)


def two_stages(*block_counts: int) -> tuple[Stage, ...]:
    """Return one stage per count, blocks in order."""
    first = 0
    stages = []
    for index, count in enumerate(block_counts):
        group = LayerGroup(first_block=first, block_count=count)
        stages.append(Stage(stage=index, layers=(group,)))
        first += count
    return tuple(stages)


def test_defaults_are_one_device():
    assert Strategy().world_size == 1


def test_world_size_is_the_product_of_the_degrees_but_not_of_expert_parallel():
    strategy = Strategy(
        tensor_parallel_degree=2,
        pipeline_parallel_degree=3,
        context_parallel_degree=5,
        expert_parallel_degree=7,
        data_parallel_replicate_degree=11,
        data_parallel_shard_degree=13,
    )
    assert strategy.world_size == 2 * 3 * 5 * 11 * 13


def test_data_parallel_degree_stands_for_shards():
    strategy = Strategy(data_parallel_degree=4)
    assert (strategy.shard_degree, strategy.replicate_degree) == (4, 1)


def test_data_parallel_degree_beside_its_parts_is_refused():
    with pytest.raises(ValueError, match="beside the shard or replicate degree; leave one out"):
        Strategy(data_parallel_degree=4, data_parallel_shard_degree=4)


@pytest.mark.parametrize(
    "flat", [{"zero_stage": 1}, {"activation_checkpointing": "full"}, {"offload": []}]
)
def test_flat_key_beside_stages_is_refused(flat):
    with pytest.raises(ValueError, match="stages and the flat key"):
        Strategy(stages=two_stages(4), **flat)


def test_blocks_are_spread_evenly_with_the_remainder_first():
    resolved = Strategy(pipeline_parallel_degree=3).resolved(block_count=8, global_batch_size=4)
    assert [stage.block_count for stage in resolved.stages or ()] == [3, 3, 2]
    assert [stage.layers[0].first_block for stage in resolved.stages or ()] == [0, 3, 6]


def test_flat_keys_hold_for_every_stage_and_the_edges():
    strategy = Strategy(
        pipeline_parallel_degree=2,
        zero_stage=3,
        activation_checkpointing=ActivationCheckpointing.FULL,
        offload=(Offload.OPTIMIZER, Offload.ACTIVATIONS),
    ).resolved(block_count=4, global_batch_size=4)
    groups = [group for stage in strategy.stages or () for group in stage.layers]
    assert {group.zero_stage for group in groups} == {3}
    assert {group.activation_checkpointing.value for group in groups} == {"full"}
    assert strategy.embedding == EdgeChoice(zero_stage=3, offload=(Offload.OPTIMIZER,))


def test_micro_batches_follow_from_the_batch():
    strategy = Strategy(data_parallel_shard_degree=4, micro_batch_size=2)
    assert strategy.resolved(block_count=1, global_batch_size=64).micro_batch_count == 8


def test_batch_that_does_not_divide_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"global_batch_size 10 is not a multiple .* = 4"):
        Strategy(data_parallel_shard_degree=4).resolved(block_count=1, global_batch_size=10)


def test_more_stages_than_blocks_is_refused():
    with pytest.raises(ValueError, match="pipeline_parallel_degree 5 exceeds the model's 4"):
        Strategy(pipeline_parallel_degree=5).resolved(block_count=4, global_batch_size=1)


def test_stages_that_hold_another_number_of_blocks_are_refused():
    strategy = Strategy(pipeline_parallel_degree=2, stages=two_stages(2, 3))
    with pytest.raises(ValueError, match="stages hold 5 blocks, but the model has 4"):
        strategy.resolved(block_count=4, global_batch_size=1)


def test_number_of_stages_must_be_the_pipeline_degree():
    with pytest.raises(ValueError, match=r"2 stages given where .* is 3"):
        Strategy(pipeline_parallel_degree=3, stages=two_stages(2, 2))


def test_gap_between_layer_groups_is_refused():
    groups = (LayerGroup(first_block=0, block_count=1), LayerGroup(first_block=2, block_count=1))
    with pytest.raises(ValueError, match="first_block 2 where block 1 must follow"):
        Strategy(stages=(Stage(stage=0, layers=groups),))


def test_stage_out_of_order_is_refused():
    one, other = two_stages(1, 1)
    with pytest.raises(ValueError, match=r"stages\[0\]\.stage is 1; number the stages"):
        Strategy(pipeline_parallel_degree=2, stages=(other, one))


def test_empty_stage_is_refused():
    with pytest.raises(ValueError, match="give every stage a block"):
        Strategy(stages=(Stage(stage=0, layers=()),))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensor_parallel_degree", 0),
        ("tensor_parallel_degree", -8),
        ("tensor_parallel_degree", 2.5),
        ("pipeline_schedule", "fastest"),
        ("zero_stage", 4),
        ("offload", ["disk"]),
        ("micro_batch_size", 0),
    ],
)
def test_value_outside_its_field_is_named(field, value):
    with pytest.raises(DocumentError) as caught:
        Strategy.from_fields({field: value}, source="s.json")
    assert caught.value.field.startswith(field)


@given(block_count=st.integers(1, 200), degree=st.integers(1, 64))
def test_even_spread_holds_every_block_once_and_differs_by_at_most_one(block_count, degree):
    strategy = Strategy(pipeline_parallel_degree=degree)
    if degree > block_count:
        with pytest.raises(ValueError, match="exceeds"):
            strategy.resolved(block_count=block_count, global_batch_size=1)
        return
    stages = strategy.resolved(block_count=block_count, global_batch_size=1).stages or ()
    counts = [stage.block_count for stage in stages]
    assert sum(counts) == block_count
    assert max(counts) - min(counts) <= 1


@given(degree=st.sampled_from([1, 2, 4]), zero=st.integers(0, 3))
def test_resolving_twice_changes_nothing(degree, zero):
    once = Strategy(pipeline_parallel_degree=degree, zero_stage=zero).resolved(
        block_count=4, global_batch_size=8
    )
    assert once.resolved(block_count=4, global_batch_size=8) == once
