"""Model states: where they lie, in which format, and how their gradients are summed and clipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import (
    EXACT,
    LOSS_OF_16_BITS,
    cases,
    check_clipped,
    check_parity,
    check_states,
)
from tests.distributed.plans import mixed_stages, wide_plan
from tests.distributed.reference import sized
from tests.distributed.rounding import bars_of_fp32
from tests.distributed.test_memory import (
    assert_predicted,
    counted_live_bytes,
    predicted_live_bytes,
)

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
# As in test_layout, and 21 parameters, each with a step count of 4 bytes beside AdamW's states.
PARAMETER_COUNT = 41_120
STEP_COUNTS = 21 * 4


TWO: Fields = {"data_parallel_degree": 2, "micro_batch_size": 2}
OFFLOADS: dict[str, Fields] = {
    "optimizer": {**TWO, "offload": ["optimizer"]},
    "zero2-optimizer": {**TWO, "zero_stage": 2, "offload": ["optimizer"]},
    "zero3-parameters": {**TWO, "zero_stage": 3, "offload": ["parameters"]},
    "zero3-both": {**TWO, "zero_stage": 3, "offload": ["optimizer", "parameters"]},
    **{
        f"activations-{mode}": {
            **TWO,
            "zero_stage": 3,
            "offload": ["activations"],
            "activation_checkpointing": mode,
        }
        for mode in ("none", "selective", "full")
    },
    "one-rank-of-data": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "micro_batch_size": 4,
        "zero_stage": 3,
        "offload": ["optimizer", "parameters", "activations"],
        "activation_checkpointing": "selective",
    },
    "pipeline": {
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "offload": ["optimizer", "activations"],
        "activation_checkpointing": "selective",
    },
}
MIXED: Fields = {
    "data_parallel_degree": 4,
    "stages": mixed_stages(
        [
            {"block_count": 1, "offload": ["optimizer"]},
            {"block_count": 1, "zero_stage": 1, "offload": ["activations"]},
            {"block_count": 1, "zero_stage": 3, "offload": ["parameters", "activations"]},
            {"block_count": 1, "zero_stage": 3, "offload": ["optimizer", "parameters"]},
        ]
    ),
    "embedding": {"zero_stage": 3, "offload": ["parameters"]},
    "head": {"zero_stage": 0, "offload": ["optimizer"]},
}


@pytest.mark.parametrize(
    "strategy",
    cases(
        OFFLOADS,
        always={
            "optimizer",
            "zero3-both",
            "activations-selective",
            "pipeline",
        },
    ),
)
def test_offload_does_not_change_training(two_ranks: RankGroup, strategy: Fields) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy))


def test_layer_groups_may_offload_different_states(four_ranks: RankGroup) -> None:
    check_parity(four_ranks.run("parity", strategy=MIXED))


OFFLOADED_BESIDE: dict[str, Fields] = {
    "interleaved": {
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 3,
        "pipeline_schedule": "interleaved_1f1b",
        "data_parallel_degree": 2,
        "zero_stage": 3,
        "offload": ["optimizer", "parameters", "activations"],
    },
    "dualpipe": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "dualpipe_v",
        "data_parallel_degree": 2,
        "zero_stage": 2,
        "offload": ["optimizer", "activations"],
        "activation_checkpointing": "full",
    },
    "zb-v": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "zb_v",
        "data_parallel_degree": 2,
        "offload": ["activations"],
    },
    "ring": {
        "context_parallel_degree": 2,
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
        "offload": ["parameters", "activations"],
    },
    "tp2-sp-hsdp": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_replicate_degree": 2,
        "data_parallel_shard_degree": 1,
        "micro_batch_size": 2,
        "zero_stage": 3,
        "offload": ["optimizer", "parameters", "activations"],
        "activation_checkpointing": "selective",
    },
}


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", OFFLOADED_BESIDE.values(), ids=OFFLOADED_BESIDE.keys())
def test_offload_goes_with_every_other_dimension(four_ranks: RankGroup, strategy: Fields) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy))


EXPERTS: Fields = {
    "expert_parallel_degree": 2,
    "data_parallel_degree": 2,
    "micro_batch_size": 2,
    "zero_stage": 3,
    "offload": ["optimizer", "parameters", "activations"],
}


@pytest.mark.parametrize(
    "offload",
    cases(
        {item: {"offload": [item]} for item in ("optimizer", "parameters", "activations")}
        | {"all": {}},
        always={"all"},
    ),
)
def test_experts_are_offloaded_with_their_block(two_ranks: RankGroup, offload: Fields) -> None:
    """In fp32: torch averages fp64 twice where one rank alone has a shard on the host."""
    strategy = {**EXPERTS, **offload}
    check_parity(two_ranks.run("parity", strategy=strategy, kind="mixture", bits=32))


@pytest.mark.parametrize("zero", cases({f"zero{i}": i for i in range(4)}, always={"zero0"}))
def test_gradients_of_bf16_experts_are_averaged_over_tokens(
    two_ranks: RankGroup, zero: int
) -> None:
    """An expert on one rank alone has the gradients of both ranks' tokens already.

    The four micro-batches of either run are rounded by 2^-9, and add up to no more than four times
    what their mean is. In fp32, for the reason above.
    """
    strategy = {**EXPERTS, "offload": [], "zero_stage": zero}
    run = {"kind": "mixture", "precision": "bf16", "steps": 1, "bits": 32}
    answer = two_ranks.run("state_parity", strategy=strategy, **run)
    assert answer["gradient_error"] <= 2 * 4 * 2.0**-9


TIED_OFFLOADS = {
    "optimizer": ["optimizer"],
    "parameters": ["parameters"],
    "both": ["optimizer", "parameters"],
}


@pytest.mark.parametrize("offload", cases(TIED_OFFLOADS, always={"both"}))
def test_a_tied_weight_is_offloaded_with_the_embedding(
    two_ranks: RankGroup, offload: list[str]
) -> None:
    strategy = {**TWO, "zero_stage": 3, "offload": offload}
    check_parity(two_ranks.run("parity", strategy=strategy, kind="tied"))


# Bytes a parameter: 4 for itself, 8 for AdamW's states; a copy on the host where it updates there,
# and 4 for gradients that came to the host.
HELD: dict[str, tuple[int, list[str], tuple[int, int]]] = {
    "nothing": (0, [], (12, 0)),
    "optimizer": (0, ["optimizer"], (4, 12)),
    "zero3-nothing": (3, [], (12, 0)),
    "zero3-optimizer": (3, ["optimizer"], (4, 12)),
    "zero3-parameters": (3, ["parameters"], (8, 4)),
    "zero3-both": (3, ["optimizer", "parameters"], (0, 16)),
}


@pytest.mark.parametrize(("zero", "offload", "expected"), HELD.values(), ids=HELD.keys())
def test_states_lie_where_the_plan_says(
    two_ranks: RankGroup, zero: int, offload: list[str], expected: tuple[int, int]
) -> None:
    count = PARAMETER_COUNT // (2 if zero else 1)
    steps = (0, STEP_COUNTS) if "optimizer" in offload else (STEP_COUNTS, 0)
    strategy = {**TWO, "zero_stage": zero, "offload": offload}
    for rank in two_ranks.run("residence", strategy=strategy)["ranks"]:
        assert rank["differences"] == []
        assert rank["device_bytes"] == expected[0] * count + steps[0]
        assert rank["host_bytes"] == expected[1] * count + steps[1]


def test_live_bytes_fall_with_each_offload(two_ranks: RankGroup) -> None:
    offloads = [[], ["optimizer"], ["optimizer", "parameters"]]
    offloads += [[*offloads[-1], "activations"]]
    peaks = []
    for offload in offloads:
        strategy = {"data_parallel_degree": 2, "micro_batch_size": 4, "zero_stage": 3}
        answer = two_ranks.run("residence", strategy={**strategy, "offload": offload})
        peaks.append(max(rank["peak_memory_bytes"] for rank in answer["ranks"]))
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)


@pytest.mark.parametrize("offload", ["optimizer", "parameters"])
def test_the_predicted_peak_counts_what_is_offloaded(two_ranks: RankGroup, offload: str) -> None:
    """Of the wide model in bf16, as in test_memory; without offload it is 16 to 40 % higher."""
    strategy = {
        **TWO,
        "zero_stage": 3,
        "activation_checkpointing": "full",
        "offload": [offload],
    }
    assert_predicted(two_ranks, strategy, tolerance=0.03)


@pytest.mark.parametrize("mode", ["none", "selective"])
def test_no_more_is_live_than_predicted_where_activations_are_offloaded(
    two_ranks: RankGroup, mode: str
) -> None:
    """The plan has room for two blocks' activations on their way; a block's return as needed."""
    strategy = {
        **TWO,
        "zero_stage": 3,
        "activation_checkpointing": mode,
        "offload": ["activations"],
    }
    (predicted,) = predicted_live_bytes(wide_plan(**strategy))
    (counted,) = counted_live_bytes(two_ranks, strategy, 8)
    assert 0.8 * predicted <= counted <= predicted


ACCUMULATING: dict[str, Fields] = {
    **{f"zero{stage}": {"data_parallel_degree": 2, "zero_stage": stage} for stage in range(4)},
    "pp2": {"pipeline_parallel_degree": 2},
    "zero3-offloaded": {
        "data_parallel_degree": 2,
        "zero_stage": 3,
        "offload": ["optimizer", "parameters", "activations"],
    },
    "zero1-optimizer": {"data_parallel_degree": 2, "zero_stage": 1, "offload": ["optimizer"]},
}


@pytest.mark.parametrize("strategy", cases(ACCUMULATING, always={"zero1", "zero3"}))
def test_bf16_computes_in_16_bits_and_sums_and_updates_in_32(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    """Each micro-batch's gradient is rounded as the unsharded run rounds it, so that sums agree."""
    check_states(
        two_ranks.run("state_parity", strategy=strategy, precision="bf16"), loss=LOSS_OF_16_BITS
    )


def test_bf16_layer_groups_of_every_zero_stage(four_ranks: RankGroup) -> None:
    check_states(
        four_ranks.run("state_parity", strategy=MIXED, precision="bf16"), loss=LOSS_OF_16_BITS
    )


@pytest.mark.parametrize("strategy", cases(ACCUMULATING, always={"zero2"}))
def test_fp16_trains_with_a_scaled_loss(two_ranks: RankGroup, strategy: Fields) -> None:
    check_states(
        two_ranks.run("state_parity", strategy=strategy, precision="fp16"), loss=LOSS_OF_16_BITS
    )


def test_a_step_whose_gradients_overflow_is_skipped_on_every_rank(four_ranks: RankGroup) -> None:
    """The scale halves, and training goes on."""
    strategy = {"pipeline_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 2}
    answer = four_ranks.run("overflow", strategy=strategy, scale=2.0**30)
    assert answer["skipped"] == [True] * 4
    assert answer["changed"] == [False] * 4
    assert answer["scale"] == [2.0**29] * 4
    assert answer["next"]["was_skipped"] is False
    assert answer["next"]["loss"] == pytest.approx(5.55, abs=0.1)


CLIPPED_ON_TWO: dict[str, Fields] = {
    "dp2": TWO,
    "zero3": {**TWO, "zero_stage": 3},
    "tp2": {"tensor_parallel_degree": 2, "micro_batch_size": 4},
    "tp2-sp": {"tensor_parallel_degree": 2, "sequence_parallel": True, "micro_batch_size": 4},
    "pp2": {"pipeline_parallel_degree": 2, "micro_batch_size": 2},
    "offloaded": {**TWO, "zero_stage": 3, "offload": ["optimizer", "parameters"]},
}
CLIPPED_ON_FOUR: dict[str, Fields] = {
    "hsdp-zero2": {
        "data_parallel_replicate_degree": 2,
        "data_parallel_shard_degree": 2,
        "zero_stage": 2,
    },
    "tp2-sp-zero3": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
    "tp2-pp2": {
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
    },
    "pp2-zero1": {"pipeline_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 1},
    "mixed-offload": MIXED,
}
# The first step's norm is 0.92; half of it is clipped away at first, less later on.
LARGEST_NORM = 0.5


@pytest.mark.parametrize("kind", cases({"decoder": "decoder", "tied": "tied"}, always={"tied"}))
@pytest.mark.parametrize("strategy", cases(CLIPPED_ON_TWO, always={*CLIPPED_ON_TWO} - {"tp2"}))
def test_two_ranks_clip_by_the_norm_of_the_whole_gradient(
    two_ranks: RankGroup, strategy: Fields, kind: str
) -> None:
    """The norm is that of clip_grad_norm_ on the unsharded model; tied weights count once."""
    check_clipped(two_ranks.run("state_parity", strategy=strategy, kind=kind, **_CLIPPED))


@pytest.mark.parametrize("strategy", cases(CLIPPED_ON_FOUR, always={"hsdp-zero2", "tp2-pp2"}))
def test_four_ranks_clip_by_the_norm_of_the_whole_gradient(
    four_ranks: RankGroup, strategy: Fields
) -> None:
    check_clipped(four_ranks.run("state_parity", strategy=strategy, **_CLIPPED))


CLIPPED_EXPERTS: dict[str, Fields] = {
    "ep2-tp2-sp": {
        "expert_parallel_degree": 2,
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
    "ep4-zero1": {"expert_parallel_degree": 4, "data_parallel_degree": 4, "zero_stage": 1},
    "ep2-pp2": {
        "expert_parallel_degree": 2,
        "data_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
    },
    "ring-ep2": {
        "context_parallel_degree": 2,
        "data_parallel_degree": 2,
        "expert_parallel_degree": 2,
        "micro_batch_size": 2,
    },
}


@pytest.mark.parametrize("strategy", cases(CLIPPED_EXPERTS, always={"ep2-tp2-sp"}))
def test_experts_count_in_the_norm_as_often_as_they_are_there(
    four_ranks: RankGroup, strategy: Fields
) -> None:
    """Once each, whatever ranks hold other experts, parts of one or the same."""
    check_clipped(four_ranks.run("state_parity", strategy=strategy, kind="mixture", **_CLIPPED))


def test_the_clipped_norm_of_fp16_is_that_of_the_unscaled_gradient(two_ranks: RankGroup) -> None:
    strategy = {"data_parallel_degree": 2, "zero_stage": 2}
    answer = two_ranks.run("state_parity", strategy=strategy, precision="fp16", **_CLIPPED)
    check_clipped(answer, loss=LOSS_OF_16_BITS)


_CLIPPED: Fields = {"largest_norm": LARGEST_NORM}


def test_an_optimizer_that_looks_at_whole_rows_trains_where_parameters_are_whole(
    two_ranks: RankGroup,
) -> None:
    answer = two_ranks.run("factored", strategy={**TWO, "offload": ["optimizer"]})
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=EXACT)
    assert answer["losses"][-1] < answer["losses"][0]


@pytest.mark.parametrize(
    "strategy", [{**TWO, "zero_stage": 3}, {"tensor_parallel_degree": 2, "micro_batch_size": 4}]
)
def test_where_they_are_not_every_rank_says_so(two_ranks: RankGroup, strategy: Fields) -> None:
    first, second = two_ranks.run("factored", strategy=strategy)["messages"]
    assert first == second
    assert first.startswith("optimizer_function: torch has not all of this optimizer's operators")
    assert "(got Adafactor); plan with zero_stage 0" in first


COMPILED: dict[str, Fields] = {
    "pp2-full": {"pipeline_parallel_degree": 2, "activation_checkpointing": "full"},
    "dp2": {"data_parallel_degree": 2},
    "zero2-full": {**TWO, "zero_stage": 2, "activation_checkpointing": "full"},
    "interleaved": {
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 3,
        "pipeline_schedule": "interleaved_1f1b",
    },
    "offloaded": {**TWO, "zero_stage": 3, "offload": ["activations", "parameters"]},
    "all-to-all": {"context_parallel_degree": 2, "context_parallel_kind": "all_to_all"},
}


def test_compiled_blocks_train_as_others_do(two_ranks: RankGroup) -> None:
    """The backend traces and differentiates, and generates no code: a test has no time for it."""
    strategy = {**TWO, "zero_stage": 3, "activation_checkpointing": "selective"}
    answer = two_ranks.run("state_parity", strategy=strategy, compiler="aot_eager")
    check_states(answer)
    assert answer["compiled_graphs"] > 0


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", COMPILED.values(), ids=COMPILED.keys())
def test_blocks_are_compiled_in_every_layout_that_allows_it(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    answer = two_ranks.run("state_parity", strategy=strategy, compiler="aot_eager")
    check_states(answer)
    assert answer["compiled_graphs"] > 0


@pytest.mark.parity_full
@pytest.mark.parametrize("strategy", COMPILED.values(), ids=COMPILED.keys())
def test_generated_code_trains_as_others_do_up_to_how_it_rounds_angles(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    """Angles of rotary embeddings are in fp32; each processor's code rounds them in its own way."""
    answer = two_ranks.run("state_parity", strategy=strategy, compiler="inductor")
    bars = bars_of_fp32(sized("decoder", strategy))
    check_states(answer, loss=bars.loss, parameter=bars.parameter)
    assert answer["compiled_graphs"] > 0


def test_where_torch_cannot_compile_the_report_says_so_and_training_goes_on(
    two_ranks: RankGroup,
) -> None:
    strategy = {"tensor_parallel_degree": 2, "micro_batch_size": 4}
    answer = two_ranks.run("state_parity", strategy=strategy, compiler="inductor")
    reason = "tracing fails on the sharded tensors of tensor parallelism"
    assert answer["differences"] == [f"blocks are not compiled by inductor: {reason}"] * 2
    check_states({**answer, "differences": []})
