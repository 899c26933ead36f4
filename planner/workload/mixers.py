"""Mixers: what state-space layers and gated delta nets ask per token, as their fused kernels run.

What selective scans and short convolutions ask is `planner.workload.row_mixers`'s business. These
three work through a sequence in chunks: products of a chunk's tokens with one another, and of each
token with the state that goes from chunk to chunk. Those products have no weights and keep no
output; a chunk's matrices are counted whole, as kernels compute them. What elementwise kernels move
and what is kept is derived from the kernels' sources. Published steps of a Nemotron-H are predicted
11 % too fast; no gated delta net's were found.

Source: Dao and Gu 2024, arXiv:2405.21060, section 6; Yang et al. 2024, arXiv:2412.06464, section 3;
mamba_ssm `ops/triton/ssd_combined.py`; flash-linear-attention `ops/gated_delta_rule/chunk.py`; Qin
et al. 2024, arXiv:2401.04658, algorithm 1; transformers 5.23 `models/minimax/modeling_minimax.py`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.schema.mixer import (
    GatedDeltaMixer,
    LinearAttentionMixer,
    Mixer,
    SelectiveScanMixer,
    ShortConvolutionMixer,
    StateSpaceMixer,
)
from planner.workload.layer import (
    ActivationElements,
    ElementwiseTraffic,
    Gemm,
    ParameterCounts,
)
from planner.workload.row_mixers import (
    row_mixer_activations,
    row_mixer_gemms,
    row_mixer_parameters,
    row_mixer_traffic,
)

_STATE_SPACE_KERNELS = 7  # convolution, five of the scan, gated norm
_GATED_DELTA_KERNELS = 14  # convolution, two norms, four of decay and step, six of chunks, norm
_LINEAR_KERNELS = 5  # activation, attention, norm, gate, their product
_LINEAR_ROWS_MOVED = (
    17  # three activated, read again, one written; norm and gate in and out; product
)
_LINEAR_ROWS_KEPT = 10  # three before and after activation; attention's, norm's, gate's, product
_STATE_PASSES = 6  # of 16 bits: written and read in 32, passed on and read in 16
_CONVOLUTION_PASSES = 2
_GATED_NORM_PASSES = 3  # read the scan's output and the gate, write
_HEAD_NORM_PASSES = 4
_CHANNEL_DECAY_PASSES = 4  # written and read in fp32, as its running sum in a chunk


def mixer_gemms(mixer: Mixer, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the products of a mixer, in order of execution: in, those of the scan, out."""
    if isinstance(mixer, SelectiveScanMixer | ShortConvolutionMixer):
        return row_mixer_gemms(mixer, hidden_size)
    return (
        _gemm("mixer_in", hidden_size, mixer.input_width),
        *_ranked_gemms(mixer, hidden_size),
        *(replace(product, weightless=True, in_16_bits=True) for product in _scan(mixer)),
        replace(_gemm("mixer_out", mixer.inner_width, hidden_size), split="inner"),
    )


def mixer_parameters(mixer: Mixer, hidden_size: int) -> ParameterCounts:
    """Return the parameters: projections, short convolution, decay and step per head, norm.

    The state-space layer has a skip per head beside, and norms all of its width, as lightning
    attention does, which has projections alone beside; the gated delta net norms each head by the
    same weights.
    """
    if isinstance(mixer, SelectiveScanMixer | ShortConvolutionMixer):
        return row_mixer_parameters(mixer, hidden_size)
    sharded = hidden_size * (mixer.input_width + mixer.inner_width)
    if isinstance(mixer, LinearAttentionMixer):
        return ParameterCounts(sharded=sharded + mixer.inner_width, replicated=0)
    sharded += mixer.convolution_width * mixer.convolved_width
    if isinstance(mixer, GatedDeltaMixer):
        rank = mixer.gate_rank or 0
        own = mixer.value_head_count + mixer.decay_width  # a rate per head, an offset per decay
        expanded = rank * (mixer.decay_width + mixer.inner_width)
        return ParameterCounts(
            sharded=sharded + own + expanded,
            replicated=mixer.value_head_size + 2 * rank * hidden_size,
        )
    sharded += 3 * mixer.head_count
    sharded += mixer.convolved_width if mixer.convolution_bias else 0
    sharded += mixer.input_width if mixer.input_bias else 0
    sharded += mixer.inner_width if mixer.gated_norm else 0
    return ParameterCounts(sharded=sharded, replicated=hidden_size if mixer.output_bias else 0)


def mixer_traffic(mixer: Mixer) -> ElementwiseTraffic:
    """Return the elements per token that the kernels between the projections move."""
    if isinstance(mixer, SelectiveScanMixer | ShortConvolutionMixer):
        return row_mixer_traffic(mixer)
    if isinstance(mixer, LinearAttentionMixer):
        states = 2.0 * mixer.inner_width * mixer.head_size / mixer.chunk_tokens
        rows = float(_LINEAR_ROWS_MOVED * mixer.inner_width)
        return ElementwiseTraffic(
            replicated=0.0, sharded=rows + states, kernel_count=_LINEAR_KERNELS
        )
    moved = _CONVOLUTION_PASSES * mixer.convolved_width
    moved += _GATED_NORM_PASSES * mixer.inner_width
    moved += mixer.convolved_width + mixer.inner_width  # the scan reads its rows, writes its output
    if isinstance(mixer, StateSpaceMixer):
        states = _STATE_PASSES * mixer.inner_width * mixer.state_size // mixer.chunk_tokens
        kernels = _STATE_SPACE_KERNELS
    else:
        keys = mixer.value_head_count * mixer.key_head_size
        moved += _HEAD_NORM_PASSES * 2 * mixer.key_head_count * mixer.key_head_size
        moved += 2 * (keys + mixer.inner_width)  # corrected keys and values, written and read
        states = 2 * mixer.inner_width * mixer.key_head_size // mixer.chunk_tokens
        kernels = _GATED_DELTA_KERNELS
        if mixer.gate_rank is not None:
            moved += _CHANNEL_DECAY_PASSES * mixer.decay_width
    return ElementwiseTraffic(replicated=0.0, sharded=float(moved + states), kernel_count=kernels)


def mixer_activations(mixer: Mixer) -> ActivationElements:
    """Return what forward keeps beside the row that the mixer reads.

    The state-space kernel keeps what the input projection put out and the scan's output, and runs
    the convolution again. The gated delta net keeps the rows before and after the convolution, the
    gate, a chunk's solved matrix, the output before and after its norm, and two numbers per head:
    a step, and a decay with its sum, which may have as many as its keys have channels.
    """
    if isinstance(mixer, SelectiveScanMixer | ShortConvolutionMixer):
        return row_mixer_activations(mixer)
    if isinstance(mixer, LinearAttentionMixer):
        rows = float(_LINEAR_ROWS_KEPT * mixer.inner_width)
        return ActivationElements(gathered=0.0, replicated=0.0, sharded=rows)
    if isinstance(mixer, StateSpaceMixer):
        return ActivationElements(
            gathered=0.0,
            replicated=0.0,
            sharded=float(mixer.input_width + mixer.inner_width),
            float32=float(mixer.group_count),
        )
    chunk = mixer.chunk_tokens * mixer.value_head_count
    return ActivationElements(
        gathered=float(2 * (mixer.gate_rank or 0)),
        replicated=0.0,
        sharded=float(2 * mixer.convolved_width + 3 * mixer.inner_width + chunk),
        float32=float(2 * mixer.decay_width + mixer.value_head_count),
    )


def _ranked_gemms(mixer: Mixer, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the products of a decay and an output gate that go by way of a narrow row."""
    if not isinstance(mixer, GatedDeltaMixer) or mixer.gate_rank is None:
        return ()
    rank = mixer.gate_rank
    return (
        replace(_gemm("decay_down", hidden_size, rank), split="none", shares_input=True),
        _gemm("decay_up", rank, mixer.decay_width),
        replace(_gemm("gate_down", hidden_size, rank), split="none", shares_input=True),
        _gemm("gate_up", rank, mixer.inner_width),
    )


def _scan(mixer: StateSpaceMixer | GatedDeltaMixer | LinearAttentionMixer) -> tuple[Gemm, ...]:
    """Return the products without weights."""
    if isinstance(mixer, StateSpaceMixer):
        return _state_space_scan(mixer)
    if isinstance(mixer, LinearAttentionMixer):
        return _linear_scan(mixer)
    return _delta_scan(mixer)


def _linear_scan(mixer: LinearAttentionMixer) -> tuple[Gemm, ...]:
    """Return queries times keys of a chunk, that times values, and the state written and read."""
    chunk, size, width = mixer.chunk_tokens, mixer.head_size, mixer.inner_width
    return (
        _gemm("scan_scores", size, mixer.head_count * chunk),
        _gemm("scan_values", chunk, width),
        _gemm("state_write", size, width),
        _gemm("state_read", size, width),
    )


def _state_space_scan(mixer: StateSpaceMixer) -> tuple[Gemm, ...]:
    """Return queries times keys of a chunk, that times values, and the state written and read."""
    chunk, state, width = mixer.chunk_tokens, mixer.state_size, mixer.inner_width
    return (
        _gemm("scan_scores", state, mixer.group_count * chunk),
        _gemm("scan_values", chunk, width),
        _gemm("state_write", state, width),
        _gemm("state_read", state, width),
    )


def _delta_scan(mixer: GatedDeltaMixer) -> tuple[Gemm, ...]:
    """Return a chunk's keys times keys and queries, what its solution corrects, and the state's."""
    chunk, heads, key_size = mixer.chunk_tokens, mixer.value_head_count, mixer.key_head_size
    width = mixer.inner_width
    return (
        _gemm("scan_keys", key_size, heads * chunk),
        _gemm("corrected_values", chunk, width),
        _gemm("corrected_keys", chunk, heads * key_size),
        _gemm("scan_scores", key_size, heads * chunk),
        _gemm("scan_values", chunk, width),
        _gemm("state_correct", key_size, width),
        _gemm("state_write", key_size, width),
        _gemm("state_read", key_size, width),
    )


def _gemm(name: str, inner_size: int, outer_size: int) -> Gemm:
    return Gemm(name=name, inner_size=inner_size, outer_size=outer_size, split="outer")
