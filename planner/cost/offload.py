"""Offload: what keeping states in host memory costs, over the host link and on the host.

Source: traffic per technique as in Ren et al. 2021 (ZeRO-Offload, arXiv:2101.06840) and, for
parameters, torch's CPUOffloadPolicy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from planner.cost.configuration import Choices, Floats
from planner.cost.overlap import exposed_seconds
from planner.cost.setting import Setting
from planner.cost.states import LocalParameters, sharded_parameters

_HOST_OPTIMIZER_BYTES = 28.0  # fp32 parameter, gradient, two moments read; three written
_MASTER_BYTES = 4.0


class ComputeWindows(Protocol):
    """Compute under which transfers can hide, [configurations, choices]."""

    @property
    def forward(self) -> Floats:
        """Return forward seconds."""

    @property
    def backward(self) -> Floats:
        """Return backward seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSeconds:
    """Exposed seconds of one layer: in forward and backward of a micro-batch, and once a step."""

    forward: Floats
    backward: Floats
    step_end: Floats


def offload_seconds(
    held: LocalParameters,
    *,
    kept_bytes: Floats,
    windows: ComputeWindows,
    choices: Choices,
    setting: Setting,
) -> OffloadSeconds:
    """Return what the choices' offloads add; a choice without offload adds nothing.

    Parameters are fetched for forward and again for backward; activations leave during forward
    and come back during backward; the optimiser's gradients leave and its parameters come back
    once a step, with the update on the host between them, none of it hidden.
    """
    down = setting.hardware.from_device_bytes_per_second
    up = setting.hardware.to_device_bytes_per_second
    shard = sharded_parameters(held, setting)
    fetched = np.where(choices.offload_parameters, shard * _MASTER_BYTES / up, 0.0)
    stored = np.where(choices.offload_activations, kept_bytes / down, 0.0)
    restored = np.where(choices.offload_activations, kept_bytes / up, 0.0)
    overlap = setting.overlap
    updated = np.where(choices.zero_stage == 0, held.total(), shard)
    host_rate = setting.hardware.profile.host.optimizer_gb_per_second * 1e9
    stays = np.where(choices.offload_parameters, 0.0, _MASTER_BYTES / up)
    per_parameter = setting.reduce_bytes / down + stays + _HOST_OPTIMIZER_BYTES / host_rate
    return OffloadSeconds(
        forward=exposed_seconds(fetched + stored, windows.forward, overlap),
        backward=exposed_seconds(fetched + restored, windows.backward, overlap),
        step_end=np.where(choices.offload_optimizer, updated * per_parameter, 0.0),
    )
