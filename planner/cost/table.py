"""Cost table: every layer of a job priced under every configuration and choice."""

from __future__ import annotations

import numpy as np

from planner.cost.collectives import send_recv_seconds_by_level
from planner.cost.configuration import Configurations, LayerChoices
from planner.cost.layer_costs import CostTable, MemoryLimits, StageFixed
from planner.cost.layers import Extras, layer_costs, no_extras
from planner.cost.setting import Setting, setting
from planner.hardware import DeviceHardware, stack_profile
from planner.schema.job import Job
from planner.units import GIB
from planner.workload.layer import HeadWorkload, ModelWorkload


def cost_table(
    workload: ModelWorkload,
    hardware: DeviceHardware,
    job: Job,
    *,
    configurations: Configurations,
    choices: LayerChoices,
) -> CostTable:
    """Return the prices of all layers; arrays are [configurations, choices].

    Raises:
        ValueError: if the job is not resolved.
    """
    priced = setting(job, hardware, configurations)
    plain = no_extras(priced)
    return CostTable(
        embedding=layer_costs(
            workload.embedding,
            "embedding",
            choices=choices.embedding,
            setting=priced,
            extras=plain,
        ),
        blocks=tuple(
            layer_costs(layer, "block", choices=choices.blocks, setting=priced, extras=plain)
            for layer, _ in workload.runs
        ),
        block_counts=tuple(count for _, count in workload.runs),
        head=layer_costs(
            workload.head.layer,
            "head",
            choices=choices.head,
            setting=priced,
            extras=_head_extras(workload.head, priced),
        ),
        fixed=_stage_fixed(workload, priced),
        limits=memory_limits(hardware, job),
    )


def memory_limits(hardware: DeviceHardware, job: Job) -> MemoryLimits:
    """Return what one device, and its share of the host, can hold for the job."""
    own = hardware.profile
    stack = stack_profile(job.stack)
    runtime_gib = stack.runtime_gib if own.runtime_gib is None else own.runtime_gib
    slack = own.allocator_slack_ratio
    if slack is None:
        slack = stack.allocator_slack_ratio
    return MemoryLimits(
        device_bytes=hardware.device_memory_bytes,
        capacity_bytes=hardware.device_memory_bytes * (1.0 - job.limits.memory_headroom_ratio),
        runtime_bytes=runtime_gib * GIB,
        slack_ratio=slack,
        host_capacity_bytes=hardware.host_memory_bytes_per_device,
    )


def _head_extras(head: HeadWorkload, priced: Setting) -> Extras:
    per_token = head.logits_bytes_per_element * head.vocabulary_size / priced.tensor
    copied = head.tied_parameter_count / priced.tensor
    return Extras(
        logits_bytes=priced.tokens * per_token,
        copied_parameters=np.where(priced.pipeline > 1.0, copied, 0.0),
    )


def _stage_fixed(workload: ModelWorkload, priced: Setting) -> StageFixed:
    """Return what a boundary between stages costs: an activation forward, a gradient back."""
    spread = np.where(priced.sequence_parallel, priced.tensor, 1.0)
    apart = priced.pipeline > 1.0
    messages = np.concatenate(
        [
            priced.tokens * layer.hidden_size / spread * priced.compute_bytes * apart
            for layer, _ in workload.runs
        ],
        axis=1,
    )
    once = send_recv_seconds_by_level(messages, priced.hardware.levels)
    return StageFixed(
        boundary_seconds=2.0 * once,
        boundary_bytes=messages,
        step_end_seconds=np.zeros(len(priced.tokens)),
    )
