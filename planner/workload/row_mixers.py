"""Row mixers: what selective scans and short convolutions ask per token, as fused kernels run.

Neither has products of tokens with one another: one kernel reads the rows and writes the output.
What is kept is what `mamba_inner_fn` saves at its own checkpointing level, which makes the
convolved row and the step again; for the short convolution it is what autograd keeps. None of it
was measured.

Source: Gu and Dao 2023, arXiv:2312.00752, section 3.3; mamba_ssm `ops/selective_scan_interface.py`;
transformers `models/lfm2/modeling_lfm2.py`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.schema.mixer import SelectiveScanMixer, ShortConvolutionMixer
from planner.workload.layer import (
    ActivationElements,
    ElementwiseTraffic,
    Gemm,
    ParameterCounts,
)

RowMixer = SelectiveScanMixer | ShortConvolutionMixer

_SCAN_KERNELS = 4  # convolution, scan, decay of its logarithm, step and rows put in place
_CONVOLUTION_KERNELS = 5  # three parts put in place, gate, convolution, gate
_NORM_PASSES = 4
_SCAN_CHUNK_TOKENS = 2048  # a state is kept in fp32 for each
_GATED_ROWS = 3  # two gates and what is convolved


def row_mixer_gemms(mixer: RowMixer, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the products with weights, in order of execution."""
    width = mixer.inner_width
    output = replace(_gemm("mixer_out", width, hidden_size), split="inner")
    if isinstance(mixer, ShortConvolutionMixer):
        return (_gemm("mixer_in", hidden_size, _GATED_ROWS * width), output)
    return (
        _gemm("mixer_in", hidden_size, 2 * width),
        replace(_gemm("scan_rows", width, mixer.row_width), split="inner"),
        _gemm("scan_step", mixer.step_rank, width),
        output,
    )


def row_mixer_parameters(mixer: RowMixer, hidden_size: int) -> ParameterCounts:
    """Return the parameters: projections, convolution, and a scan's decay, skip and step.

    A scan has a decay for each channel and state, and a skip and an offset of its step for each
    channel.
    """
    gemms = row_mixer_gemms(mixer, hidden_size)
    width = mixer.inner_width
    sharded = sum(gemm.inner_size * gemm.outer_size for gemm in gemms)
    sharded += mixer.convolution_width * width
    biased = hidden_size if mixer.bias else 0
    if isinstance(mixer, ShortConvolutionMixer):
        sharded += (_GATED_ROWS + 1) * width if mixer.bias else 0
        return ParameterCounts(sharded=sharded, replicated=biased)
    sharded += width * (mixer.state_size + 2)
    sharded += width if mixer.convolution_bias else 0
    sharded += 2 * width if mixer.bias else 0
    normed = mixer.row_width if mixer.normed_rows else 0
    return ParameterCounts(sharded=sharded, replicated=biased + normed)


def row_mixer_traffic(mixer: RowMixer) -> ElementwiseTraffic:
    """Return the elements per token that the kernels between the projections move.

    A scan's convolution reads and writes its row, the scan reads that, step, gate and both rows of
    the state, and writes its output. A short convolution reads and writes a row thrice, two of them
    with a gate.
    """
    width = mixer.inner_width
    if isinstance(mixer, ShortConvolutionMixer):
        return ElementwiseTraffic(
            replicated=0.0, sharded=8.0 * width, kernel_count=_CONVOLUTION_KERNELS
        )
    moved, kernels = 6.0 * width + 2.0 * mixer.state_size, _SCAN_KERNELS
    if mixer.normed_rows:
        moved, kernels = moved + _NORM_PASSES * mixer.row_width, kernels + 3
    return ElementwiseTraffic(replicated=0.0, sharded=moved, kernel_count=kernels)


def row_mixer_activations(mixer: RowMixer) -> ActivationElements:
    """Return what forward keeps beside the row that the mixer reads.

    A scan keeps row and gate, the row that step and state are made of, its output, and now and then
    the state. A short convolution keeps its three parts, the row before and after, and its output.
    """
    width = mixer.inner_width
    if isinstance(mixer, ShortConvolutionMixer):
        return ActivationElements(gathered=0.0, replicated=0.0, sharded=6.0 * width)
    rows = mixer.row_width * (2 if mixer.normed_rows else 1)
    return ActivationElements(
        gathered=0.0,
        replicated=0.0,
        sharded=3.0 * width + rows,
        float32=2.0 * width * mixer.state_size / _SCAN_CHUNK_TOKENS,
    )


def _gemm(name: str, inner_size: int, outer_size: int) -> Gemm:
    return Gemm(name=name, inner_size=inner_size, outer_size=outer_size, split="outer")
