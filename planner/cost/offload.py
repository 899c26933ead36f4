"""Offload: what keeping states in host memory or on NVMe costs, over the links and on the host.

Source: traffic per technique as in Ren et al. 2021 (ZeRO-Offload, arXiv:2101.06840) and, for
parameters, torch's CPUOffloadPolicy; streams of NVMe, host and device that run at once as in
Rajbhandari et al. 2021 (ZeRO-Infinity, arXiv:2104.07857), section 6.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from planner.cost.collectives import exposed_seconds
from planner.cost.configuration import Choices, Floats
from planner.cost.setting import Setting
from planner.cost.states import LocalParameters, sharded_bytes, sharded_parameters
from planner.schema.job import OffloadStore


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

    Parameters are fetched for forward and again for backward, in what they are stored, ahead of
    their use. torch's fully_shard takes each micro-batch's gradients of them to the host, and does
    all of this in compute's way where one rank has all of a shard group: it gathers nothing then,
    ahead or not (`_fsdp_param_group.py`, `wait_for_unshard`). On an H100, whose step by itself is
    0.36 s, 1B parameters of two micro-batches took 1.24 s: 0.41 s to the device, 0.19 s from it and
    0.30 s on the host, beside nothing (benchmarks/gpu_h100.jsonl).

    Activations leave during forward and come back during backward, beside compute or in its way, as
    the stack moves them. The optimiser's gradients leave and its parameters come back once a step,
    with the update on the host between them, none of it hidden; gradients that leave as they are
    reduced do so under backward. Paged states come and leave for an update on the device, under
    backward where it is made there. Parameters that are offloaded without the optimizer's states
    meet their gradients on the device for the update: both leave and come back once a step.

    On NVMe the streams run beside those of the host, and the slower of the two counts: parameters
    are read as they are fetched, and once a step states are read and written, and parameters that
    lie there written.
    """
    down = setting.hardware.from_device_bytes_per_second
    up = setting.hardware.to_device_bytes_per_second
    drives, own_bytes = _drives(setting), setting.shard_bytes
    fetching = sharded_bytes(held, setting) / min(up, drives.read_bytes_per_second)
    fetched = np.where(choices.offload_parameters, fetching, 0.0)
    stored = np.where(choices.offload_activations, kept_bytes / down, 0.0)
    restored = np.where(choices.offload_activations, kept_bytes / up, 0.0)
    trained = held.trained()
    shard = sharded_parameters(trained, setting)
    updated = np.where(choices.zero_stage == 0, trained.total(), shard)
    leaving = updated * setting.reduce_bytes / down
    follows = choices.offload_parameters & setting.stack.gradients_follow_parameters
    following = np.where(follows, _beside_gathers(leaving, windows.backward, setting), 0.0)
    if setting.offloads_gradients:
        leaving = exposed_seconds(leaving, windows.backward, setting.overlap)
    leaving = np.where(follows, 0.0, leaving)
    host_rate = setting.hardware.profile.host.optimizer_gb_per_second * 1e9
    stays = np.where(choices.offload_parameters, 0.0, own_bytes / up)
    on_host = leaving + updated * (stays + setting.host_optimizer_bytes / host_rate)
    written = setting.optimizer_state_bytes + np.where(choices.offload_parameters, own_bytes, 0.0)
    read = setting.optimizer_state_bytes / drives.read_bytes_per_second
    moving = np.maximum(on_host, updated * (read + written / drives.write_bytes_per_second))
    if setting.job.paged_states:
        moving = _paged_seconds(updated, windows.backward, setting)
    bringing = leaving + updated * (own_bytes / down + 2.0 * own_bytes / up)
    brought = np.where(choices.offload_parameters, bringing, 0.0)
    return OffloadSeconds(
        forward=_exposed(fetched, stored, windows.forward, setting),
        backward=_exposed(fetched, restored, windows.backward, setting) + following,
        step_end=np.where(choices.offload_optimizer, moving, brought),
    )


def _paged_seconds(updated: Floats, backward: Floats, setting: Setting) -> Floats:
    """Return what an update on the device adds whose states lie in memory that both share.

    Each state comes and leaves once a step. Where device memory would do for all of them nothing
    would move, which is not known of one layer.
    Source: bitsandbytes `optim/optimizer.py` (`prefetch_state`), `functional.py` (`get_paged`).
    """
    down = setting.hardware.from_device_bytes_per_second
    up = setting.hardware.to_device_bytes_per_second
    moved = updated * setting.optimizer_state_bytes * (1.0 / down + 1.0 / up)
    update = updated * setting.optimizer_seconds_per_parameter
    if setting.job.steps_in_backward:
        return update + exposed_seconds(moved, backward, setting.overlap)
    return update + moved


def _exposed(fetched: Floats, moved: Floats, window: Floats, setting: Setting) -> Floats:
    """Return what fetching parameters and moving activations add to a window."""
    if setting.overlaps_offload:
        return exposed_seconds(fetched + moved, window, setting.overlap)
    return _beside_gathers(fetched, window, setting) + moved


def _beside_gathers(moved: Floats, window: Floats, setting: Setting) -> Floats:
    """Return what moving with gathers and reductions of a shard group adds to a window."""
    is_alone = setting.stack.gradients_follow_parameters & (setting.data_shard == 1.0)
    return np.where(is_alone, moved, exposed_seconds(moved, window, setting.overlap))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drives:
    read_bytes_per_second: float
    write_bytes_per_second: float


def _drives(setting: Setting) -> _Drives:
    """Return one device's share of its node's NVMe, which nothing waits for on the host."""
    nvme = setting.hardware.nvme_per_device
    if setting.job.offload_to is OffloadStore.HOST or nvme is None:
        return _Drives(read_bytes_per_second=math.inf, write_bytes_per_second=math.inf)
    return _Drives(
        read_bytes_per_second=nvme.read_bytes_per_second,
        write_bytes_per_second=nvme.write_bytes_per_second,
    )
