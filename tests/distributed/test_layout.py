"""What ranks hold: shards, stages, and live bytes, as the plan says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, check_parity
from tests.distributed.plans import stages

pytestmark = pytest.mark.distributed

# Embedding and head 2 x 256 x 32, final norm 32, and two blocks of two norms 2 x 32, query and
# output 2 x 64 x 32, key and value 2 x 32 x 32, feed-forward 3 x 64 x 32.
PARAMETER_COUNT = 41_120
FP32_BYTES = 4
PP2_DP2 = {"pipeline_parallel_degree": 2, "data_parallel_degree": 2}


def test_zero_stage_3_shards_parameters_over_data_ranks(four_ranks: RankGroup) -> None:
    answer = four_ranks.run("held", strategy={"data_parallel_degree": 4, "zero_stage": 3})
    held_bytes = [rank["parameter_bytes"] for rank in answer["ranks"]]
    assert held_bytes == [PARAMETER_COUNT * FP32_BYTES // 4] * 4


def test_zero_stage_0_keeps_whole_parameters_on_every_rank(four_ranks: RankGroup) -> None:
    answer = four_ranks.run("held", strategy={"data_parallel_degree": 4})
    held_bytes = [rank["parameter_bytes"] for rank in answer["ranks"]]
    assert held_bytes == [PARAMETER_COUNT * FP32_BYTES] * 4


def test_tensor_parallel_splits_columns_and_rows(two_ranks: RankGroup) -> None:
    answer = two_ranks.run("held", strategy={"tensor_parallel_degree": 2, "micro_batch_size": 8})
    shapes = answer["ranks"][1]["local_shapes"]
    assert shapes["embedding.weight"] == [128, 32]
    assert shapes["blocks.0.attention.query.weight"] == [32, 32]
    assert shapes["blocks.0.attention.key.weight"] == [16, 32]
    assert shapes["blocks.0.attention.output.weight"] == [32, 32]
    assert shapes["blocks.0.feed_forward.down.weight"] == [32, 32]
    assert shapes["blocks.0.attention_norm.weight"] == [32]


def test_stages_hold_the_blocks_that_were_planned(four_ranks: RankGroup) -> None:
    """Names stay those of the unsplit model, so that a checkpoint fits any layout."""
    answer = four_ranks.run("held", strategy={**PP2_DP2, "stages": stages(3, 1)})
    blocks = [
        sorted({name.split(".")[1] for name in rank["names"] if name.startswith("blocks.")})
        for rank in answer["ranks"]
    ]
    assert blocks == [["0", "1", "2"], ["0", "1", "2"], ["3"], ["3"]]
    assert "embedding.weight" in answer["ranks"][0]["names"]
    assert "head.weight" in answer["ranks"][3]["names"]
    assert "head.weight" not in answer["ranks"][0]["names"]


def test_pipeline_ranks_are_outermost_and_tensor_ranks_neighbours(four_ranks: RankGroup) -> None:
    answer = four_ranks.run(
        "held",
        strategy={
            "tensor_parallel_degree": 2,
            "pipeline_parallel_degree": 2,
            "micro_batch_size": 4,
        },
    )
    assert [rank["stage"] for rank in answer["ranks"]] == [0, 0, 1, 1]
    assert answer["ranks"][0]["mesh"] == {
        "pp": 2,
        "dp_replicate": 1,
        "dp_shard": 1,
        "cp": 1,
        "tp": 2,
    }


def test_initial_weights_do_not_depend_on_the_layout(four_ranks: RankGroup) -> None:
    layouts: list[dict[str, Any]] = [
        {"data_parallel_degree": 4, "zero_stage": 3},
        {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2},
    ]
    sums = [four_ranks.run("initial_weights", strategy=layout) for layout in layouts]
    assert len(sums[0]) == 21
    assert sums[0] == pytest.approx(sums[1], rel=EXACT)


def test_live_bytes_fall_from_zero_0_to_zero_3(two_ranks: RankGroup) -> None:
    """Parameters, gradients and two Adam states of two ranks fall to half."""
    strategy = {"data_parallel_degree": 2, "micro_batch_size": 2}
    peaks = [_peak(two_ranks, {**strategy, "zero_stage": zero}) for zero in (0, 1, 3)]
    assert peaks[0] > peaks[1] > peaks[2]
    assert peaks[0] > 4 * PARAMETER_COUNT * FP32_BYTES


def test_live_bytes_fall_with_checkpointing(two_ranks: RankGroup) -> None:
    peaks = [
        _peak(
            two_ranks,
            {
                "data_parallel_degree": 2,
                "micro_batch_size": 4,
                "zero_stage": 3,
                "activation_checkpointing": mode,
            },
        )
        for mode in ("none", "selective", "full")
    ]
    assert peaks[0] > peaks[1] > peaks[2]


def test_bf16_trains_near_the_fp32_run(four_ranks: RankGroup) -> None:
    answer = four_ranks.run(
        "parity",
        strategy={
            "pipeline_parallel_degree": 2,
            "tensor_parallel_degree": 2,
            "sequence_parallel": True,
            "micro_batch_size": 4,
        },
        precision="bf16",
        bits=32,
    )
    check_parity(answer)
    assert answer["gradient_error"] > 1e-6


def _peak(group: RankGroup, strategy: dict[str, Any]) -> int:
    return int(group.run("peak", strategy=strategy)["peak_memory_bytes"])
