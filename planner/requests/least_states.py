"""Least states: what a job's model states take at least, and whether all memory together is less.

Of a layer's P parameters each data-parallel rank holds w bytes whole and the ranks of a shard group
s together. On d shard groups, wherever the states lie,

    sum over ranks of device and host bytes  =  (w n + s) d P  >=  (w + s) P,    n ranks a group,

and tensor, pipeline and expert parallel ranks hold the layer once between them, or parts of it more
often. A lone rank's states are therefore the least of any configuration's, over what the table of
states tells apart: choices, pipelines, and whether micro-batches add up. Gradients of one
micro-batch that come late take the place of activations and of the loss's buffers
(`planner.cost.late_gradients`), but no peak is less than the states. What else a rank holds is
ignored.
"""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Choices, Configuration, Configurations, Floats
from planner.cost.layers import local_states, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.states import state_memory
from planner.cost.table import memory_limits
from planner.hardware import DeviceHardware
from planner.requests.resolution import Request
from planner.space.choices import block_choices, edge_choices
from planner.workload.layer import LayerWorkload

_TOLD_APART = Configurations.of(
    [
        Configuration(pipeline_parallel_degree=stages, micro_batch_count=count)
        for stages in (1, 2)
        for count in (1, 2)
    ]
)


def states_exceed_memory(request: Request) -> bool:
    """Return whether the least that states take is more than all devices and hosts can hold.

    Where it is, no plan fits; where it is not, that is not known.
    """
    kinds = request.hardware.kinds
    held = sum(kind.device_count * _capacity_bytes(kind, request) for kind in kinds)
    return all(least_state_bytes(request, kind) > held for kind in kinds)


def least_state_bytes(request: Request, kind: DeviceHardware) -> float:
    """Return what states take at least on devices of one kind and their hosts, of all together."""
    job, workload = request.job.resolved, request.workload
    blocks = Choices.of(block_choices(job.limits, job.offload_to))
    edges = Choices.of(edge_choices(job.limits, job.offload_to))
    alone = setting(job, kind, _TOLD_APART)
    layers = [(workload.embedding, 1, edges), (workload.head.layer, 1, edges)]
    layers += [(layer, count, blocks) for layer, count in workload.runs]
    held = sum(count * _least_of_layer(layer, own, alone) for layer, count, own in layers)
    return float(np.min(held))


def _least_of_layer(layer: LayerWorkload, choices: Choices, alone: Setting) -> Floats:
    """Return the least bytes of the layer's states under any of the choices, [told apart]."""
    states = state_memory(local_states(layer, alone, no_extras(alone)), choices, alone)
    held = states.parameters + states.gradients + states.optimizer + states.host
    least: Floats = held.min(axis=1)
    return least


def _capacity_bytes(kind: DeviceHardware, request: Request) -> float:
    """Return what a device holds at most, with its share of the host where states may go there."""
    job = request.job.resolved
    limits = memory_limits(request.workload, kind, job)
    return limits.live_capacity_bytes + (limits.host_capacity_bytes if job.limits.offload else 0.0)
