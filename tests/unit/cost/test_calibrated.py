"""Calibrated hardware: scalars change what they name, and nothing else."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from planner.cost.calibrated import calibrated
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.schema.job import Calibration, Job, Precision, Stack
from planner.schema.scalars import Scalars

DEVICE = "h100-sxm5-80gb"


def hardware():
    """Return eight H100 as one kind."""
    return cluster_hardware(cluster_from_short_form(f"8x{DEVICE}")).kinds[0]


def a_job(scalars, *, device=DEVICE):
    """Return a job of the Megatron stack with `scalars` for one device."""
    calibration = Calibration(name="ours", stack=Stack.MEGATRON, devices={device: scalars})
    return Job(stack=Stack.MEGATRON, calibration=calibration)


def test_without_scalars_hardware_stays_as_it_is():
    assert calibrated(hardware(), Job()) == hardware()
    other = a_job(Scalars(compute_efficiency_ratio=0.5), device="a100-sxm4-80gb")
    assert calibrated(hardware(), other) == hardware()


def test_each_scalar_scales_what_it_names():
    scalars = Scalars(
        compute_efficiency_ratio=0.5,
        memory_efficiency_ratio=0.8,
        communication_efficiency_ratio=2.0,
        host_overhead_ratio=3.0,
        fp8_efficiency_ratio=0.9,
        attention_efficiency_ratio=0.7,
    )
    found, shipped = calibrated(hardware(), a_job(scalars)), hardware()
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


def test_scalars_of_another_stack_are_refused():
    calibration = Calibration(name="ours", stack=Stack.TORCH, devices={DEVICE: Scalars()})
    with pytest.raises(ValidationError, match=r"of the stack torch, the job's is megatron"):
        Job(stack=Stack.MEGATRON, calibration=calibration)
