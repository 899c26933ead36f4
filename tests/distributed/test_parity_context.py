"""Ranks that share sequences train as one process does, by a ring and by exchanging heads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import cases, check_parity
from tests.distributed.plans import mixed_stages, stages

CP2 = {"context_parallel_degree": 2, "micro_batch_size": 4}
CP4 = {"context_parallel_degree": 4, "micro_batch_size": 4}
EXCHANGED = {"context_parallel_kind": "all_to_all"}

ON_TWO_RANKS: dict[str, dict[str, Any]] = {
    "ring2": CP2,
    "exchange2": {**CP2, **EXCHANGED},
    "ring2-zero3-full": {**CP2, "zero_stage": 3, "activation_checkpointing": "full"},
    "exchange2-zero2-selective": {
        **CP2,
        **EXCHANGED,
        "zero_stage": 2,
        "activation_checkpointing": "selective",
    },
}

ON_FOUR_RANKS: dict[str, dict[str, Any]] = {
    "ring4-zero1": {**CP4, "zero_stage": 1},
    "exchange4-zero3": {**CP4, **EXCHANGED, "zero_stage": 3},
    "ring2-dp2-mixed-layer-groups": {
        **CP2,
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "stages": mixed_stages(
            [
                {"block_count": 1, "zero_stage": 0},
                {"block_count": 1, "zero_stage": 1, "activation_checkpointing": "full"},
                {"block_count": 1, "zero_stage": 2, "activation_checkpointing": "selective"},
                {"block_count": 1, "zero_stage": 3},
            ]
        ),
    },
    "ring2-tp2-sp": {**CP2, "tensor_parallel_degree": 2, "sequence_parallel": True},
    "ring2-pp2-uneven": {
        **CP2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "stages": stages(3, 1, zero_stage=3, activation_checkpointing="full"),
    },
}

LONG_ON_FOUR_RANKS: dict[str, dict[str, Any]] = {
    "ring2-zb_v-zero2": {
        **CP2,
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "zb_v",
        "micro_batch_size": 2,
        "zero_stage": 2,
    },
    "exchange2-interleaved": {
        **CP2,
        **EXCHANGED,
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 3,
        "pipeline_schedule": "interleaved_1f1b",
        "micro_batch_size": 2,
    },
    "ring2-hsdp": {
        **CP2,
        "data_parallel_replicate_degree": 2,
        "zero_stage": 3,
        "micro_batch_size": 2,
    },
    "exchange2-tp2": {**CP2, **EXCHANGED, "tensor_parallel_degree": 2, "zero_stage": 2},
    "exchange2-pp2-gpipe": {
        **CP2,
        **EXCHANGED,
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "gpipe",
        "micro_batch_size": 2,
    },
}


ON_EIGHT_RANKS: dict[str, dict[str, Any]] = {
    "ring2-tp2-sp-pp2": {
        **CP2,
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "activation_checkpointing": "selective",
    },
    "ring4-hsdp": {
        **CP4,
        "data_parallel_replicate_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
    "exchange4-tp2-zero3": {
        **CP4,
        **EXCHANGED,
        "tensor_parallel_degree": 2,
        "zero_stage": 3,
    },
}


@pytest.mark.distributed
@pytest.mark.parametrize(
    "strategy", cases(ON_TWO_RANKS, always={"ring2-zero3-full", "exchange2-zero2-selective"})
)
def test_two_ranks_that_share_sequences_train_as_one_process_does(
    two_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy))


@pytest.mark.distributed
@pytest.mark.parametrize(
    "strategy", cases(ON_FOUR_RANKS, always={*ON_FOUR_RANKS} - {"ring4-zero1"})
)
def test_four_ranks_that_share_sequences_train_as_one_process_does(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy))


@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["ring", "all_to_all"])
def test_tied_embeddings_stay_one_weight_where_ranks_share_sequences(
    four_ranks: RankGroup, kind: str
) -> None:
    strategy = {
        **CP2,
        "context_parallel_kind": kind,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 1,
    }
    check_parity(four_ranks.run("parity", strategy=strategy, kind="tied"))


@pytest.mark.distributed
def test_zero_shards_over_data_and_context_ranks(four_ranks: RankGroup) -> None:
    """Of the head's 256 rows each of two shard x two context ranks has 64."""
    strategy = {**CP2, "data_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 3}
    for rank in four_ranks.run("held", strategy=strategy)["ranks"]:
        assert rank["mesh"]["cp"] == 2
        assert rank["local_shapes"]["head.weight"] == [64, 32]


@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["ring", "all_to_all"])
def test_ranks_that_share_sequences_train_in_bf16(two_ranks: RankGroup, kind: str) -> None:
    answer = two_ranks.run(
        "parity", strategy={**CP2, "context_parallel_kind": kind}, precision="bf16", bits=32
    )
    check_parity(answer)


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", LONG_ON_FOUR_RANKS.values(), ids=LONG_ON_FOUR_RANKS.keys())
def test_four_ranks_in_more_combinations_train_as_one_process_does(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy))


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", ON_EIGHT_RANKS.values(), ids=ON_EIGHT_RANKS.keys())
def test_eight_ranks_that_share_sequences_train_as_one_process_does(
    eight_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(eight_ranks.run("parity", strategy=strategy))
