"""Mixer: what carries a state along the sequence instead of attending to all of it.

State spaces and delta nets run through a sequence in chunks: products within a chunk, and a state
from chunk to chunk, as in lightning attention. A selective scan goes token by token in one kernel;
a short convolution sees the last few tokens alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Part, PositiveCount


class StateSpaceMixer(Part):
    """A Mamba-2 layer (arXiv:2405.21060): a scalar decay per head, keys and queries per group.

    Each of `group_count` groups has the two rows of `state_size` that its heads share. A short
    convolution of `convolution_width` passes over heads and groups. `gated_norm` is the norm after
    the scan, with which the gate is multiplied.
    """

    kind: Literal["state_space"] = "state_space"
    head_count: PositiveCount
    head_size: PositiveCount
    group_count: PositiveCount
    state_size: PositiveCount
    convolution_width: PositiveCount = 4
    chunk_tokens: PositiveCount = 256
    convolution_bias: bool = True
    input_bias: bool = False
    output_bias: bool = False
    gated_norm: bool = True

    @property
    def inner_width(self) -> int:
        """Return the width of all heads."""
        return self.head_count * self.head_size

    @property
    def convolved_width(self) -> int:
        """Return the width that the short convolution passes over: heads, and both rows."""
        return self.inner_width + 2 * self.group_count * self.state_size

    @property
    def input_width(self) -> int:
        """Return what the input projection puts out: gate, convolved row, a step per head."""
        return self.inner_width + self.convolved_width + self.head_count


class GatedDeltaMixer(Part):
    """A gated delta net (arXiv:2412.06464): linear attention whose state forgets and corrects.

    Keys and queries have `key_head_count` heads, which values' heads share. With `gate_rank` each
    channel of a key decays by itself, and both decay and output gate come by way of a row of that
    width (Kimi Delta Attention, arXiv:2510.26692 section 3); without, a head decays as one.
    """

    kind: Literal["gated_delta"] = "gated_delta"
    key_head_count: PositiveCount
    value_head_count: PositiveCount
    key_head_size: PositiveCount
    value_head_size: PositiveCount
    convolution_width: PositiveCount = 4
    chunk_tokens: PositiveCount = 64
    gate_rank: PositiveCount | None = Field(default=None, exclude_if=lambda rank: rank is None)

    @property
    def inner_width(self) -> int:
        """Return the width of all values' heads."""
        return self.value_head_count * self.value_head_size

    @property
    def convolved_width(self) -> int:
        """Return the width that the short convolution passes over: queries, keys and values."""
        return 2 * self.key_head_count * self.key_head_size + self.inner_width

    @property
    def input_width(self) -> int:
        """Return what the input projections put out: gate, convolved row, two numbers per head.

        Gate and decay by way of a rank are not among it, and leave one number per head.
        """
        if self.gate_rank is not None:
            return self.convolved_width + self.value_head_count
        return self.inner_width + self.convolved_width + 2 * self.value_head_count

    @property
    def decay_width(self) -> int:
        """Return the numbers that a token's decay has: one per head, or per channel of its keys."""
        heads = self.value_head_count
        return heads if self.gate_rank is None else heads * self.key_head_size


class SelectiveScanMixer(Part):
    """A Mamba layer of the first generation (arXiv:2312.00752): a decay per channel and state.

    The step of each channel comes by way of a row of `step_rank`. `bias` is that of the projections
    in and out. With `normed_rows`, step and both rows of `state_size` pass norms (Jamba).
    """

    kind: Literal["selective_scan"] = "selective_scan"
    inner_width: PositiveCount
    state_size: PositiveCount = 16
    step_rank: PositiveCount
    convolution_width: PositiveCount = 4
    convolution_bias: bool = True
    bias: bool = False
    normed_rows: bool = False

    @property
    def row_width(self) -> int:
        """Return what a channel's step and the state's two rows are made of."""
        return self.step_rank + 2 * self.state_size


class ShortConvolutionMixer(Part):
    """A gated convolution over the last few tokens (LFM2): gate, convolve, gate.

    `bias` is that of the projections in and out, and of the convolution.
    """

    kind: Literal["short_convolution"] = "short_convolution"
    inner_width: PositiveCount
    convolution_width: PositiveCount = 3
    bias: bool = False


class LinearAttentionMixer(Part):
    """Lightning attention (arXiv:2401.04658): a state per head, which forgets at a rate of its own.

    Each head has queries, keys and values, all activated; the rate is no weight. What is read of
    the state passes a norm as wide as all heads, and a gate.
    """

    kind: Literal["linear_attention"] = "linear_attention"
    head_count: PositiveCount
    head_size: PositiveCount
    chunk_tokens: PositiveCount = 256

    @property
    def inner_width(self) -> int:
        """Return the width of all heads."""
        return self.head_count * self.head_size

    @property
    def input_width(self) -> int:
        """Return what the input projections put out: queries, keys, values, gate."""
        return 4 * self.inner_width


Mixer = Annotated[
    StateSpaceMixer
    | GatedDeltaMixer
    | SelectiveScanMixer
    | ShortConvolutionMixer
    | LinearAttentionMixer,
    Field(discriminator="kind"),
]
