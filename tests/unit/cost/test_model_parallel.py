"""Tensor-, context- and expert-parallel exchanges, counted by hand on links without latency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pytest

from planner.cost.configuration import Configuration, Configurations
from planner.cost.model_parallel import ModelParallelSeconds, model_parallel_seconds
from planner.cost.setting import Setting, setting
from planner.hardware import cluster_hardware
from planner.schema.cluster import NetworkLevel, NodeGroup
from planner.workload.layer import (
    ActivationElements,
    AttentionCore,
    ElementwiseTraffic,
    Gemm,
    LayerActivations,
    LayerWorkload,
    ParameterCounts,
)
from tests.builders import a_cluster, a_job

NODE, NETWORK = 100e9, 10e9  # bytes a second
TOKENS, HIDDEN, CHOSEN = 1_000_000, 1000, 4
WHOLE = TOKENS * HIDDEN * 2  # bytes of [tokens, hidden] in bf16: 2 GB


# Of exchanges alone, without what torch copies beside them
NO_FLAGS: Mapping[str, Any] = MappingProxyType({"copied_rows": False})


def a_setting(job: Mapping[str, Any] = NO_FLAGS, **degrees: Any) -> Setting:
    """One configuration on two nodes of eight: a million tokens a micro-batch without context."""
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=8)
    levels = (
        NetworkLevel(
            name="node", device_count=8, bandwidth_bytes_per_second=NODE, latency_seconds=0.0
        ),
        NetworkLevel(name="network", bandwidth_bytes_per_second=NETWORK, latency_seconds=0.0),
    )
    hardware = cluster_hardware(a_cluster(node_groups=(group,), levels=levels))
    rows = Configurations.of([Configuration(**degrees)])
    return setting(a_job(sequence_length=TOKENS, **job), hardware.kinds[0], rows)


def a_product(name: str, split: Literal["outer", "inner"], experts: int = 0) -> Gemm:
    """A product of the hidden size."""
    ratio = float(CHOSEN) if experts else 1.0
    return Gemm(
        name=name,
        inner_size=HIDDEN,
        outer_size=HIDDEN,
        split=split,
        tokens_ratio=ratio,
        expert_count=experts,
    )


CORE = AttentionCore(head_count=10, key_head_size=100, value_head_size=100, key_value_width=400)


def a_layer(*gemms: Gemm, experts_per_token: int = 0) -> LayerWorkload:
    """A block of 10 heads of 100 and 2 key-value heads."""
    nothing = ActivationElements(gathered=0.0, replicated=0.0, sharded=0.0)
    return LayerWorkload(
        name="block",
        hidden_size=HIDDEN,
        parameters=ParameterCounts(sharded=0, replicated=0),
        gemms=(a_product("output", "inner"), *gemms),
        attention=CORE,
        elementwise=ElementwiseTraffic(replicated=0.0, sharded=0.0, kernel_count=0),
        activations=LayerActivations(none=nothing, selective=nothing, full=nothing),
        selective_recompute_ratio=0.0,
        experts_per_token=experts_per_token,
    )


DENSE = a_layer(a_product("ffn_down", "inner"))
MIXTURE = a_layer(a_product("expert_down", "inner", experts=64), experts_per_token=CHOSEN)
WITH_SHARED = a_layer(
    a_product("expert_down", "inner", experts=64),
    a_product("shared_down", "inner"),
    experts_per_token=CHOSEN,
)


def seconds(layer: LayerWorkload, attention: float = 0.0, **degrees: Any) -> ModelParallelSeconds:
    """What the layer exchanges, attention taking so many seconds forward."""
    priced = a_setting(**degrees)
    return model_parallel_seconds(layer, "block", priced, np.array([[attention]]))


# What a row-split product reduces over 2 ranks of a node: 2 x 1/2 of [tokens, hidden].
ONE_REDUCTION = WHOLE / NODE


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_dense_block_reduces_twice(sequence_parallel: bool) -> None:
    """After attention and after the feed-forward."""
    priced = seconds(DENSE, tensor_parallel_degree=2, sequence_parallel=sequence_parallel)
    assert priced.tensor_forward.item() == pytest.approx(2 * ONE_REDUCTION)


# 0.86 x 3,350 GB/s, over which [tokens, hidden] passes once
ONE_PASS = WHOLE / (0.86 * 3350e9)
SPLIT_IN_TWO = {"tensor_parallel_degree": 2, "sequence_parallel": True}


def rounds(job: Mapping[str, Any], **degrees: Any) -> ModelParallelSeconds:
    """What a dense block of two ranks with split rows reduces."""
    here = a_setting(job=job, **SPLIT_IN_TWO, **degrees)
    return model_parallel_seconds(DENSE, "block", here, np.zeros((1, 1)))


def test_rows_that_are_scattered_along_the_sequence_are_read_and_written_once_more() -> None:
    """One sequence's gathered rows lie as they come; of several they are copied as well."""
    one = rounds({})
    assert one.tensor_forward.item() == pytest.approx(2 * (ONE_REDUCTION + 2 * ONE_PASS))
    assert one.tensor_backward.item() == one.tensor_forward.item()
    two = rounds({}, micro_batch_size=2)
    assert two.tensor_forward.item() == pytest.approx(2 * 2 * (ONE_REDUCTION + 4 * ONE_PASS))


@pytest.mark.parametrize("job", [{"stack": "megatron"}, {"stack": "deepspeed"}])
def test_programs_whose_sequence_comes_first_copy_nothing(job: Mapping[str, Any]) -> None:
    usual, copied = rounds(job), rounds({**job, "copied_rows": True})
    assert usual == rounds({**job, "copied_rows": False})
    assert copied.tensor_forward.item() > usual.tensor_forward.item()


def test_whole_rows_are_not_copied() -> None:
    """An all_reduce takes and brings them as they are."""
    assert seconds(DENSE, tensor_parallel_degree=2) == model_parallel_seconds(
        DENSE, "block", a_setting(job={}, tensor_parallel_degree=2), np.zeros((1, 1))
    )


def test_three_tenths_of_what_runs_beside_products_are_hidden() -> None:
    """All of it in forward, and torch's gathers in backward, where scatters are of sums.

    A rank copies its half for others, reads the parts of a sum and writes half of it: 1 and 1.5
    passes in place of 2 for a scatter.
    """
    whole = rounds({"copied_rows": False, "overlapped_tensor_parallel": True})
    assert whole.tensor_forward.item() == pytest.approx(2 * 0.7 * ONE_REDUCTION)
    assert whole.tensor_backward.item() == pytest.approx(2 * (0.35 + 0.5) * ONE_REDUCTION)
    copied = rounds({"overlapped_tensor_parallel": True})
    assert copied.tensor_forward.item() == pytest.approx(2 * (0.7 * ONE_REDUCTION + 2.5 * ONE_PASS))
    assert copied.tensor_backward.item() == pytest.approx(2 * (0.85 * ONE_REDUCTION + 3 * ONE_PASS))


def test_whole_rows_run_beside_no_product_in_torch() -> None:
    usual, asked = (
        a_setting(job=job, tensor_parallel_degree=2)
        for job in ({}, {"overlapped_tensor_parallel": True})
    )
    each = [model_parallel_seconds(DENSE, "block", one, np.zeros((1, 1))) for one in (usual, asked)]
    assert each[0] == each[1]


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_megatron_hides_part_of_them_unless_told_that_it_does_not(sequence_parallel: bool) -> None:
    hidden, exposed = (
        model_parallel_seconds(
            DENSE,
            "block",
            a_setting(
                job={"stack": "megatron", **job},
                tensor_parallel_degree=2,
                sequence_parallel=sequence_parallel,
            ),
            np.zeros((1, 1)),
        )
        for job in ({}, {"overlapped_tensor_parallel": False})
    )
    assert hidden.tensor_forward.item() == pytest.approx(2 * 0.7 * ONE_REDUCTION)
    assert hidden.tensor_backward.item() == pytest.approx(2 * 0.7 * ONE_REDUCTION)
    assert exposed.tensor_forward.item() == pytest.approx(2 * ONE_REDUCTION)


# What tokens carry of their four experts: a weight of 2 bytes and a number of 8 for each.
WEIGHTS, NUMBERS = 8e6, 32e6


def test_experts_that_no_other_rank_holds_exchange_only_which_tokens_pass_them() -> None:
    """Two ranks gather the other's half of both, and scatter the weights' gradients."""
    priced = seconds(MIXTURE, tensor_parallel_degree=2, sequence_parallel=True)
    assert priced.tensor_forward.item() == pytest.approx(2 * ONE_REDUCTION)
    assert priced.expert_forward.item() == pytest.approx((WEIGHTS + NUMBERS) / 2 / NODE)
    assert priced.expert_backward.item() == pytest.approx(WEIGHTS / 2 / NODE)


def test_where_ranks_have_the_same_tokens_all_the_weights_gradients_are_summed() -> None:
    priced = seconds(MIXTURE, tensor_parallel_degree=2)
    assert priced.expert_forward.item() == 0.0
    assert priced.expert_backward.item() == pytest.approx(WEIGHTS / NODE)


def test_where_ranks_take_their_own_of_the_same_tokens_weights_gradients_are_gathered() -> None:
    priced = seconds(MIXTURE, tensor_parallel_degree=2, expert_tensor_parallel_degree=1)
    forward, backward = priced.expert_forward.item(), priced.expert_backward.item()
    assert backward - forward == pytest.approx(WEIGHTS / 2 / NODE)


def test_nothing_of_it_is_priced_under_other_stacks() -> None:
    degrees = {"tensor_parallel_degree": 2, "sequence_parallel": True}
    setting = a_setting(job={"stack": "megatron"}, **degrees)
    priced = model_parallel_seconds(MIXTURE, "block", setting, np.zeros((1, 1)))
    assert priced.expert_forward.item() == priced.expert_backward.item() == 0.0


def test_dispatch_and_combine_move_every_chosen_copy() -> None:
    """Twice 7/8 of 4 copies of each token over 8 ranks of a node, forward and backward."""
    priced = seconds(MIXTURE, expert_parallel_degree=8, data_parallel_shard_degree=8)
    assert priced.expert_forward.item() == pytest.approx(2 * 7 / 8 * CHOSEN * WHOLE / NODE)
    assert priced.expert_backward.item() == pytest.approx(2 * 7 / 8 * CHOSEN * WHOLE / NODE)


def test_forward_first_exchanges_how_many_rows_each_expert_takes() -> None:
    """64 numbers of 8 bytes, of which 7/8 leave a rank; a fixed number of rows needs none."""
    degrees = {"expert_parallel_degree": 8, "data_parallel_shard_degree": 8}
    priced = seconds(MIXTURE, **degrees)
    counts = priced.expert_forward.item() - priced.expert_backward.item()
    assert counts == pytest.approx(7 / 8 * 64 * 8 / NODE, rel=1e-6)
    fixed = model_parallel_seconds(
        MIXTURE, "block", a_setting(job={"fixed_expert_tokens": True}, **degrees), np.zeros((1, 1))
    )
    assert fixed.expert_forward.item() == fixed.expert_backward.item()


def test_more_expert_parallel_ranks_do_not_shrink_what_is_dispatched() -> None:
    """Of 16 ranks on two nodes half of each device's copies cross the network; of 4, none leave."""
    sixteen = seconds(MIXTURE, expert_parallel_degree=16, data_parallel_shard_degree=16)
    assert sixteen.expert_forward.item() == pytest.approx(2 * CHOSEN * WHOLE / 2 / NETWORK)
    four = seconds(MIXTURE, expert_parallel_degree=4, data_parallel_shard_degree=16)
    assert four.expert_forward.item() == pytest.approx(2 * 3 / 4 * CHOSEN * WHOLE / NODE)


def test_tensor_parallel_ranks_with_all_tokens_each_dispatch_all() -> None:
    """Without sequence parallel: 4 ranks, 2 devices apart, within a node; reduced as if dense."""
    priced = seconds(
        MIXTURE, tensor_parallel_degree=2, expert_parallel_degree=4, data_parallel_shard_degree=4
    )
    assert priced.expert_forward.item() == pytest.approx(2 * 3 / 4 * CHOSEN * WHOLE / NODE)
    assert priced.tensor_forward.item() == pytest.approx(2 * ONE_REDUCTION)


def test_split_tokens_are_dispatched_once_and_gathered_for_split_experts() -> None:
    """Half the copies leave each of 2 tensor ranks, which then gather the other's half."""
    priced = seconds(
        MIXTURE,
        tensor_parallel_degree=2,
        sequence_parallel=True,
        expert_parallel_degree=4,
        data_parallel_shard_degree=4,
    )
    dispatch = 3 / 4 * CHOSEN * WHOLE / 2 / NODE
    gather = 1 / 2 * CHOSEN * WHOLE / NODE
    assert priced.expert_forward.item() == pytest.approx(2 * dispatch + 2 * gather)
    assert priced.tensor_forward.item() == pytest.approx(ONE_REDUCTION)


def test_experts_split_over_half_the_tensor_ranks_gather_half_as_much() -> None:
    """Four pairs hold different experts: each rank sends a quarter, and gathers its pair's half."""
    priced = seconds(
        MIXTURE,
        tensor_parallel_degree=4,
        sequence_parallel=True,
        expert_parallel_degree=4,
        expert_tensor_parallel_degree=2,
        data_parallel_shard_degree=2,
    )
    dispatch = 3 / 4 * CHOSEN * WHOLE / 4 / NODE
    gather = 1 / 2 * CHOSEN * WHOLE / 2 / NODE
    assert priced.expert_forward.item() == pytest.approx(2 * dispatch + 2 * gather)


def test_experts_of_all_ranks_that_are_split_over_some_gather_what_these_hold() -> None:
    """Without expert parallelism pairs of tensor ranks still need one another's tokens."""
    priced = seconds(
        MIXTURE, tensor_parallel_degree=4, sequence_parallel=True, expert_tensor_parallel_degree=2
    )
    assert priced.expert_forward.item() == pytest.approx(2 * 1 / 2 * CHOSEN * WHOLE / 2 / NODE)


def test_unsplit_experts_need_no_gather() -> None:
    """8 expert-parallel ranks span 2 tensor ranks and 4 shards: each sends its half."""
    priced = seconds(
        MIXTURE,
        tensor_parallel_degree=2,
        sequence_parallel=True,
        expert_parallel_degree=8,
        expert_tensor_parallel_degree=1,
        data_parallel_shard_degree=4,
    )
    assert priced.expert_forward.item() == pytest.approx(2 * 7 / 8 * CHOSEN * WHOLE / 2 / NODE)
    assert priced.tensor_forward.item() == pytest.approx(ONE_REDUCTION)


def test_unsplit_experts_without_sequence_parallel_gather_their_output() -> None:
    """As above, and half of [tokens, hidden] from the other tensor rank."""
    priced = seconds(
        MIXTURE,
        tensor_parallel_degree=2,
        expert_parallel_degree=8,
        expert_tensor_parallel_degree=1,
        data_parallel_shard_degree=4,
    )
    dispatch = 7 / 8 * CHOSEN * WHOLE / 2 / NODE
    assert priced.expert_forward.item() == pytest.approx(2 * dispatch + WHOLE / 2 / NODE)


def test_a_shared_expert_is_reduced_like_a_dense_one() -> None:
    priced = seconds(
        WITH_SHARED,
        tensor_parallel_degree=2,
        sequence_parallel=True,
        expert_parallel_degree=8,
        expert_tensor_parallel_degree=1,
        data_parallel_shard_degree=4,
    )
    assert priced.tensor_forward.item() == pytest.approx(2 * ONE_REDUCTION)


# A quarter of the tokens, 1,000 wide, merged three times at 12 bytes and 0.86 x 3,350 GB/s.
THREE_MERGES = 3 * TOKENS / 4 * 1000 * 12 / (0.86 * 3350e9)


def test_a_ring_passes_keys_and_values() -> None:
    """4 ranks of a quarter of the tokens, 400 wide: 3 passes; backward carries gradients too."""
    priced = seconds(DENSE, context_parallel_degree=4)
    once = 3 * TOKENS / 4 * 400 * 2 / NODE
    assert priced.context_forward.item() == pytest.approx(once + THREE_MERGES)
    assert priced.context_backward.item() == pytest.approx(2 * once + THREE_MERGES)


def test_a_ring_hides_under_attention_but_for_what_it_merges() -> None:
    priced = seconds(DENSE, attention=1.0, context_parallel_degree=4)
    assert priced.context_forward.item() == pytest.approx(THREE_MERGES)


def test_one_rank_passes_and_merges_nothing() -> None:
    assert seconds(DENSE).context_forward.item() == 0.0


def test_exchanging_heads_moves_queries_keys_values_and_outputs() -> None:
    """2 ranks: half of 1000 + 200 + 200 + 1000 elements of each of half a million tokens."""
    priced = seconds(
        DENSE, attention=1.0, context_parallel_degree=2, context_parallel_kind="all_to_all"
    )
    expected = TOKENS / 2 * 2400 * 2 / 2 / NODE
    assert priced.context_forward.item() == pytest.approx(expected)
    assert priced.context_backward.item() == pytest.approx(expected)


def test_key_value_heads_are_sent_to_all_ranks_that_need_them() -> None:
    """10 ranks share 2 key-value heads: each sends 10 of keys and 10 of values.

    Blocks of ten straddle nodes of eight with two ranks on one side: 8/10 over the network.
    """
    priced = seconds(DENSE, context_parallel_degree=10, context_parallel_kind="all_to_all")
    expected = TOKENS / 10 * 4000 * 2 * 8 / 10 / NETWORK
    assert priced.context_forward.item() == pytest.approx(expected)


# Queries of 10 heads of 100, keys and values of 2: 1,400 elements a token, in bf16
SHARED = replace(DENSE, attention=replace(CORE, gathered_width=1400))
MIXED = TOKENS * 1400 * 2
MIXED_PASS = MIXED / (0.86 * 3350e9)


def beyond(priced: ModelParallelSeconds, known: ModelParallelSeconds, part: str) -> float:
    """What one takes more than the other."""
    return float((getattr(priced, part) - getattr(known, part)).item())


def test_ranks_beyond_key_value_heads_gather_queries_keys_and_values() -> None:
    """4 ranks move 3/4 of the bytes each way; memory 2 forward, and 3 + 5 / 2 backward."""
    known = seconds(DENSE, tensor_parallel_degree=4)
    priced = seconds(SHARED, tensor_parallel_degree=4)
    gather = 3 / 4 * MIXED / NODE + 2 * MIXED_PASS
    assert beyond(priced, known, "tensor_forward") == pytest.approx(gather)
    scatter = 3 / 4 * MIXED / NODE + 5.5 * MIXED_PASS
    assert beyond(priced, known, "tensor_backward") == pytest.approx(scatter)
    for again in ("tensor_recompute_full", "tensor_recompute_selective"):
        assert beyond(priced, known, again) == pytest.approx(gather)


def test_as_many_ranks_as_key_value_heads_gather_none_of_them() -> None:
    degrees = {"tensor_parallel_degree": 2, "context_parallel_degree": 2}
    assert seconds(SHARED, **degrees) == seconds(DENSE, **degrees)


def test_where_attention_alone_runs_again_nothing_is_gathered_again() -> None:
    job = {"stack": "megatron", "fused_attention": False}
    here = a_setting(job=job, tensor_parallel_degree=4)
    priced = model_parallel_seconds(SHARED, "block", here, np.zeros((1, 1)))
    assert priced.tensor_recompute_selective.item() == 0.0


def test_a_ring_of_such_ranks_passes_a_whole_key_value_head() -> None:
    """Of 400 elements a token each of 4 has 200 in place of 100, and sends them to one other."""
    degrees = {"tensor_parallel_degree": 4, "context_parallel_degree": 2}
    known, priced = seconds(DENSE, **degrees), seconds(SHARED, **degrees)
    more = TOKENS / 2 * (200 - 100) * 2 / NODE
    assert beyond(priced, known, "context_forward") == pytest.approx(more)
    assert beyond(priced, known, "context_backward") == pytest.approx(2 * more)


VOCABULARY = 50_000


def of_ends(
    role: Literal["embedding", "head"], job: Mapping[str, Any] = NO_FLAGS, *, split: bool
) -> tuple[float, float]:
    """What the embedding or the head of two ranks exchanges forward and backward, in reductions."""
    product = replace(a_product("head", "outer"), outer_size=VOCABULARY)
    layer = replace(DENSE, gemms=(product,) if role == "head" else ())
    here = a_setting(job=job, tensor_parallel_degree=2, sequence_parallel=split)
    found = model_parallel_seconds(layer, role, here, np.zeros((1, 1)))
    return (
        found.tensor_forward.item() / ONE_REDUCTION,
        found.tensor_backward.item() / ONE_REDUCTION,
    )


def test_an_embedding_is_summed_once_and_its_gradient_gathered_where_rows_are_split() -> None:
    """A reduction is two halves: scatter or gather; with whole rows it is an all_reduce."""
    assert of_ends("embedding", split=True) == pytest.approx((0.5, 0.5))
    assert of_ends("embedding", split=False) == pytest.approx((1.0, 0.0))


def test_a_heads_input_is_gathered_once_and_its_gradient_summed() -> None:
    assert of_ends("head", split=True) == pytest.approx((0.5, 0.5))
    assert of_ends("head", split=False) == pytest.approx((0.0, 1.0))


def test_neither_end_runs_in_pieces_and_megatron_sums_beside_weights_gradients() -> None:
    asked = {"copied_rows": False, "overlapped_tensor_parallel": True}
    assert of_ends("head", asked, split=True) == pytest.approx((0.5, 0.5))
    megatron = {"stack": "megatron"}
    assert of_ends("embedding", megatron, split=True) == pytest.approx((0.5, 0.5))
    assert of_ends("head", megatron, split=True) == pytest.approx((0.5, 0.35))


def test_ranks_that_hold_whole_logits_gather_and_join_them() -> None:
    """Half of 50,000 logits a token come from the other rank; a copy reads and writes them all."""
    whole = {"copied_rows": False, "vocabulary_parallel_loss": False}
    logits = TOKENS * VOCABULARY * 2
    taken = logits / 2 / NODE + 2 * logits / (0.86 * 3350e9)
    forward, backward = of_ends("head", whole, split=False)
    assert forward == pytest.approx(taken / ONE_REDUCTION)
    assert backward == pytest.approx(1.0)


def test_rows_that_are_gathered_again_wait_for_it_unless_collectives_run_beside_products() -> None:
    """A gather is half a reduction, once more for each of the block's two rounds."""
    kept, again = rounds(NO_FLAGS), rounds({**NO_FLAGS, "regathered_rows": True})
    assert again.tensor_forward.item() == kept.tensor_forward.item()
    more = again.tensor_backward.item() - kept.tensor_backward.item()
    assert more == pytest.approx(2 * 0.5 * ONE_REDUCTION)
    beside = {**NO_FLAGS, "overlapped_tensor_parallel": True}
    assert rounds({**beside, "regathered_rows": True}) == rounds(beside)
    megatron = {"stack": "megatron"}
    assert rounds({**megatron, "regathered_rows": True}) == rounds(megatron)
    assert of_ends("head", {**NO_FLAGS, "regathered_rows": True}, split=True) == pytest.approx(
        (0.5, 1.0)
    )
