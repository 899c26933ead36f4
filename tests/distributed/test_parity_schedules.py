"""Every pipeline schedule trains as the unsharded model does, alone and with all else.

A few of each kind run always; the rest, some of it on eight ranks, by `make test-parity`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import (
    EXACT,
    LOSS_OF_16_BITS,
    check_clipped,
    check_parity,
    check_states,
)
from tests.distributed.plans import mixed_stages, stages
from tests.distributed.test_parity_state import LARGEST_NORM

Fields = dict[str, Any]

GPIPE: Fields = {"pipeline_schedule": "gpipe"}
ONE_F_ONE_B: Fields = {"pipeline_schedule": "1f1b"}
INTERLEAVED: Fields = {"pipeline_schedule": "interleaved_1f1b", "virtual_pipeline_degree": 2}
ZB_V: Fields = {"pipeline_schedule": "zb_v"}
DUALPIPE_V: Fields = {"pipeline_schedule": "dualpipe_v"}
OF_SEVERAL_STAGES = {"interleaved": INTERLEAVED, "zb_v": ZB_V, "dualpipe_v": DUALPIPE_V}
SCHEDULES = {"gpipe": GPIPE, "1f1b": ONE_F_ONE_B, **OF_SEVERAL_STAGES}

PP2: Fields = {"pipeline_parallel_degree": 2}
PP4: Fields = {"pipeline_parallel_degree": 4}
DP2: Fields = {"data_parallel_degree": 2}
HSDP: Fields = {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 2}
TP2: Fields = {"tensor_parallel_degree": 2}
TP2_SP: Fields = {"tensor_parallel_degree": 2, "sequence_parallel": True}
FULL: Fields = {"activation_checkpointing": "full"}
SELECTIVE: Fields = {"activation_checkpointing": "selective"}
OFFLOAD: Fields = {"offload": ["optimizer", "parameters", "activations"]}
CONTEXT: dict[str, Fields] = {
    "ring": {"context_parallel_degree": 2},
    "heads-zero3": {
        "context_parallel_degree": 2,
        "context_parallel_kind": "all_to_all",
        "zero_stage": 3,
    },
}

# Every virtual stage another ZeRO stage, and two of them checkpointed.
MIXED_V: Fields = {
    "stages": mixed_stages(
        [{"block_count": 2, "zero_stage": 3}],
        [{"block_count": 1, "zero_stage": 0}, {"block_count": 2, "zero_stage": 2}],
        [{"block_count": 2, "zero_stage": 1, "activation_checkpointing": "full"}],
        [
            {"block_count": 1, "zero_stage": 2, "activation_checkpointing": "selective"},
            {"block_count": 1, "zero_stage": 3},
        ],
    ),
    "embedding": {"zero_stage": 2},
    "head": {"zero_stage": 0},
}

ON_TWO_RANKS: dict[str, tuple[str, Fields]] = {
    "interleaved-uneven": ("decoder", {**PP2, **INTERLEAVED, "stages": stages(2, 2, 3, 2)}),
    "zb_v-tied-uneven": ("tied", {**PP2, **ZB_V, "stages": stages(3, 2, 2, 2)}),
    "dualpipe_v-full": ("decoder", {**PP2, **DUALPIPE_V, **FULL}),
}

ON_FOUR_RANKS: dict[str, tuple[str, Fields]] = {
    "interleaved-tp2-sp": ("decoder", {**PP2, **INTERLEAVED, **TP2_SP, "micro_batch_size": 2}),
    "zb_v-mixed-layer-groups": ("decoder", {**PP2, **ZB_V, **DP2, **MIXED_V}),
    "1f1b-pp4-uneven": ("decoder", {**PP4, "stages": stages(3, 2, 2, 2)}),
    "zb_v-pp4-uneven": ("decoder", {**PP4, **ZB_V, "stages": stages(1, 1, 1, 2, 1, 1, 1, 1)}),
    "dualpipe_v-zero3-tied": ("tied", {**PP2, **DUALPIPE_V, **DP2, "zero_stage": 3}),
}

LONG_ON_TWO_RANKS: dict[str, tuple[str, Fields]] = {
    **{
        f"{name}-{mode}": ("decoder", {**PP2, **schedule, "activation_checkpointing": mode})
        for name, schedule in SCHEDULES.items()
        for mode in ("none", "selective", "full")
    },
    **{
        f"{name}-{kind}": (kind, {**PP2, **schedule})
        for name, schedule in SCHEDULES.items()
        for kind in ("tied", "llama", "llama-tied")
    },
    **{
        f"{name}-{kind}": (kind, {**PP2, **schedule, "micro_batch_size": 2})
        for name, schedule in OF_SEVERAL_STAGES.items()
        for kind in ("gpt2", "mixtral", "qwen3_moe")
    },
    "interleaved-three-virtual-stages": (
        "decoder",
        {**PP2, **INTERLEAVED, "virtual_pipeline_degree": 3, "micro_batch_size": 2},
    ),
    "gpipe-one-micro-batch": ("decoder", {**PP2, **GPIPE, "micro_batch_size": 8}),
    "interleaved-one-micro-batch": ("decoder", {**PP2, **INTERLEAVED, "micro_batch_size": 8}),
    "zb_v-one-micro-batch": ("decoder", {**PP2, **ZB_V, "micro_batch_size": 8}),
    "dualpipe_v-uneven": ("decoder", {**PP2, **DUALPIPE_V, "stages": stages(2, 2, 2, 3)}),
}

LONG_ON_FOUR_RANKS: dict[str, tuple[str, Fields]] = {
    **{
        f"{name}-zero{zero}": ("decoder", {**PP2, **schedule, **DP2, "zero_stage": zero})
        for name, schedule in OF_SEVERAL_STAGES.items()
        for zero in (0, 1, 2, 3)
    },
    **{
        f"{name}-zero3-full": ("decoder", {**PP2, **schedule, **DP2, **FULL, "zero_stage": 3})
        for name, schedule in SCHEDULES.items()
    },
    **{
        f"{name}-zero2-selective": (
            "decoder",
            {**PP2, **schedule, **DP2, **SELECTIVE, "zero_stage": 2},
        )
        for name, schedule in SCHEDULES.items()
    },
    **{
        f"{name}-zero{zero}-tied": ("tied", {**PP2, **schedule, **DP2, "zero_stage": zero})
        for name, schedule in OF_SEVERAL_STAGES.items()
        for zero in (0, 1, 3)
    },
    **{
        f"{name}-tp2": ("decoder", {**PP2, **schedule, **TP2, "micro_batch_size": 2})
        for name, schedule in SCHEDULES.items()
    },
    **{
        f"{name}-tp2-sp-selective-tied": (
            "tied",
            {**PP2, **schedule, **TP2_SP, **SELECTIVE, "micro_batch_size": 2},
        )
        for name, schedule in SCHEDULES.items()
    },
    **{
        f"{name}-pp4-{kind}": (kind, {**PP4, **schedule})
        for name, schedule in SCHEDULES.items()
        for kind in ("decoder", "tied")
    },
    **{
        f"{name}-{context}": ("decoder", {**PP2, **schedule, **fields, "micro_batch_size": 2})
        for name, schedule in OF_SEVERAL_STAGES.items()
        for context, fields in CONTEXT.items()
    },
    **{
        f"{name}-experts-zero{zero}": (
            "mixture",
            {**PP2, **schedule, **DP2, "expert_parallel_degree": 2, "zero_stage": zero},
        )
        for name, schedule in OF_SEVERAL_STAGES.items()
        for zero in (1, 3)
    },
    **{
        f"{name}-offload-tied": ("tied", {**PP2, **schedule, **DP2, **OFFLOAD, "zero_stage": 3})
        for name, schedule in OF_SEVERAL_STAGES.items()
    },
    "interleaved-pp4-fewer-micro-batches-than-ranks": (
        "decoder",
        {**PP4, **INTERLEAVED, "micro_batch_size": 4},
    ),
    "zb_v-pp4-fewer-micro-batches-than-stages": ("decoder", {**PP4, **ZB_V, "micro_batch_size": 2}),
}

ON_EIGHT_RANKS: dict[str, tuple[str, Fields]] = {
    **{
        f"{name}-dp2-tp2-sp-zero3": (
            "decoder",
            {**PP2, **schedule, **DP2, **TP2_SP, "zero_stage": 3},
        )
        for name, schedule in SCHEDULES.items()
    },
    **{
        f"{name}-dp2-tp2-zero2-full-tied": (
            "tied",
            {**PP2, **schedule, **DP2, **TP2, **FULL, "zero_stage": 2},
        )
        for name, schedule in SCHEDULES.items()
    },
    **{
        f"{name}-hsdp-zero{zero}": (
            "decoder",
            {**PP2, **SCHEDULES[name], **HSDP, "zero_stage": zero},
        )
        for name in ("1f1b", "interleaved", "zb_v")
        for zero in (2, 3)
    },
    **{
        f"{name}-pp4-tp2-tied": ("tied", {**PP4, **schedule, **TP2})
        for name, schedule in OF_SEVERAL_STAGES.items()
    },
}


def cases(named: dict[str, tuple[str, Fields]]) -> pytest.MarkDecorator:
    """One test for each kind of model and strategy."""
    return pytest.mark.parametrize(("kind", "strategy"), named.values(), ids=named.keys())


@pytest.mark.distributed
@cases(ON_TWO_RANKS)
def test_two_ranks_train_as_one_process_does(
    two_ranks: RankGroup, kind: str, strategy: Fields
) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy, kind=kind))


@pytest.mark.distributed
@cases(ON_FOUR_RANKS)
def test_four_ranks_train_as_one_process_does(
    four_ranks: RankGroup, kind: str, strategy: Fields
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy, kind=kind))


@pytest.mark.parity_full
@cases(LONG_ON_TWO_RANKS)
def test_two_ranks_under_every_schedule(two_ranks: RankGroup, kind: str, strategy: Fields) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy, kind=kind))


@pytest.mark.parity_full
@cases(LONG_ON_FOUR_RANKS)
def test_four_ranks_under_every_schedule(
    four_ranks: RankGroup, kind: str, strategy: Fields
) -> None:
    check_parity(four_ranks.run("parity", strategy=strategy, kind=kind))


@pytest.mark.parity_full
@cases(ON_EIGHT_RANKS)
def test_eight_ranks_in_three_dimensions(
    eight_ranks: RankGroup, kind: str, strategy: Fields
) -> None:
    check_parity(eight_ranks.run("parity", strategy=strategy, kind=kind))


@pytest.mark.parity_full
@pytest.mark.parametrize("schedule", OF_SEVERAL_STAGES.values(), ids=OF_SEVERAL_STAGES.keys())
@pytest.mark.parametrize("fields", [{"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3}, FULL])
def test_gradients_of_16_bits_are_summed_in_32(
    four_ranks: RankGroup, schedule: Fields, fields: Fields
) -> None:
    """Both parts of a divided backward add to one sum."""
    strategy = {**PP2, **schedule, **DP2, **fields}
    check_states(
        four_ranks.run("state_parity", strategy=strategy, precision="bf16"), loss=LOSS_OF_16_BITS
    )


@pytest.mark.parity_full
@pytest.mark.parametrize("schedule", OF_SEVERAL_STAGES.values(), ids=OF_SEVERAL_STAGES.keys())
def test_a_tied_weight_counts_once_in_the_norm(two_ranks: RankGroup, schedule: Fields) -> None:
    """In a V both copies lie on one rank."""
    strategy = {**PP2, **schedule}
    answer = two_ranks.run(
        "state_parity", strategy=strategy, kind="tied", largest_norm=LARGEST_NORM
    )
    check_clipped(answer)


@pytest.mark.parity_full
@pytest.mark.parametrize("schedule", OF_SEVERAL_STAGES.values(), ids=OF_SEVERAL_STAGES.keys())
@pytest.mark.parametrize("zero", [0, 2, 3])
def test_a_module_of_ones_own_trains_as_its_plain_script_does(
    four_ranks: RankGroup, schedule: Fields, zero: int
) -> None:
    """Its layer norms want their weights even for the second part of a divided backward."""
    strategy = {**PP2, **schedule, **DP2, "zero_stage": zero}
    answer = four_ranks.run("own_parity", strategy=strategy, kind="deep-words")
    assert answer["differences"] == []
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
