"""Syncing: what of model states' collectives is left beside the compute that hides them.

A layer's windows are its compute with what the host adds; hooks of gathered modules are part of
them under ZeRO-3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.collectives import exposed_seconds
from planner.cost.compute import ComputeSeconds
from planner.cost.configuration import Choices, Floats
from planner.cost.model_parallel import Role
from planner.cost.setting import Setting
from planner.cost.states import LocalParameters, SyncSeconds
from planner.schema.job import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Compute that can hide communication, and what of it is the host's, and is casting weights.

    Each [configurations, choices]; `recompute` is part of `backward`.
    """

    forward: Floats
    backward: Floats
    recompute: Floats
    host: Floats
    casts: Floats


def windows_of(
    compute: ComputeSeconds, choices: Choices, held: LocalParameters, setting: Setting
) -> Windows:
    """Return the windows of one layer and micro-batch, which holds the parameters `held`."""
    gathered = choices.zero_stage == 3
    forward_host = np.where(gathered, compute.forward_gathered_host, compute.forward_host)
    backward_host = np.where(gathered, compute.backward_gathered_host, compute.backward_host)
    cast = np.where(choices.zero_stage == 0, _autocast_seconds(held, setting), 0.0)
    again = compute.recompute_full + forward_host - compute.forward_host + cast
    recompute = np.where(choices.full, again, 0.0) + np.where(
        choices.selective, compute.recompute_selective, 0.0
    )
    return Windows(
        forward=compute.forward + forward_host + cast,
        backward=compute.backward + backward_host + recompute + cast,
        recompute=recompute,
        host=forward_host + backward_host,
        casts=2.0 * cast,
    )


def _autocast_seconds(held: LocalParameters, setting: Setting) -> Floats:
    """Return seconds to cast whole fp32 weights down, as much as to cast their gradients up.

    Source: torch's autocast, which caches casts for one forward.
    """
    plain = setting.job.precision is Precision.FP32 or setting.narrow_states
    if not setting.stack.autocasts or plain:
        return np.zeros_like(setting.tokens)
    moved = (4.0 + setting.compute_bytes) * held.trained().total()
    return moved / setting.hardware.memory_bytes_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedSeconds:
    """Seconds that a collective adds to forward and to backward, [configurations, choices]."""

    forward: Floats
    backward: Floats


def micro_batch_sync(
    sync: SyncSeconds,
    windows: Windows,
    choices: Choices,
    setting: Setting,
    *,
    held: LocalParameters,
) -> ExposedSeconds:
    """Return what ZeRO-3's gathers and ZeRO-2/3's reductions add to each micro-batch.

    Of stacks that sync on the stream that computes unless asked, DeepSpeed asks under stage 3 by
    default, and not under stage 2.

    Source: DeepSpeed `runtime/zero/config.py` (`overlap_comm_valid`), `stage3.py` and
    `partitioned_param_coordinator.py` (streams of `overlap_comm`).
    """
    zero, own = choices.zero_stage, setting.job.overlapped_gradients
    unpack, pack = _copy_seconds(held, setting)
    in_turn = not setting.stack.syncs_under_compute

    def left(seconds: Floats, window: Floats, *, by_default: bool) -> Floats:
        waits = in_turn and not (by_default if own is None else own)
        return seconds if waits else exposed_seconds(seconds, window, setting.overlap)

    gather_forward = left(sync.gather, windows.forward, by_default=True)
    reduce = left(sync.reduce_scatter, windows.backward, by_default=False)
    both = left(sync.gather + sync.reduce_scatter, windows.backward, by_default=True)
    return ExposedSeconds(
        forward=np.where(zero == 3, gather_forward + unpack, 0.0),
        backward=np.where(zero == 3, both + unpack + pack, 0.0)
        + np.where(zero == 2, reduce + pack, 0.0),
    )


def _copy_seconds(held: LocalParameters, setting: Setting) -> tuple[Floats, Floats]:
    """Return seconds to copy what was gathered into own tensors, and gradients into a flat one.

    Gathered parameters are read and written as they are gathered; gradients are read in it, and
    written as they are reduced.

    Source: FSDP2's `_fsdp_collectives.py` (split_with_sizes_copy, chunk_cat).
    """
    nothing = np.zeros_like(setting.tokens)
    if not setting.stack.copies_gathered:
        return nothing, nothing
    several, pace = setting.data_shard > 1.0, setting.hardware.memory_bytes_per_second
    copied = np.where(several, sum(held.gathered_bytes(setting.compute_bytes)), 0.0)
    reduced = np.where(several, held.trained().total(), 0.0)
    unpack = 2.0 * copied / pace
    return unpack, (setting.compute_bytes + setting.reduce_bytes) * reduced / pace


def step_end_sync(
    sync: SyncSeconds, windows: Windows, choices: Choices, setting: Setting, *, role: Role
) -> Floats:
    """Return what syncing once a step adds to it, [configurations, choices].

    ZeRO-0 reduces whole gradients, ZeRO-1 scatters them, or sums them whole where the job says so,
    under one backward; stages 1 and 2 gather parameters once under the next forward; replicas of
    shards are summed at the end. Stacks that do not overlap wait for all of it, but for gradients
    where the job overlaps them, and jobs that do not overlap gradients wait for parameters too.

    Source: Megatron-LM `megatron/training/arguments.py`, which refuses `--overlap-param-gather`
    without `--overlap-grad-reduce`.
    """
    zero = choices.zero_stage
    whole = (zero == 0) | ((zero == 1) & setting.job.summed_gradients)
    last_backward = np.where(whole, sync.all_reduce, sync.replicas) + np.where(
        (zero == 1) & ~whole, sync.reduce_scatter, 0.0
    )
    first_forward = np.where((zero == 1) | (zero == 2), sync.gather_trained, 0.0)
    if setting.overlaps_gradients:
        last_backward = _exposed_in_turns(last_backward, windows.backward, setting, role)
    if setting.stack.syncs_under_compute and setting.job.overlapped_gradients is not False:
        first_forward = _exposed_in_turns(first_forward, windows.forward, setting, role)
    return last_backward + first_forward


def _exposed_in_turns(sync: Floats, window: Floats, setting: Setting, role: Role) -> Floats:
    """Return what is left of `sync` beside the micro-batches that hide it.

    One micro-batch hides what is synced last, or needed first. Where ranks take turns with v
    virtual stages that is one of v: beside the others' run as many micro-batches as the pipeline
    has ranks. The embedding is in the first virtual stage, the head in the last.

    Source: Megatron-LM `core/pipeline_parallel/schedules.py`, which syncs a virtual stage's
    gradients after its own last backward (`forward_backward_pipelining_with_interleaving`).
    """
    shares = {"embedding": 1.0, "block": 1.0 / setting.turns, "head": 0.0}
    once = np.where(setting.turns > 1.0, np.asarray(shares[role]), 1.0)
    micro_batches = np.minimum(setting.pipeline, setting.micro_batch_count)
    alone = exposed_seconds(sync, window, setting.overlap)
    beside = exposed_seconds(sync, micro_batches * window, setting.overlap)
    return np.asarray(once * alone + (1.0 - once) * beside)
