"""Scaled: a device with other rates than its profile has."""

from __future__ import annotations

from dataclasses import replace

from planner.hardware import DeviceHardware, stack_profile
from planner.hardware_profiles import in_situ_efficiency
from planner.rates import AttentionProfile, AttentionRate, GemmProfile
from planner.schema.job import Precision, Stack
from planner.schema.scalars import Scalars


def scaled(hardware: DeviceHardware, stack: Stack, scalars: Scalars) -> DeviceHardware:
    """Return `hardware` as fast as the scalars say; what may be the stack's becomes its own.

    The peak at fp8 stands for the rate of products in 8 bits: attention is priced at 16 bits.
    """
    of_stack, own = stack_profile(stack), hardware.profile
    launch = own.host_us_per_kernel
    launch = of_stack.host_us_per_kernel * own.host_ratio if launch is None else launch
    profile = own.model_copy(
        update={
            "in_situ_efficiency": in_situ_efficiency(own, of_stack)
            * scalars.compute_efficiency_ratio,
            "host_us_per_kernel": launch * scalars.host_overhead_ratio,
            "attention": _attention(own.attention, scalars.attention_efficiency_ratio),
            "gemm": _gemm(own.gemm, scalars.compute_efficiency_ratio),
        }
    )
    peaks = hardware.peak_flop_per_second
    wire = scalars.communication_efficiency_ratio
    return replace(
        hardware,
        profile=profile,
        memory_bytes_per_second=hardware.memory_bytes_per_second * scalars.memory_efficiency_ratio,
        peak_flop_per_second={
            name: rate * (scalars.fp8_efficiency_ratio if name is Precision.FP8 else 1.0)
            for name, rate in peaks.items()
        },
        levels=tuple(
            replace(level, bandwidth_bytes_per_second=level.bandwidth_bytes_per_second * wire)
            for level in hardware.levels
        ),
    )


def _gemm(shipped: GemmProfile, ratio: float) -> GemmProfile:
    """Return products whose own efficiencies inside a step are `ratio` of what they are."""
    own = {name: getattr(shipped, name) for name in ("fp8", "fp32")}
    return shipped.model_copy(
        update={
            name: rate.model_copy(update={"in_situ_efficiency": rate.in_situ_efficiency * ratio})
            for name, rate in own.items()
            if rate is not None and rate.in_situ_efficiency is not None
        }
    )


def _attention(shipped: AttentionProfile, ratio: float) -> AttentionProfile:
    """Return fused attention at `ratio` of its rates, whichever stack's kernels it is."""
    update = {
        "by_stack": {
            stack: rate.model_copy(update=_plateaus(rate, ratio))
            for stack, rate in shipped.by_stack.items()
        },
        "by_generation": {
            generation: rate.model_copy(update=_plateaus(rate, ratio))
            for generation, rate in shipped.by_generation.items()
        },
    }
    return shipped.model_copy(update={**_plateaus(shipped, ratio), **update})


def _plateaus(rate: AttentionRate, ratio: float) -> dict[str, float]:
    return {
        "forward_tflop_per_second": rate.forward_tflop_per_second * ratio,
        "backward_tflop_per_second": rate.backward_tflop_per_second * ratio,
    }
