"""Compressed attention: what it asks per token, and what several rows of residual do.

What elementwise kernels move and what is kept is derived from the operations of transformers'
`modeling_deepseek_v4.py` and has not been measured. Projections of keys, of compressed keys and of
the index are whole on every tensor-parallel rank; heads and their output groups are divided.
"""

from __future__ import annotations

from planner.schema.block import Block
from planner.schema.compressed import CompressedAttention, KeyCompression
from planner.workload.layer import (
    ActivationElements,
    AttentionCore,
    ElementwiseTraffic,
    Gemm,
    ParameterCounts,
)

_WEIGHED_PASSES = 6  # a table added, softmax in fp32, product, sum over the window
_STREAM_PASSES = 9  # norm in fp32, collapse, and mixed: read, written, written with the part's
_STREAM_KERNELS = 140  # three small products, twenty rounds of two normalisations, two sums
_FUSED_STREAM_KERNELS = 10
_STREAM_COPIES = 4.0  # the rows in fp32, and normed in fp32


def compressed_core(attention: CompressedAttention) -> AttentionCore:
    """Return what of it depends on the sequence: a window, compressed keys and the index."""
    compression = attention.compression
    index = None if compression is None else compression.index
    return AttentionCore(
        head_count=attention.head_count,
        key_head_size=attention.head_size,
        value_head_size=attention.head_size,
        key_value_width=attention.head_size,
        window_tokens=attention.sliding_window_tokens,
        entry_tokens=None if compression is None else compression.tokens,
        entry_limit=None if index is None else index.entries_per_token,
        index_width=0 if index is None else index.head_count * index.head_size,
    )


def compressed_gemms(attention: CompressedAttention, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the matrix products over a token, in order of execution."""
    heads, groups = attention.head_count * attention.head_size, attention.output_group_count
    group_rows = groups * attention.output_rank
    return (
        _gemm("query_down", hidden_size, attention.query_rank),
        Gemm(name="query_up", inner_size=attention.query_rank, outer_size=heads, split="outer"),
        _gemm("key", hidden_size, attention.head_size, shares_input=True),
        *_compression_gemms(attention, hidden_size),
        Gemm(name="output_down", inner_size=heads // groups, outer_size=group_rows, split="outer"),
        Gemm(name="output", inner_size=group_rows, outer_size=hidden_size, split="inner"),
    )


def _compression_gemms(attention: CompressedAttention, hidden_size: int) -> tuple[Gemm, ...]:
    """Return rows and weights of the compressed keys, and those of the index with its queries."""
    compression = attention.compression
    if compression is None:
        return ()
    products = [
        _gemm("compressed", hidden_size, _columns(attention, compression), shares_input=True),
        _gemm("compressed_gate", hidden_size, _columns(attention, compression), shares_input=True),
    ]
    index = compression.index
    if index is not None:
        columns = _series(compression) * index.head_size
        products += [
            _gemm("index", hidden_size, columns, shares_input=True),
            _gemm("index_gate", hidden_size, columns, shares_input=True),
            _gemm("index_query", attention.query_rank, index.head_count * index.head_size),
            _gemm("index_weight", hidden_size, index.head_count, shares_input=True),
        ]
    return tuple(products)


def compressed_parameters(attention: CompressedAttention, hidden_size: int) -> ParameterCounts:
    """Return its parameters: products, norms of queries and keys, tables, a sink per head."""
    gemms = compressed_gemms(attention, hidden_size)
    weights = {
        split: sum(gemm.inner_size * gemm.outer_size for gemm in gemms if gemm.split == split)
        for split in ("outer", "inner", "none")
    }
    beside = attention.query_rank + attention.head_size
    compression = attention.compression
    if compression is not None:
        beside += compression.tokens * _columns(attention, compression) + attention.head_size
        if compression.index is not None:
            size = compression.index.head_size
            beside += compression.tokens * _series(compression) * size + size
    return ParameterCounts(
        sharded=weights["outer"] + weights["inner"] + attention.head_count,
        replicated=weights["none"] + beside,
    )


def compressed_activations(attention: CompressedAttention) -> ActivationElements:
    """Return what forward keeps beside the row that it reads, its output and their log-sum-exp.

    Rows before and after the norms, queries before and after norm and rotary, compressed rows with
    their weights before and after the softmax, and the output turned back and of each group.
    """
    heads = attention.head_count * attention.head_size
    whole = 3.0 * (attention.query_rank + attention.head_size)
    compression = attention.compression
    if compression is not None:
        columns = _columns(attention, compression)
        if compression.index is not None:
            columns += _series(compression) * compression.index.head_size
            whole += 2.0 * compression.index.head_count * compression.index.head_size
        whole += 4.0 * columns
    groups = attention.output_group_count * attention.output_rank
    return ActivationElements(
        gathered=whole, replicated=0.0, sharded=4.0 * heads + groups, float32=attention.head_count
    )


def compressed_traffic(attention: CompressedAttention) -> ElementwiseTraffic:
    """Return the elements per token that weighing windows moves: norms and rotary are apart."""
    compression = attention.compression
    if compression is None:
        return ElementwiseTraffic(replicated=0.0, sharded=0.0, kernel_count=0)
    columns, kernels = _columns(attention, compression), _WEIGHED_PASSES
    if compression.index is not None:
        columns += _series(compression) * compression.index.head_size
        kernels *= 2
    return ElementwiseTraffic(
        replicated=float(_WEIGHED_PASSES * columns), sharded=0.0, kernel_count=kernels
    )


def stream_gemms(block: Block, hidden_size: int, part_count: int) -> tuple[Gemm, ...]:
    """Return the product that says, before each part, how rows of residual are mixed."""
    count = block.residual_stream_count
    if count == 1:
        return ()
    mix = Gemm(
        name="residual_mix",
        inner_size=count * hidden_size,
        outer_size=_mixing_columns(block),
        split="none",
        in_16_bits=True,
    )
    return (mix,) * part_count


def stream_parameters(block: Block, hidden_size: int, part_count: int) -> int:
    """Return the parameters of mixing: a product, its bias, and its scales, for each part.

    There is a scale for what is collapsed, what is added, and where rows are mixed, for that.
    """
    count = block.residual_stream_count
    if count == 1:
        return 0
    scales = 2 + block.residual_mixing
    return part_count * (_mixing_columns(block) * (count * hidden_size + 1) + scales)


def _mixing_columns(block: Block) -> int:
    """Return the weights that a token's rows of residual have: to collapse, to add, to mix them."""
    count = block.residual_stream_count
    return (2 + count * block.residual_mixing) * count


def collapse_parameters(block: Block, hidden_size: int) -> int:
    """Return the parameters that make one row of several after the last block."""
    count = block.residual_stream_count
    return 0 if count == 1 else count * (count * hidden_size + 1) + 1


def stream_traffic(block: Block, hidden_size: int, part_count: int) -> ElementwiseTraffic:
    """Return the elements per token that rows of residual beside the first move."""
    count = block.residual_stream_count
    if count == 1:
        return ElementwiseTraffic(replicated=0.0, sharded=0.0, kernel_count=0)
    return ElementwiseTraffic(
        replicated=float(part_count * _STREAM_PASSES * count * hidden_size),
        sharded=0.0,
        kernel_count=part_count * _STREAM_KERNELS,
        unfused_kernel_count=part_count * (_STREAM_KERNELS - _FUSED_STREAM_KERNELS),
    )


def stream_activations(block: Block, hidden_size: int, part_count: int) -> ActivationElements:
    """Return what mixing keeps: the rows that it read, and copies of them in fp32."""
    rows = float(part_count * block.residual_stream_count * hidden_size)
    if block.residual_stream_count == 1:
        rows = 0.0
    return ActivationElements(
        gathered=0.0, replicated=rows, sharded=0.0, norm_copies=_STREAM_COPIES * rows
    )


def _columns(attention: CompressedAttention, compression: KeyCompression) -> int:
    return _series(compression) * attention.head_size


def _series(compression: KeyCompression) -> int:
    return 2 if compression.overlap else 1


def _gemm(name: str, inner_size: int, outer_size: int, *, shares_input: bool = False) -> Gemm:
    """Return a product that is whole on every tensor-parallel rank."""
    return Gemm(
        name=name,
        inner_size=inner_size,
        outer_size=outer_size,
        split="none",
        shares_input=shares_input,
    )
