"""Techniques of strategies, counted by hand."""

import numpy as np
import pytest

from planner.cost.configuration import Configuration, Configurations
from planner.schema.strategy import EdgeChoice, LayerGroup, PipelineSchedule, Stage, Strategy
from planner.space.complexity import complexity, configuration_complexity, even_counts, features


def resolved(**fields: object) -> Strategy:
    return Strategy(**fields).resolved(block_count=8, global_batch_size=64)


def staged(*stages: tuple[LayerGroup, ...], **fields: object) -> Strategy:
    own = tuple(Stage(stage=place, layers=layers) for place, layers in enumerate(stages))
    return resolved(stages=own, pipeline_parallel_degree=len(stages), **fields)


def group(first: int, count: int, **fields: object) -> LayerGroup:
    return LayerGroup(first_block=first, block_count=count, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ()),
        ({"data_parallel_degree": 8, "zero_stage": 3, "activation_checkpointing": "full"}, ()),
        ({"tensor_parallel_degree": 2, "sequence_parallel": True}, ("tensor parallelism",)),
        ({"context_parallel_degree": 4}, ("context parallelism",)),
        ({"expert_parallel_degree": 4, "data_parallel_degree": 4}, ("expert parallelism",)),
        (
            {"data_parallel_shard_degree": 2, "data_parallel_replicate_degree": 2},
            ("replicas of shard groups",),
        ),
        ({"data_parallel_replicate_degree": 8}, ()),
        ({"pipeline_parallel_degree": 3}, ("a pipeline",)),
        (
            {
                "pipeline_parallel_degree": 2,
                "virtual_pipeline_degree": 2,
                "pipeline_schedule": "interleaved_1f1b",
            },
            ("a pipeline", "virtual stages"),
        ),
        (
            {"pipeline_parallel_degree": 2, "pipeline_schedule": "zb_v"},
            ("a pipeline", "virtual stages", "the schedule zb_v"),
        ),
        (
            {"offload": ("optimizer", "activations"), "zero_stage": 2},
            ("offload of optimizer", "offload of activations"),
        ),
    ],
)
def test_uniform_strategies_have_the_techniques_of_their_degrees(fields, expected):
    assert features(resolved(**fields)) == expected


def test_stages_that_are_not_spread_evenly_count():
    assert features(staged((group(0, 4),), (group(4, 4),))) == ("a pipeline",)
    assert features(staged((group(0, 5),), (group(5, 3),))) == (
        "a pipeline",
        "stages of unequal length",
    )
    assert even_counts(8, 3) == (3, 3, 2)
    uneven = staged((group(0, 2),), (group(2, 3),), (group(5, 3),))
    assert "stages of unequal length" in features(uneven)


def test_each_further_choice_of_layers_counts():
    mixed = staged(
        (
            group(0, 2, zero_stage=1),
            group(2, 2, zero_stage=2, activation_checkpointing="full"),
            group(4, 4, zero_stage=2, offload=("optimizer",)),
        ),
        embedding=EdgeChoice(zero_stage=3),
        head=EdgeChoice(zero_stage=1),
    )
    assert features(mixed) == (
        "ZeRO 2 beside 1",
        "ZeRO 3 beside 1",
        "no checkpointing beside full",
        "offload of optimizer",
        "offload of optimizer by some layers alone",
    )
    assert complexity(mixed) == 5


def test_the_ends_need_not_offload_activations():
    whole = staged((group(0, 8, offload=("activations",)),))
    assert features(whole) == ("offload of activations",)


def test_configurations_count_what_their_strategies_do():
    rows = [
        Configuration(),
        Configuration(tensor_parallel_degree=2, pipeline_parallel_degree=2),
        Configuration(
            pipeline_parallel_degree=2,
            virtual_pipeline_degree=2,
            pipeline_schedule=PipelineSchedule.DUALPIPE_V,
            context_parallel_degree=2,
            expert_parallel_degree=2,
            data_parallel_shard_degree=2,
            data_parallel_replicate_degree=2,
        ),
    ]
    counted = configuration_complexity(Configurations.of(rows))
    np.testing.assert_array_equal(counted, [0, 2, 6])
