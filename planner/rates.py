"""Rates: how fast a device's kernels are alone, as fitted on measured tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Part
from planner.schema.job import Precision, Stack

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class GemmRate(Part):
    """rate = peak x efficiency x K / (K + inner_size_half).

    `in_situ_efficiency` is what is left of it inside a step, where that is known of these products.
    """

    efficiency: Share
    inner_size_half: NotNegative
    in_situ_efficiency: Share | None = None
    source: str


class GemmProfile(GemmRate):
    """The rate of 16-bit products, which stands for formats that have none of their own."""

    fp8: GemmRate | None = None
    fp32: GemmRate | None = None

    def rate(self, precision: Precision) -> GemmRate:
        """Return the rate at `precision`, of that precision's peak."""
        own = {Precision.FP8: self.fp8, Precision.FP32: self.fp32}.get(precision)
        return self if own is None else own


class AttentionRate(Part):
    """rate = plateau x s / (s + tokens_half), forward and backward apart, at heads of 128.

    `half_head_ratio` is the rate at heads of 64 over that at 128; it falls with that power of the
    size below 128, and is the same above.
    """

    forward_tflop_per_second: Positive
    forward_tokens_half: NotNegative
    backward_tflop_per_second: Positive
    backward_tokens_half: NotNegative
    half_head_ratio: Share
    source: str


class AttentionProfile(AttentionRate):
    """The rate of fused attention.

    `by_stack` is of stacks that run other kernels, `by_generation` of FlashAttention's generations
    where a job names one, of which the first is a share of the second.
    """

    by_stack: dict[Stack, AttentionRate] = Field(default_factory=dict)
    by_generation: dict[Literal["flash2", "flash3"], AttentionRate] = Field(default_factory=dict)

    def rate(self, stack: Stack, generation: int | None = None) -> AttentionRate:
        """Return the rate of the kernels of a generation, else of those that `stack` runs.

        The first two are torch's own kernels where a device has no rate of theirs; the third runs
        on devices alone that have one.
        """
        if generation is None or (generation == 3 and not self.has_third_generation):
            return self.by_stack.get(stack, self)
        own = self.by_generation.get("flash3" if generation == 3 else "flash2")
        return self.by_stack.get(Stack.TORCH, self) if own is None else own

    @property
    def has_third_generation(self) -> bool:
        """Return whether the third generation of FlashAttention runs there: on Hopper alone."""
        return "flash3" in self.by_generation
