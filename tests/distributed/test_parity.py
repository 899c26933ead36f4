"""Every layout trains as the unsharded model does: gradients, losses and parameters."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import cases, check_parity, some_of
from tests.distributed.plans import mixed_stages, stages

pytestmark = pytest.mark.distributed

ON_TWO_RANKS: dict[str, dict[str, Any]] = {
    "dp2": {"data_parallel_degree": 2},
    "zero3": {"data_parallel_degree": 2, "zero_stage": 3},
    "tp2": {"tensor_parallel_degree": 2, "micro_batch_size": 4},
    "tp2-sp": {"tensor_parallel_degree": 2, "sequence_parallel": True, "micro_batch_size": 4},
    "pp2-gpipe": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "gpipe",
        "micro_batch_size": 2,
    },
    "pp2-1f1b-uneven": {
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "stages": stages(3, 1),
    },
}

ON_FOUR_RANKS: dict[str, dict[str, Any]] = {
    "dp4": {"data_parallel_degree": 4},
    "zero1": {"data_parallel_degree": 4, "zero_stage": 1},
    "zero2": {"data_parallel_degree": 4, "zero_stage": 2},
    "zero3": {"data_parallel_degree": 4, "zero_stage": 3},
    "hsdp-zero0": {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 2},
    **{
        f"hsdp-zero{zero}": {
            "data_parallel_replicate_degree": 2,
            "data_parallel_shard_degree": 2,
            "zero_stage": zero,
        }
        for zero in (1, 2, 3)
    },
    "replicate4-zero3-named": {"data_parallel_replicate_degree": 4, "zero_stage": 3},
    "tp4": {"tensor_parallel_degree": 4, "micro_batch_size": 4},
    "tp4-sp": {"tensor_parallel_degree": 4, "micro_batch_size": 8, "sequence_parallel": True},
    "pp4-gpipe": {
        "pipeline_parallel_degree": 4,
        "pipeline_schedule": "gpipe",
        "micro_batch_size": 2,
    },
    **{
        f"zero3-checkpointing-{mode}": {
            "data_parallel_degree": 4,
            "zero_stage": 3,
            "activation_checkpointing": mode,
        }
        for mode in ("selective", "full")
    },
    "mixed-layer-groups": {
        "data_parallel_degree": 4,
        "stages": mixed_stages(
            [
                {"block_count": 1, "zero_stage": 0},
                {"block_count": 1, "zero_stage": 1, "activation_checkpointing": "full"},
                {"block_count": 1, "zero_stage": 2, "activation_checkpointing": "selective"},
                {"block_count": 1, "zero_stage": 3},
            ]
        ),
        "embedding": {"zero_stage": 3},
        "head": {"zero_stage": 1},
    },
    "tp2-pp2": {
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
    },
    "tp2-sp-pp2-full": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 4,
        "activation_checkpointing": "full",
    },
    **{
        f"pp2-zero{zero}": {
            "pipeline_parallel_degree": 2,
            "data_parallel_degree": 2,
            "zero_stage": zero,
        }
        for zero in (0, 1, 2, 3)
    },
    "pp2-gpipe-zero3-selective": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "gpipe",
        "data_parallel_degree": 2,
        "zero_stage": 3,
        "activation_checkpointing": "selective",
    },
    "pp2-mixed-layer-groups": {
        "pipeline_parallel_degree": 2,
        "data_parallel_degree": 2,
        "stages": mixed_stages(
            [
                {"block_count": 1, "zero_stage": 3, "activation_checkpointing": "full"},
                {"block_count": 1, "zero_stage": 2},
            ],
            [{"block_count": 1, "zero_stage": 0}, {"block_count": 1, "zero_stage": 1}],
        ),
    },
    **{
        f"tp2-zero{zero}": {
            "tensor_parallel_degree": 2,
            "data_parallel_degree": 2,
            "micro_batch_size": 2,
            "zero_stage": zero,
        }
        for zero in (0, 1, 2, 3)
    },
    "tp2-sp-zero3-selective": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_degree": 2,
        "micro_batch_size": 4,
        "zero_stage": 3,
        "activation_checkpointing": "selective",
    },
    "tp2-replicate2": {
        "tensor_parallel_degree": 2,
        "data_parallel_replicate_degree": 2,
        "micro_batch_size": 4,
    },
}

TIED: dict[str, dict[str, Any]] = {
    "zero3": {"data_parallel_degree": 4, "zero_stage": 3},
    "dp4": {"data_parallel_degree": 4},
    "tp4": {"tensor_parallel_degree": 4, "micro_batch_size": 4},
    "tp2-sp-zero2": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_degree": 2,
        "zero_stage": 2,
        "micro_batch_size": 2,
    },
    "pp4": {"pipeline_parallel_degree": 4},
    "pp2-zero3": {
        "pipeline_parallel_degree": 2,
        "data_parallel_degree": 2,
        "zero_stage": 3,
        "head": {"zero_stage": 0},
    },
    "tp2-pp2": {
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
    },
}

HUGGING_FACE: dict[str, dict[str, Any]] = {
    "tp2-zero3": {
        "tensor_parallel_degree": 2,
        "data_parallel_degree": 2,
        "zero_stage": 3,
        "micro_batch_size": 4,
    },
    "tp2-sp-dp2": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_degree": 2,
        "micro_batch_size": 4,
    },
    "pp2-dp2": {"pipeline_parallel_degree": 2, "data_parallel_degree": 2},
    "tp2-pp2-full": {
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "activation_checkpointing": "full",
    },
}

MASKED: dict[str, dict[str, Any]] = {
    "dp4": {"data_parallel_degree": 4},
    "tp4": {"tensor_parallel_degree": 4, "micro_batch_size": 2},
    "ring2-dp2-zero3": {
        "context_parallel_degree": 2,
        "data_parallel_degree": 2,
        "zero_stage": 3,
        "micro_batch_size": 2,
    },
    "tp2-pp2": {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2},
    "pp2-zb_v-dp2": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "zb_v",
        "data_parallel_degree": 2,
    },
}


@pytest.mark.parametrize("strategy", ON_TWO_RANKS.values(), ids=ON_TWO_RANKS.keys())
def test_two_ranks_train_as_one_process_does(
    two_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy))


# The mixed layer groups have every ZeRO stage and kind of checkpointing, alone and in a pipeline;
# two ranks, tied weights, odd vocabularies and other models have what is left.
IN_PARTS_OF_OTHERS = {
    *("dp4", "zero3", "hsdp-zero0", "tp2-pp2", "tp2-zero2", "pp2-gpipe-zero3-selective"),
    *("zero1", "zero2", "zero3-checkpointing-selective", "zero3-checkpointing-full"),
    *("hsdp-zero1", "hsdp-zero2", "replicate4-zero3-named", "tp4", "tp4-sp", "pp4-gpipe"),
    *("pp2-zero0", "pp2-zero1", "pp2-zero2", "pp2-zero3", "tp2-zero0", "tp2-zero1", "tp2-zero3"),
}


@pytest.mark.parametrize(
    "strategy", cases(ON_FOUR_RANKS, always={*ON_FOUR_RANKS} - IN_PARTS_OF_OTHERS)
)
def test_four_ranks_train_as_one_process_does(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy))


@pytest.mark.parametrize("strategy", cases(TIED, always={"pp2-zero3"}))
def test_tied_embeddings_stay_one_weight_in_every_layout(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy, kind="tied"))


@pytest.mark.parametrize("strategy", cases(HUGGING_FACE, always={"tp2-sp-dp2"}))
def test_a_hugging_face_llama_trains_as_its_own_forward_does(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    """The reference is transformers' LlamaForCausalLM, unsplit."""
    check_parity(four_ranks.run("parity", strategy=strategy, kind="llama"))


def test_a_tied_hugging_face_llama_trains_as_its_own_forward_does(four_ranks: RankGroup) -> None:
    answer = four_ranks.run(
        "parity",
        strategy={
            "tensor_parallel_degree": 2,
            "pipeline_parallel_degree": 2,
            "micro_batch_size": 4,
        },
        kind="llama-tied",
    )
    check_parity(answer)


def test_a_loss_that_needs_whole_logits_gets_them_under_tensor_parallelism(
    two_ranks: RankGroup,
) -> None:
    """The loss asserts that its logits are a plain tensor; the numbers must not change."""
    answer = two_ranks.run(
        "parity",
        strategy={"tensor_parallel_degree": 2, "sequence_parallel": True, "micro_batch_size": 4},
        loss="foreign",
    )
    check_parity(answer)


@pytest.mark.parametrize("strategy", cases(MASKED, always={"ring2-dp2-zero3", "pp2-zb_v-dp2"}))
def test_targets_that_count_for_nothing_leave_one_mean_over_the_others(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    """Micro-batches have from none to all of their targets left out, and ranks different shares."""
    check_parity(four_ranks.run("parity", strategy=strategy, masked=True))


@pytest.mark.parametrize("strategy", cases(MASKED, always={"pp2-zb_v-dp2"}))
def test_targets_that_weigh_by_class_have_the_mean_of_the_whole_batch(
    four_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    """Plain torch divides by the sum of weights of all targets, not of a micro-batch's."""
    check_parity(four_ranks.run("parity", strategy=strategy, masked=True, loss="weighted"))


WITH_AN_ODD_VOCABULARY: dict[str, dict[str, Any]] = {
    "tp4": ON_FOUR_RANKS["tp4"],
    "tp4-sp": ON_FOUR_RANKS["tp4-sp"],
    "tp2-zero3": {
        "tensor_parallel_degree": 2,
        "data_parallel_degree": 2,
        "zero_stage": 3,
        "micro_batch_size": 2,
    },
    "tp2-pp2": {
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
    },
}


@pytest.mark.parametrize(
    ("layout", "kind"),
    some_of(
        product(WITH_AN_ODD_VOCABULARY, ("odd", "odd-tied")),
        always={("tp4-sp", "odd"), ("tp2-pp2", "odd-tied")},
    ),
)
def test_vocabularies_that_tensor_ranks_do_not_divide(
    four_ranks: RankGroup, layout: str, kind: str
) -> None:
    """Of 257 entries ranks hold 65, 65, 65 and 62."""
    strategy = WITH_AN_ODD_VOCABULARY[layout]
    check_parity(four_ranks.run("parity", strategy=strategy, kind=kind))
