"""Scaled hardware: scalars change what they name, and nothing else."""

from __future__ import annotations

import pytest

from planner.calibration.scaled_hardware import scaled
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.schema.job import Precision, Stack
from planner.schema.scalars import Scalars

DEVICE = "h100-sxm5-80gb"


def hardware():
    """Return eight H100 as one kind."""
    return cluster_hardware(cluster_from_short_form(f"8x{DEVICE}")).kinds[0]


def test_each_scalar_scales_what_it_names():
    scalars = Scalars(
        compute_efficiency_ratio=0.5,
        memory_efficiency_ratio=0.8,
        communication_efficiency_ratio=2.0,
        host_overhead_ratio=3.0,
        fp8_efficiency_ratio=0.9,
        attention_efficiency_ratio=0.7,
    )
    found, shipped = scaled(hardware(), Stack.MEGATRON, scalars), hardware()
    assert found.profile.in_situ_efficiency == pytest.approx(0.92 * 0.5)  # megatron.yaml
    assert found.profile.host_us_per_kernel == pytest.approx(55.0 * 3.0)  # megatron.yaml
    assert found.memory_bytes_per_second == pytest.approx(3350e9 * 0.86 * 0.8)
    assert [level.bandwidth_bytes_per_second for level in found.levels] == pytest.approx(
        [2 * 362e9, 2 * 36.5e9]
    )
    assert found.peak_flop_per_second[Precision.FP8] == pytest.approx(0.9 * 1979e12)
    assert found.peak_flop_per_second[Precision.BF16] == 989e12
    whole, torch = found.profile.attention, found.profile.attention.rate(Stack.TORCH)
    assert whole.forward_tflop_per_second == pytest.approx(0.7 * 620)  # h100-sxm5-80gb.yaml
    assert torch.backward_tflop_per_second == pytest.approx(0.7 * 330)
    assert whole.forward_tokens_half == shipped.profile.attention.forward_tokens_half
    assert found.device_memory_bytes == shipped.device_memory_bytes
