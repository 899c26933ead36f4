"""What a device keeps and holds, as the software and the job's flags have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cost.activations import gradient_rows_bytes
from planner.cost.compute import compute_seconds
from planner.cost.configuration import (
    Choice,
    Choices,
    Configuration,
    Configurations,
    LayerChoices,
)
from planner.cost.layer_costs import LayerBytes
from planner.cost.layers import layer_bytes, layer_costs, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.states import local_parameters, state_memory
from planner.cost.table import cost_table
from planner.hardware import cluster_hardware
from planner.schema.job import Precision, Stack
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
)
from planner.workload.activations import block_activations
from planner.workload.layer import LayerWorkload, ParameterCounts
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_job, a_model

HIDDEN, HEADS, TOKENS = 64, 4, 128
GPT = Block(
    attention=GroupedQueryAttention(
        head_count=HEADS, key_value_head_count=HEADS, head_size=16, rotary=False
    ),
    feed_forward=DenseFeedForward(ffn_size=4 * HIDDEN, gated=False),
    norm=Norm.LAYER,
)
LLAMA = Block(
    attention=GroupedQueryAttention(head_count=HEADS, key_value_head_count=HEADS, head_size=16),
    feed_forward=DenseFeedForward(ffn_size=2 * HIDDEN),
)
LOG_SUM_EXP = 4 * HEADS  # bytes a token that flash attention keeps, and 34 s b h leaves out
WHOLE = Choices.of([Choice(zero_stage=0)])
SHARDED = Choices.of([Choice(zero_stage=1)])


def a_setting(flags: dict[str, Any], **degrees: Any) -> Setting:
    """One configuration of a Megatron job, with one sequence of 128 tokens a micro-batch."""
    job = a_job(**{"sequence_length": TOKENS, "stack": Stack.MEGATRON, **flags})
    rows = Configurations.of([Configuration(**degrees)])
    return setting(job, cluster_hardware(a_cluster()).kinds[0], rows)


def a_layer(block: Block) -> LayerWorkload:
    graph = a_model(runs=(BlockRun(block=block, block_count=2),), final_norm=block.norm)
    return model_workload(graph).runs[0][0]


def bytes_of(priced: Setting, block: Block = GPT, choices: Choices = WHOLE) -> LayerBytes:
    extras = no_extras(priced)
    return layer_costs(
        a_layer(block), "block", choices=choices, setting=priced, extras=extras
    ).bytes


def kept_per_token(block: Block, flags: dict[str, Any], **degrees: Any) -> float:
    priced = a_setting(flags, **degrees)
    return float(bytes_of(priced, block).activations.item() / priced.tokens.item())


def test_a_gpt_block_with_dropout_keeps_34_bytes_a_hidden_element() -> None:
    kept = kept_per_token(GPT, {"dropout": True})
    assert kept - LOG_SUM_EXP == 34 * HIDDEN


def test_fused_norms_of_torch_keep_their_inputs_alone() -> None:
    """Each of two norms: no copy in 32 bits, two elements of 16 for each of its input."""
    plain = kept_per_token(LLAMA, {"stack": Stack.TORCH})
    fused = kept_per_token(LLAMA, {"stack": Stack.TORCH, "fused_elementwise": True})
    assert plain - fused == 2 * 2 * 2 * HIDDEN
    norms = kept_per_token(LLAMA, {"stack": Stack.TORCH, "fused_norms": True})
    assert norms == fused


def test_torch_keeps_whole_gathered_rows_unless_they_are_gathered_anew() -> None:
    """Attention and feed-forward each read one of 2 bytes an element."""
    split = {"tensor_parallel_degree": 4, "sequence_parallel": True}
    whole = kept_per_token(LLAMA, {"stack": Stack.TORCH}, **split)
    again = kept_per_token(LLAMA, {"stack": Stack.TORCH, "regathered_rows": True}, **split)
    assert whole - again == 3 / 4 * 2 * 2 * HIDDEN


def test_sequence_parallel_divides_all_of_it_where_rows_are_gathered_again() -> None:
    kept = kept_per_token(GPT, {"dropout": True}, tensor_parallel_degree=2, sequence_parallel=True)
    assert kept - LOG_SUM_EXP / 2 == 17 * HIDDEN


def test_without_sequence_parallel_ten_bytes_stay_whole() -> None:
    """Korthikanti et al. 2022: s b h (10 + 24 / t)."""
    kept = kept_per_token(GPT, {"dropout": True}, tensor_parallel_degree=4)
    assert kept - LOG_SUM_EXP / 4 == (10 + 24 / 4) * HIDDEN


def test_ranks_beyond_key_value_heads_keep_a_whole_one() -> None:
    """Four ranks: whole rows of two norms; a quarter of two rows of attention and three inside.

    Of two heads' keys and values each keeps one's. With norms of heads as much again of queries and
    keys, and a number in 32 bits for each of six heads, divided.
    """
    attention = LLAMA.attention.model_copy(update={"key_value_head_count": 2})
    shared = LLAMA.model_copy(update={"attention": attention})
    kept = kept_per_token(shared, {}, tensor_parallel_degree=4)
    assert kept == 2 * (4 * 64 + (2 * 64 + 3 * 128) / 4 + 2 * 16) + LOG_SUM_EXP / 4
    normed = attention.model_copy(update={"query_key_norm": True})
    block = LLAMA.model_copy(update={"attention": normed})
    more = kept_per_token(block, {}, tensor_parallel_degree=4) - kept
    assert more == 2 * (64 / 4 + 16) + 4 * 6 / 4


def test_gradients_of_gathered_queries_keys_and_values_are_joined_beside_the_blocks() -> None:
    """Twice 64 + 2 x 32 elements and a row; not gathered, two rows and a half of those inside."""
    attention = LLAMA.attention.model_copy(update={"key_value_head_count": 2})
    layer = a_layer(LLAMA.model_copy(update={"attention": attention}))
    four, two = (a_setting({}, tensor_parallel_degree=degree) for degree in (4, 2))
    assert gradient_rows_bytes(layer, four).item() == 2 * TOKENS * (2 * 128 + 64)
    assert gradient_rows_bytes(layer, two).item() == 2 * TOKENS * (2 * 64 + 2 * 128 / 2)


def test_ranks_beyond_key_value_heads_turn_the_same_keys() -> None:
    """Four passes over one head's keys of 16 in place of half a head's."""
    attention = LLAMA.attention.model_copy(update={"key_value_head_count": 2})
    layer = a_layer(LLAMA.model_copy(update={"attention": attention}))
    alone = replace(layer, elementwise=replace(layer.elementwise, key_values=0.0))
    priced = a_setting({}, tensor_parallel_degree=4)
    more = compute_seconds(layer, priced).forward - compute_seconds(alone, priced).forward
    moved_bytes = 2 * TOKENS * 4 * (16 - 8) * priced.stack.elementwise_ratio
    assert more.item() == pytest.approx(moved_bytes / priced.hardware.memory_bytes_per_second)


def test_unfused_attention_keeps_five_bytes_a_score_with_dropout_and_two_without() -> None:
    unfused = {"fused_attention": False}
    with_dropout = kept_per_token(GPT, {**unfused, "dropout": True})
    assert with_dropout - kept_per_token(GPT, {"dropout": True}) == 5 * HEADS * TOKENS
    assert kept_per_token(GPT, unfused) - kept_per_token(GPT, {}) == 2 * HEADS * TOKENS


def test_plain_torch_keeps_a_softmax_in_32_bits_and_what_a_product_reads_in_16() -> None:
    """A mask of a byte with dropout; in fp32 four bytes each, and none twice."""
    unfused = {"fused_attention": False, "stack": Stack.TORCH}
    plain = kept_per_token(GPT, {"stack": Stack.TORCH})
    assert kept_per_token(GPT, unfused) - plain == 6 * HEADS * TOKENS
    masked = kept_per_token(GPT, {"dropout": True, "stack": Stack.TORCH})
    assert kept_per_token(GPT, {**unfused, "dropout": True}) - masked == 7 * HEADS * TOKENS
    wide = {"precision": Precision.FP32}
    whole = kept_per_token(GPT, {"stack": Stack.TORCH, **wide})
    assert kept_per_token(GPT, {**unfused, **wide}) - whole == 4 * HEADS * TOKENS


def test_plain_torch_keeps_copies_that_fused_kernels_do_not() -> None:
    """Two rows of fp32 a norm, silu's output, and under it nothing else: 2 x (4 + 2) x 64."""
    plain = kept_per_token(LLAMA, {"stack": Stack.TORCH})
    assert plain - kept_per_token(LLAMA, {}) == 2 * (2 * 2 + 2) * HIDDEN


@pytest.mark.parametrize("stack", [Stack.MEGATRON, Stack.DEEPSPEED])
def test_layers_of_plain_torch_keep_as_much_whatever_stack_shards_them(stack: Stack) -> None:
    """As on torch itself: 2 x (4 + 2) x 64 bytes more than fused kernels."""
    plain = kept_per_token(LLAMA, {"stack": stack, "fused_elementwise": False})
    assert plain - kept_per_token(LLAMA, {"stack": stack}) == 2 * (2 * 2 + 2) * HIDDEN


def test_products_keep_what_they_read_in_8_bits_under_fp8() -> None:
    """Two norms' outputs, and the product of gate and up: a byte less for 2 x 64 + 128."""
    narrow = kept_per_token(LLAMA, {"precision": Precision.FP8})
    assert kept_per_token(LLAMA, {}) - narrow == 2 * HIDDEN + 2 * HIDDEN


def test_compiled_blocks_of_torchao_cast_anew_what_products_read() -> None:
    """All 16 bits of these go; without a compiler, or where a choice says what is kept, none."""
    of_torch = {"stack": Stack.TORCH, "fused_elementwise": True}
    wide = kept_per_token(LLAMA, of_torch)
    narrow = kept_per_token(LLAMA, {**of_torch, "precision": Precision.FP8})
    assert wide - narrow == 2 * (2 * HIDDEN + 2 * HIDDEN)
    eager = {"stack": Stack.TORCH}
    assert kept_per_token(LLAMA, {**eager, "precision": Precision.FP8}) == kept_per_token(
        LLAMA, eager
    )


def test_rows_of_routed_tokens_are_whole_where_tensor_parallel_ranks_split_experts() -> None:
    mixture = MixtureFeedForward(expert_count=4, experts_per_token=2, expert_ffn_size=32)
    block = LLAMA.model_copy(update={"feed_forward": mixture})
    degrees = {"tensor_parallel_degree": 2, "sequence_parallel": True}
    split = kept_per_token(block, {}, expert_tensor_parallel_degree=2, **degrees)
    whole = kept_per_token(block, {}, expert_tensor_parallel_degree=1, **degrees)
    assert split - whole == 2 * (2 * HIDDEN) / 2


@pytest.mark.parametrize(("stack", "rows"), [(Stack.MEGATRON, 1), (Stack.DEEPSPEED, 2)])
def test_rows_that_experts_put_out_are_kept_where_they_are_weighed_after_it(
    stack: Stack, rows: int
) -> None:
    """16 bits of 64 elements for each of two choices, sent, and back where weights need them."""
    routing = 4 * (4 + 10 * 2)
    mixture = MixtureFeedForward(expert_count=4, experts_per_token=2, expert_ffn_size=32)
    block = LLAMA.model_copy(update={"feed_forward": mixture})
    dense = LLAMA.model_copy(update={"feed_forward": DenseFeedForward(ffn_size=2 * 32)})
    kept = kept_per_token(block, {"stack": stack}) - kept_per_token(dense, {"stack": stack})
    assert kept == routing + rows * 2 * 2 * HIDDEN


@pytest.mark.parametrize(
    ("flags", "tensor_parallel_degree", "bytes_per_logit"),
    [
        ({"stack": Stack.TORCH}, 1, 12),
        ({"stack": Stack.TORCH}, 2, 16),
        ({"stack": Stack.TORCH, "fused_loss": True}, 2, 4),
        ({"stack": Stack.TORCH, "vocabulary_parallel_loss": False}, 1, 12),
        ({"stack": Stack.TORCH, "vocabulary_parallel_loss": False}, 2, 2 * 12),
        ({"vocabulary_parallel_loss": False}, 4, 4 * 12),
        ({"stack": Stack.TORCH, "shifted_logits": True}, 1, 4 * 4),
        ({"stack": Stack.TORCH, "shifted_logits": True, "varied_lengths": True}, 1, 1.5 * 16),
        ({"stack": Stack.TORCH, "varied_lengths": True}, 1, 1.5 * 12),
        ({}, 1, 6),
        ({}, 2, 6),
    ],
)
def test_the_loss_holds_so_many_bytes_a_logit(
    flags: dict[str, Any], tensor_parallel_degree: int, bytes_per_logit: float
) -> None:
    job = a_job(**{"sequence_length": TOKENS, "stack": Stack.MEGATRON, **flags})
    graph = a_model()
    table = cost_table(
        model_workload(graph),
        cluster_hardware(a_cluster()).kinds[0],
        job,
        configurations=Configurations.of(
            [Configuration(tensor_parallel_degree=tensor_parallel_degree)]
        ),
        choices=LayerChoices(blocks=WHOLE, embedding=WHOLE, head=WHOLE),
    )
    logits = TOKENS * graph.vocabulary_size / tensor_parallel_degree
    assert table.head.bytes.logits.item() == bytes_per_logit * logits


def logits_bytes(graph: ModelGraph, **flags: Any) -> float:
    """What the loss holds of a micro-batch on one device."""
    table = cost_table(
        model_workload(graph),
        cluster_hardware(a_cluster()).kinds[0],
        a_job(sequence_length=TOKENS, stack=Stack.TORCH, **flags),
        configurations=Configurations.of([Configuration()]),
        choices=LayerChoices(blocks=WHOLE, embedding=WHOLE, head=WHOLE),
    )
    return table.head.bytes.logits.item()


def test_pieces_of_a_fixed_size_leave_no_holes() -> None:
    held, varied = (
        logits_bytes(a_model(), fused_linear_loss=True, varied_lengths=varied)
        for varied in (False, True)
    )
    assert varied == held


def test_a_loss_that_takes_the_heads_product_holds_rows_of_hidden_size_alone() -> None:
    """Logits and their gradient of pieces as wide, and the gradient of the head's input."""
    graph = a_model(vocabulary_size=50 * a_model().hidden_size)
    held = logits_bytes(graph, fused_linear_loss=True)
    assert held == 3 * 2 * TOKENS * graph.hidden_size


@pytest.mark.parametrize(
    ("chunk_count", "fused", "bytes_per_logit"),
    [
        # One chunk is the loss of whole logits: 12 bytes, or the logits and their gradient.
        (1, False, 12.0),
        (1, True, 4.0),
        # The logits, their log-softmax in 32 bits, and a quarter's copy in 32.
        (4, False, 2.0 + 4.0 + 4.0 / 4),
        # The log-softmax, and two gradients of a half in 32.
        (2, False, 4.0 + 2 * 4.0 / 2),
        (8, False, 6.5),
        # The logits, and the gradient of an eighth.
        (8, True, 2.25),
    ],
)
def test_a_loss_in_chunks_has_one_at_a_time_in_32_bits(
    chunk_count: int, fused: bool, bytes_per_logit: float
) -> None:
    """As torch 2.13 allocates them where the caller lets the logits go before backward."""
    graph = a_model()
    held = logits_bytes(graph, loss_chunk_count=chunk_count, fused_loss=fused)
    assert held == bytes_per_logit * TOKENS * graph.vocabulary_size


@pytest.mark.parametrize("other", ["shifted_logits", "fused_linear_loss"])
def test_chunks_of_another_loss_are_refused(other: str) -> None:
    with pytest.raises(ValueError, match=f"loss_chunk_count 8 and {other} are different losses"):
        a_job(loss_chunk_count=8, **{other: True})


def test_two_kinds_of_loss_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="fused_loss and shifted_logits are different losses"):
        a_job(fused_loss=True, shifted_logits=True)


def test_a_cap_on_logits_keeps_their_tangent() -> None:
    graph = a_model()
    capped = graph.model_copy(update={"final_logit_softcapping": 30.0})
    more = logits_bytes(capped) - logits_bytes(graph)
    assert more == 2 * TOKENS * graph.vocabulary_size


def test_a_head_that_reads_a_share_of_rows_holds_as_much_less() -> None:
    graph = a_model()
    masked = graph.model_copy(update={"head_token_ratio": 0.25})
    assert logits_bytes(masked) == logits_bytes(graph) / 4


PARAMETERS = ParameterCounts(sharded=8_000_000, replicated=0)


def gradient_bytes(flags: dict[str, Any], **degrees: Any) -> float:
    """Bytes of gradients of eight million parameters under ZeRO-1 over four ranks."""
    priced = a_setting(flags, data_parallel_shard_degree=4, **degrees)
    return float(
        state_memory(local_parameters(PARAMETERS, priced), SHARDED, priced).gradients.item()
    )


def test_gradient_buffers_of_16_bits_are_half_as_large() -> None:
    assert gradient_bytes({}) == 4 * 8e6
    assert gradient_bytes({"gradients_in_16_bits": True}) == 2 * 8e6


def test_a_stack_without_gradient_buffers_pays_no_heed_to_their_width() -> None:
    flags = {"stack": Stack.DEEPSPEED, "precision": Precision.FP16}
    assert gradient_bytes({**flags, "gradients_in_16_bits": True}) == gradient_bytes(flags)


def test_bf16_pipelines_of_deepspeed_keep_whole_gradients_in_both_widths() -> None:
    """Six bytes a parameter; else two, and four of a quarter."""
    deepspeed = {"stack": Stack.DEEPSPEED}
    assert gradient_bytes(deepspeed, pipeline_parallel_degree=2) == 6 * 8e6
    assert gradient_bytes(deepspeed) == (2 + 4 / 4) * 8e6
    half = {**deepspeed, "precision": Precision.FP16}
    assert gradient_bytes(half, pipeline_parallel_degree=2) == (2 + 4 / 4) * 8e6


def test_gradient_buffers_are_there_beside_the_activations_of_a_single_micro_batch() -> None:
    """Without a buffer they appear as activations go, and only what exceeds these counts."""
    count = a_layer(GPT).parameters.total()
    assert bytes_of(a_setting({})).gradients.item() == 4 * count
    torch = bytes_of(a_setting({"stack": Stack.TORCH}))
    assert torch.gradients.item() == max(4 * count - torch.activations.item(), 0.0)


def test_deepspeed_holds_its_buckets_where_gradients_are_sharded() -> None:
    priced = a_setting({"stack": Stack.DEEPSPEED})
    whole, sharded = bytes_of(priced), bytes_of(priced, choices=SHARDED)
    copied = 2 * a_layer(GPT).parameters.total()  # of what is reduced, in 16 bits
    assert sharded.transient.item() - whole.transient.item() == 1.9 * 2**30 + copied


def test_parts_that_run_again_keep_nothing() -> None:
    """Latent attention's expansion: queries and keys of 4 x 24, values of 4 x 12, their product."""
    latent = LatentAttention(
        head_count=4,
        query_rank=24,
        key_value_rank=20,
        no_position_head_size=16,
        rotary_head_size=8,
        value_head_size=12,
    )
    block = Block(attention=latent, feed_forward=DenseFeedForward(ffn_size=128))
    plain = block_activations(block, HIDDEN).none
    spared = block_activations(
        block, HIDDEN, run_again=frozenset({"mla_up_proj", "layernorm"})
    ).none
    assert plain.sharded - spared.sharded == 2 * 4 * 24 + 4 * 12
    assert plain.row_copies - spared.row_copies == 4 * 16
    assert plain.gathered - spared.gathered == HIDDEN  # a dense product has the other norm inside


MIXTURE = MixtureFeedForward(
    expert_count=8, experts_per_token=2, expert_ffn_size=32, shared_ffn_size=48
)


@pytest.mark.parametrize(
    ("names", "spared"),
    [
        ({"moe_act"}, (0, 2 * 32, 0, 0)),
        ({"shared_experts"}, (2 * 48, 48, 0, 0)),
        ({"moe"}, (2 * (2 * 32 + 48), 2 * 32 + 48, 2 * 2 * HIDDEN, 0)),
        ({"moe", "moe_act"}, (2 * (2 * 32 + 48), 2 * 32 + 48, 2 * 2 * HIDDEN, 0)),
        ({"layernorm"}, (0, 0, 0, HIDDEN)),  # what router and experts read
        ({"mlp"}, (0, 0, 0, 0)),
    ],
)
def test_parts_of_mixtures_that_run_again_keep_nothing_and_none_is_spared_twice(
    names: set[str], spared: tuple[int, ...]
) -> None:
    """Divided rows, those that a product alone reads, those of routed tokens, and normed ones."""
    block = LLAMA.model_copy(update={"feed_forward": MIXTURE})
    plain = block_activations(block, HIDDEN).none
    kept = block_activations(block, HIDDEN, run_again=frozenset(names)).none
    kinds = ("sharded", "products", "routed", "gathered")
    assert tuple(getattr(plain, kind) - getattr(kept, kind) for kind in kinds) == spared


def test_a_dense_feed_forward_that_runs_again_keeps_no_row_and_no_normed_input() -> None:
    plain = block_activations(LLAMA, HIDDEN).none
    spared = block_activations(LLAMA, HIDDEN, run_again=frozenset({"mlp"})).none
    assert plain.sharded - spared.sharded == 2 * 2 * HIDDEN
    assert plain.products - spared.products == 2 * HIDDEN
    assert plain.gathered - spared.gathered == HIDDEN


def test_attention_s_core_that_runs_again_spares_the_sums_of_its_scores_alone() -> None:
    plain = block_activations(LLAMA, HIDDEN).none
    spared = block_activations(LLAMA, HIDDEN, run_again=frozenset({"core_attn"})).none
    assert plain.float32 - spared.float32 == HEADS
    assert plain.sharded == spared.sharded


def test_ends_that_stay_gathered_are_whole_beside_their_shards() -> None:
    """Two bytes for each of an end's parameters; those of a block go as they came."""
    flags = {"stack": Stack.TORCH, "ends_stay_gathered": True}
    counts = {"data_parallel_shard_degree": 4}
    whole = Choices.of([Choice(zero_stage=3)])
    kept, freed = (a_setting(own, **counts) for own in (flags, {"stack": Stack.TORCH}))
    end = replace(a_layer(LLAMA), name="embedding")
    found = [
        layer_bytes(end, choices=whole, setting=s, extras=no_extras(s, is_end=True))
        for s in (kept, freed)
    ]
    taken = 2 * end.parameters.total()
    assert found[0].parameters.item() - found[1].parameters.item() == taken
    blocks = [bytes_of(s, LLAMA, whole).parameters.item() for s in (kept, freed)]
    assert blocks[0] == blocks[1]


def test_a_part_that_a_block_lacks_spares_nothing() -> None:
    spared = block_activations(LLAMA, HIDDEN, run_again=frozenset({"moe_act", "mla_up_proj"}))
    assert spared == block_activations(LLAMA, HIDDEN)
