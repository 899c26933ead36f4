"""Experts on different ranks train as the unsharded mixture does.

Routing is discrete: ranks equal one process only where both choose the same experts. They do where
the k-th and the next largest share of a token differ by more than rounding does, and
`test_no_token_of_the_compared_run_is_near_a_tie` holds the seeds used here to that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.group import RankGroup
from tests.distributed.parity import cases, check_parity
from tests.distributed.plans import mixed_stages, stages
from tests.distributed.reference import smallest_routing_margin

EP2 = {"expert_parallel_degree": 2, "data_parallel_degree": 2, "micro_batch_size": 2}
TP2 = {"tensor_parallel_degree": 2, "micro_batch_size": 4}
SPLIT = {"sequence_parallel": True}
WHOLE_EXPERTS = {"expert_tensor_parallel_degree": 1}
HALF_EXPERTS = {"expert_tensor_parallel_degree": 2}

ON_TWO_RANKS: dict[str, dict[str, Any]] = {
    "ep2": EP2,
    "ep2-zero3-full": {**EP2, "zero_stage": 3, "activation_checkpointing": "full"},
    "tp2-sp": {**TP2, **SPLIT},
    "tp2-sp-whole-experts-zero2": {**TP2, **SPLIT, **WHOLE_EXPERTS, "zero_stage": 2},
    "tp2-ep2": {**TP2, **WHOLE_EXPERTS, "expert_parallel_degree": 2},
    "cp2-ep2": {"context_parallel_degree": 2, "expert_parallel_degree": 2, "micro_batch_size": 4},
}

LONG_ON_TWO_RANKS: dict[str, dict[str, Any]] = {
    "dp2": {"data_parallel_degree": 2},
    "zero3": {"data_parallel_degree": 2, "zero_stage": 3},
    "tp2": TP2,
    "tp2-whole-experts": {**TP2, **WHOLE_EXPERTS},
    "tp2-sp-ep2": {**TP2, **SPLIT, **WHOLE_EXPERTS, "expert_parallel_degree": 2},
}

ON_FOUR_RANKS: dict[str, dict[str, Any]] = {
    "ep2-dp4-mixed-layer-groups": {
        "expert_parallel_degree": 2,
        "data_parallel_degree": 4,
        "stages": mixed_stages(
            [
                {"block_count": 1, "zero_stage": 3},
                {"block_count": 1, "zero_stage": 1, "activation_checkpointing": "full"},
                {"block_count": 1, "zero_stage": 2, "activation_checkpointing": "selective"},
                {"block_count": 1, "zero_stage": 0},
            ]
        ),
    },
    "tp2-sp-ep2-dp2-zero3": {**EP2, **TP2, **SPLIT, "micro_batch_size": 2, "zero_stage": 3},
    "tp4-half-experts-ep2": {
        **TP2,
        **HALF_EXPERTS,
        "tensor_parallel_degree": 4,
        "expert_parallel_degree": 2,
        "micro_batch_size": 8,
    },
    "tp4-sp-half-experts-zero2": {
        **TP2,
        **SPLIT,
        **HALF_EXPERTS,
        "tensor_parallel_degree": 4,
        "zero_stage": 2,
        "micro_batch_size": 8,
    },
    "pp2-ep2-zero2-uneven": {
        **EP2,
        "pipeline_parallel_degree": 2,
        "stages": stages(3, 1, zero_stage=2, activation_checkpointing="full"),
    },
    "cp2-ep4-zero3": {
        "context_parallel_degree": 2,
        "data_parallel_degree": 2,
        "expert_parallel_degree": 4,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
}

# test_parity_state clips by its norm, and compares what the steps have left.
IN_PARTS_OF_OTHERS = {"tp2-sp-ep2-dp2-zero3", "tp4-half-experts-ep2", "cp2-ep4-zero3"}

LONG_ON_FOUR_RANKS: dict[str, dict[str, Any]] = {
    "tp4-half-experts": {**TP2, **HALF_EXPERTS, "tensor_parallel_degree": 4},
    "tp4-sp-half-experts-ep2-full": {
        **TP2,
        **SPLIT,
        **HALF_EXPERTS,
        "tensor_parallel_degree": 4,
        "expert_parallel_degree": 2,
        "activation_checkpointing": "full",
    },
    "pp2-zb_v-ep2": {**EP2, "pipeline_parallel_degree": 2, "pipeline_schedule": "zb_v"},
    "pp2-interleaved-ep2-zero1": {
        **EP2,
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 3,
        "pipeline_schedule": "interleaved_1f1b",
        "zero_stage": 1,
    },
    "ep4-zero1": {
        "expert_parallel_degree": 4,
        "data_parallel_degree": 4,
        "zero_stage": 1,
    },
    "ep2-hsdp-zero3": {
        **EP2,
        "data_parallel_degree": None,
        "data_parallel_replicate_degree": 2,
        "data_parallel_shard_degree": 2,
        "zero_stage": 3,
    },
    "tp2-ep2-dp2": {**EP2, **TP2, "micro_batch_size": 2},
    "tp2-sp-ep4-whole-experts-zero2": {
        **EP2,
        **TP2,
        **SPLIT,
        **WHOLE_EXPERTS,
        "expert_parallel_degree": 4,
        "micro_batch_size": 2,
        "zero_stage": 2,
    },
    "tp2-ep2-whole-experts-dp2-zero3": {
        **EP2,
        **TP2,
        **WHOLE_EXPERTS,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
}


ON_EIGHT_RANKS: dict[str, dict[str, Any]] = {
    "pp2-tp2-sp-ep2-zero3": {
        **EP2,
        **TP2,
        **SPLIT,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
    "tp2-sp-cp2-ep4-zero2": {
        **EP2,
        **TP2,
        **SPLIT,
        "context_parallel_degree": 2,
        "expert_parallel_degree": 4,
        "micro_batch_size": 2,
        "zero_stage": 2,
    },
    "tp2-sp-ep8-whole-experts": {
        **TP2,
        **SPLIT,
        **WHOLE_EXPERTS,
        "data_parallel_degree": 4,
        "expert_parallel_degree": 8,
        "micro_batch_size": 2,
    },
    "hsdp-ep2-zero3-full": {
        "expert_parallel_degree": 2,
        "data_parallel_replicate_degree": 2,
        "data_parallel_shard_degree": 4,
        "zero_stage": 3,
        "activation_checkpointing": "full",
    },
}


@pytest.mark.distributed
@pytest.mark.parametrize(
    "strategy", cases(ON_TWO_RANKS, always={*ON_TWO_RANKS} - {"ep2", "tp2-sp"})
)
def test_two_ranks_with_experts_train_as_one_process_does(
    two_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy, kind="mixture"))


@pytest.mark.distributed
@pytest.mark.parametrize(
    "strategy", cases(ON_FOUR_RANKS, always={*ON_FOUR_RANKS} - IN_PARTS_OF_OTHERS)
)
def test_four_ranks_with_experts_train_as_one_process_does(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy, kind="mixture"))


@pytest.mark.distributed
def test_tied_embeddings_stay_one_weight_beside_experts(four_ranks: RankGroup) -> None:
    strategy = {**EP2, "pipeline_parallel_degree": 2, "zero_stage": 1}
    check_parity(four_ranks.run("parity", strategy=strategy, kind="mixture-tied"))


@pytest.mark.distributed
@pytest.mark.parametrize("block_count", [2, 4, pytest.param(6, marks=pytest.mark.parity_full)])
@pytest.mark.parametrize("bits", [32, 64])
def test_no_token_of_the_compared_run_is_near_a_tie(bits: int, block_count: int) -> None:
    """fp32 rounding of shares below 1 is 6e-8; parameters that agree to 1e-6 move shares little."""
    kind = f"mixture-{block_count}"
    assert smallest_routing_margin(kind, bits=bits) > torch.finfo(torch.float32).eps * 10


@pytest.mark.distributed
def test_each_rank_holds_its_experts_and_zero_shards_what_others_hold_too(
    four_ranks: RankGroup,
) -> None:
    """Of eight experts of [2, 16, 32] two ranks have four each, of which two more halve them."""
    strategy = {"expert_parallel_degree": 2, "data_parallel_degree": 4, "zero_stage": 3}
    answer = four_ranks.run("held", strategy=strategy, kind="mixture")
    for rank in answer["ranks"]:
        degrees = {axis: rank["mesh"][axis] for axis in ("dp_shard_experts", "ep", "etp")}
        assert degrees == {"dp_shard_experts": 2, "ep": 2, "etp": 1}
        shapes = rank["local_shapes"]
        assert shapes["blocks.1.mixture.experts.gate_up_proj"] == [2, 2, 16, 32]
        assert shapes["blocks.1.mixture.experts.down_proj"] == [2, 32, 16]
        assert shapes["blocks.1.mixture.router.weight"] == [2, 32]


@pytest.mark.distributed
def test_tensor_parallel_ranks_hold_parts_of_each_expert(two_ranks: RankGroup) -> None:
    strategy = {"tensor_parallel_degree": 2, "micro_batch_size": 8}
    for rank in two_ranks.run("held", strategy=strategy, kind="mixture")["ranks"]:
        shapes = rank["local_shapes"]
        assert shapes["blocks.1.mixture.experts.gate_up_proj"] == [8, 2, 8, 32]
        assert shapes["blocks.1.mixture.experts.down_proj"] == [8, 32, 8]
        assert "ep" not in rank["mesh"]


@pytest.mark.distributed
@pytest.mark.parity_full
@pytest.mark.parametrize("kind", ["mixture", "qwen3_moe"])
def test_a_run_with_experts_goes_on_in_another_layout(
    four_ranks: RankGroup, two_ranks: RankGroup, tmp_path: Path, kind: str
) -> None:
    first = {**EP2, **TP2, **SPLIT, "micro_batch_size": 2, "zero_stage": 3}
    second = {**ON_TWO_RANKS["cp2-ep2"], "zero_stage": 1}
    saved = str(tmp_path / "checkpoint")
    before = four_ranks.run(
        "resume", strategy=first, first_step=0, step_count=1, kind=kind, save=saved
    )
    after = two_ranks.run(
        "resume", strategy=second, first_step=1, step_count=2, kind=kind, load=saved
    )
    losses = [*before["losses"], *after["losses"]]
    assert losses == pytest.approx(before["reference_losses"][:3], rel=before["loss_bar"])


@pytest.mark.distributed
@pytest.mark.parametrize("zero_stage", cases({"0": 0, "3": 3}, always={"3"}))
def test_experts_train_in_bf16(two_ranks: RankGroup, zero_stage: int) -> None:
    answer = two_ranks.run(
        "parity",
        strategy={**EP2, "zero_stage": zero_stage},
        kind="mixture",
        precision="bf16",
        bits=32,
    )
    check_parity(answer)


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", LONG_ON_TWO_RANKS.values(), ids=LONG_ON_TWO_RANKS.keys())
def test_two_ranks_in_more_combinations_train_as_one_process_does(
    two_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy, kind="mixture"))


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", LONG_ON_FOUR_RANKS.values(), ids=LONG_ON_FOUR_RANKS.keys())
def test_four_ranks_in_more_combinations_train_as_one_process_does(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy, kind="mixture"))


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", ON_EIGHT_RANKS.values(), ids=ON_EIGHT_RANKS.keys())
def test_eight_ranks_with_experts_train_as_one_process_does(
    eight_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(eight_ranks.run("parity", strategy=strategy, kind="mixture"))
