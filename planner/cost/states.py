"""Model states: what a layer's parameters, gradients and optimiser take, and what syncing takes.

Dense parameters shard over data-parallel shard x context ranks. Routed experts are spread over
expert-parallel x expert-tensor ranks, and shard over what these leave of tensor x context x shard
ranks. Arrays are [configurations, choices].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Choices, Floats, Integers
from planner.cost.setting import Setting
from planner.hardware_profiles import BucketProfile, StateBytes
from planner.schema.job import Precision
from planner.workload.layer import ParameterCounts

_COPY_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParameters:
    """Parameters of one layer on one device before data parallelism, [configurations, 1].

    `frozen` are those of them that are not trained, each stored in `element_bytes` of their own,
    and in `undivided_bytes` beside that no rank shards, gathers or offloads. `dense_gathered_bytes`
    are those of a trained dense parameter as it is gathered, where not as it is computed with.
    `unsplit` are gradients beside those of its own parameters, of all that tensor parallelism
    splits: [configurations, 1].
    """

    dense: Floats
    expert: Floats
    frozen: LocalParameters | None = None
    element_bytes: float = 0.0
    undivided_bytes: float = 0.0
    dense_gathered_bytes: float | None = None
    unsplit: Floats | None = None

    def total(self) -> Floats:
        """Return dense and expert parameters together."""
        return self.dense + self.expert

    def trained(self) -> LocalParameters:
        """Return those that have gradients and optimizer states."""
        if self.frozen is None:
            return self
        return replace(
            self,
            dense=self.dense - self.frozen.dense,
            expert=self.expert - self.frozen.expert,
            frozen=None,
        )

    def made(self) -> Floats:
        """Return how many gradients backward makes."""
        whole = self.trained().total()
        return whole if self.unsplit is None else whole + self.unsplit

    def gathered_bytes(self, element_bytes: float) -> tuple[Floats, Floats]:
        """Return the bytes of dense and of expert parameters as they are gathered, whole.

        Trained ones take `element_bytes` each, and frozen ones what they are stored in: sharding
        moves storage, and what is packed in fewer bits is unpacked where a product reads it.
        """
        if self.frozen is None:
            dense_bytes = self.dense_gathered_bytes or element_bytes
            return self.dense * dense_bytes, self.expert * element_bytes
        trained, stored = self.trained(), self.frozen.element_bytes
        return (
            trained.dense * element_bytes + self.frozen.dense * stored,
            trained.expert * element_bytes + self.frozen.expert * stored,
        )

    def of_rows(self, rows: Integers) -> LocalParameters:
        """Return the parameters of some configurations."""
        return replace(
            self,
            dense=self.dense[rows],
            expert=self.expert[rows],
            frozen=None if self.frozen is None else self.frozen.of_rows(rows),
            unsplit=None if self.unsplit is None else self.unsplit[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMemory:
    """Bytes of one layer's model states on one device, [configurations, choices].

    `gathered` (whole parameters in the compute type) and `unreduced` (whole gradients, as backward
    makes them and as they are reduced) are there only while the layer runs; `made` are those of
    the latter that backward makes.
    """

    parameters: Floats
    gradients: Floats
    optimizer: Floats
    gathered: Floats
    made: Floats
    unreduced: Floats
    host: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSeconds:
    """Collectives of one layer's model states, unexposed, [configurations, 1].

    `gather` is of all parameters, `gather_trained` of those that the optimizer has changed.
    """

    gather: Floats
    gather_trained: Floats
    reduce_scatter: Floats
    all_reduce: Floats
    replicas: Floats


def local_parameters(counts: ParameterCounts, setting: Setting) -> LocalParameters:
    """Return the parameters that one device holds when nothing is sharded over data."""
    return LocalParameters(
        dense=counts.sharded / setting.tensor + counts.replicated,
        expert=counts.expert / (setting.expert * setting.expert_tensor),
    )


def sharded_parameters(local: LocalParameters, setting: Setting) -> Floats:
    """Return the parameters of one device's shard, [configurations, 1]."""
    return local.dense / setting.data_shard + local.expert / setting.expert_shard


def sharded_bytes(local: LocalParameters, setting: Setting) -> Floats:
    """Return what is divided of one device's parameters, in what they are stored, [.., 1]."""
    own = setting.shard_bytes * sharded_parameters(local.trained(), setting)
    if local.frozen is None:
        return own
    return own + local.frozen.element_bytes * sharded_parameters(local.frozen, setting)


def state_memory(local: LocalParameters, choices: Choices, setting: Setting) -> StateMemory:
    """Return what the states of one layer take on device and host."""
    trained = local.trained()
    shard = sharded_parameters(trained, setting)
    whole, made = trained.total(), local.made()
    parameters, gradients = _parameters_and_gradients(
        whole, shard, made, choices=choices, setting=setting
    )
    gathered, undivided = sum(local.gathered_bytes(setting.compute_bytes)), np.zeros_like(whole)
    parameters = parameters - _narrower_bytes(local, choices, setting)
    if local.frozen is not None:
        parameters = parameters + _frozen_bytes(local.frozen, choices, setting)
        undivided = local.frozen.undivided_bytes * local.frozen.total()
    unreduced = _unreduced_bytes(whole, made, choices, setting)
    if setting.job.steps_in_backward:
        held_no_longer = np.where(setting.micro_batch_count == 1.0, gradients, 0.0)
        unreduced, gradients = unreduced + held_no_longer, gradients - held_no_longer
    if setting.offloads_gradients:
        gradients = np.where(choices.offload_optimizer, 0.0, gradients)
    if setting.stack.gradients_follow_parameters:
        gradients = np.where(choices.offload_parameters, 0.0, gradients)
    if setting.copies_whole_gradients:
        gradients = gradients + np.where(choices.zero_stage == 3, _COPY_BYTES * shard, 0.0)
    kept = np.where(choices.zero_stage == 0, whole, shard)
    optimizer = kept * setting.optimizer_state_bytes
    hosted = np.where(choices.offload_optimizer, optimizer, 0.0)
    hosted = hosted + np.where(choices.offload_parameters, parameters, 0.0)
    if setting.stack.gradients_follow_parameters:
        come = choices.offload_optimizer | choices.offload_parameters
        hosted = hosted + np.where(come, setting.reduce_bytes * kept, 0.0)
    return StateMemory(
        parameters=np.where(choices.offload_parameters, 0.0, parameters) + undivided,
        gradients=gradients,
        optimizer=np.where(choices.offload_optimizer, 0.0, optimizer),
        gathered=np.where(choices.zero_stage == 3, gathered, 0.0),
        made=np.where(choices.zero_stage >= 2, setting.compute_bytes * made, 0.0),
        unreduced=unreduced,
        host=hosted,
    )


def _frozen_bytes(frozen: LocalParameters, choices: Choices, setting: Setting) -> Floats:
    """Return what is divided of frozen parameters as it is held."""
    whole, shard = frozen.total(), sharded_parameters(frozen, setting)
    return frozen.element_bytes * np.where(choices.zero_stage == 3, shard, whole)


def _narrower_bytes(local: LocalParameters, choices: Choices, setting: Setting) -> Floats | float:
    """Return what copies that stay gathered take less, where they are narrower than usual."""
    if local.dense_gathered_bytes is None or setting.narrow_states:
        return 0.0
    stays = (choices.zero_stage == 1) | (choices.zero_stage == 2)
    return np.where(stays, (setting.compute_bytes - local.dense_gathered_bytes) * local.dense, 0.0)


def _parameters_and_gradients(
    whole: Floats, shard: Floats, made: Floats, *, choices: Choices, setting: Setting
) -> tuple[Floats, Floats]:
    """Return the bytes of parameters and gradients, by the stack's table for the precision."""
    states, precision = setting.stack.model_states, setting.job.precision
    if setting.narrow_states:
        zero = choices.zero_stage
        return 2.0 * np.where(zero == 3, shard, whole), 2.0 * np.where(zero >= 2, shard, made)
    if precision is Precision.FP32:
        return _by_table(states.full, whole, shard, made, choices=choices, setting=setting)
    usual = _by_table(states.mixed, whole, shard, made, choices=choices, setting=setting)
    if states.pipelined_bfloat16 is None or precision is Precision.FP16:
        return usual
    pipelined = _by_table(
        states.pipelined_bfloat16, whole, shard, made, choices=choices, setting=setting
    )
    several = setting.pipeline > 1.0
    return np.where(several, pipelined[0], usual[0]), np.where(several, pipelined[1], usual[1])


def _by_table(
    stages: tuple[StateBytes, ...],
    whole: Floats,
    shard: Floats,
    made: Floats,
    *,
    choices: Choices,
    setting: Setting,
) -> tuple[Floats, Floats]:
    parameters = _by_stage(choices, [s.parameters for s in stages], whole, shard)
    gradients = _by_stage(choices, [s.gradients for s in stages], made, shard)
    accumulated = np.array([s.accumulated for s in stages], dtype=np.float64)[choices.zero_stage]
    accumulated = accumulated * (setting.reduce_bytes / setting.stack.reduce_bytes_per_gradient)
    several = setting.micro_batch_count > 1.0
    gradients = np.maximum(gradients, np.where(several, accumulated * made, 0.0))
    if setting.narrow_gradients:
        gradients = gradients / 2.0
    return parameters, gradients


def _by_stage(
    choices: Choices, table: list[tuple[int, int]], whole: Floats, shard: Floats
) -> Floats:
    per_choice = np.array(table, dtype=np.float64)[choices.zero_stage]
    return per_choice[:, 0] * whole + per_choice[:, 1] * shard


def _unreduced_bytes(whole: Floats, made: Floats, choices: Choices, setting: Setting) -> Floats:
    """Return the bytes of one layer's gradients while they are reduced.

    Stages 2 and 3 hold them in the compute type and in the type they are reduced in; stage 1
    reduces from a copy of what it accumulated, where it has no buffer to reduce in.
    """
    both = setting.compute_bytes * made + setting.reduce_bytes * whole
    zero = choices.zero_stage
    copied = 0.0 if setting.stack.gradient_buffers else setting.reduce_bytes * whole
    return np.where(zero >= 2, both, 0.0) + np.where(zero == 1, copied, 0.0)


def sync_seconds(
    local: LocalParameters, setting: Setting, *, stage: LocalParameters | None = None
) -> SyncSeconds:
    """Return the layer's parameter gather, gradient reduce-scatter, and all-reduces.

    `all_reduce` sums whole gradients over all data-parallel ranks (ZeRO-0, and ZeRO-1 where the job
    says so); `replicas` sums shards over replicas (HSDP). What is not gathered for its own layer is
    launched by bucket, of the trained parameters of a `stage`; without one the layer stands alone.
    """
    groups, stack, reduced = setting.groups, setting.stack, setting.reduce_bytes
    trained = local.trained()
    summed = stack.sharded_buckets if setting.job.summed_gradients else stack.whole_buckets
    whole, whole_expert = _buckets(trained, stage, summed, setting)
    dense, expert = _buckets(trained, stage, stack.sharded_buckets, setting)
    stored, stored_expert = local.gathered_bytes(setting.compute_bytes)
    gather_expert = groups.expert_shard.all_gather(stored_expert)
    shards = sharded_parameters(trained, setting)
    return SyncSeconds(
        gather=groups.shard.all_gather(stored) + _of_experts(local, gather_expert),
        gather_trained=dense.seconds(
            groups.shard.all_gather, trained.dense_gathered_bytes or setting.updated_bytes
        )
        + expert.seconds(groups.expert_shard.all_gather, setting.updated_bytes),
        reduce_scatter=dense.seconds(groups.shard.reduce_scatter, reduced)
        + expert.seconds(groups.expert_shard.reduce_scatter, reduced),
        all_reduce=(
            whole.seconds(groups.data.all_reduce, setting.summed_bytes)
            + whole_expert.seconds(groups.expert_data.all_reduce, setting.summed_bytes)
        )
        * setting.hardware.profile.hidden_reduce_ratio,
        replicas=groups.replica.all_reduce(shards * reduced),
    )


def _buckets(
    trained: LocalParameters,
    stage: LocalParameters | None,
    profile: BucketProfile | None,
    setting: Setting,
) -> tuple[Buckets, Buckets]:
    """Return the buckets of a layer's dense parameters and of its experts, which are apart."""
    every = trained if stage is None else stage
    return (
        Buckets.of(trained.dense, stage=every.dense, profile=profile, setting=setting),
        Buckets.of(trained.expert, stage=every.expert, profile=profile, setting=setting),
    )


def _of_experts(held: LocalParameters, seconds: Floats) -> Floats:
    """Return the seconds of experts' states where there are any."""
    return np.where(held.expert > 0.0, seconds, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """The buckets of a layer's `parameters`, of `size` each; arrays [configurations, 1].

    Frameworks reduce gradients as buckets of S parameters fill, whatever layers these are of, and
    gather updated parameters in the same ones. With t(S) for one bucket and n_l parameters of layer
    l, a stage of N = sum_l n_l parameters takes

        N / S t(S) = sum_l n_l / S t(S),   S at most N,

    of which every layer has its share: latency and hops are paid once a bucket, by a model of few
    trained parameters once, and a layer's price depends on no other layer's choice. A layer of more
    than S parameters is taken to be one bucket: rings of several that follow one another wait for
    hops at the same time, as it seems. MLPerf's Llama-3.1-8B, whose layers have up to five buckets,
    takes 5, 5 and 2 % longer on 64, 128 and 256 B200 than with a latency a layer, and 2, 16 and 13
    % less than with one a bucket of whole matrices.

        torch      a layer's own under fully_shard, 25 MiB under DistributedDataParallel;
        megatron   max(40e6, 1e6 d), d being the data-parallel ranks, context parallel ones aside;
        deepspeed  5e8, reduce_bucket_size and allgather_bucket_size.

    Source: torch/nn/parallel/distributed.py; Megatron-LM
    core/distributed/distributed_data_parallel.py; DeepSpeed runtime/zero/config.py.

    Ignored: that the last bucket of a stage is not full, that DDP's first has 1 MiB, that virtual
    stages have buckets of their own, and that Megatron has one for all where nothing is overlapped.
    """

    parameters: Floats
    size: Floats

    @staticmethod
    def of(
        parameters: Floats,
        *,
        stage: Floats,
        profile: BucketProfile | None,
        setting: Setting,
    ) -> Buckets:
        """Return the buckets of a layer in a stage of so many; its own without a profile."""
        if profile is None:
            return Buckets(parameters=parameters, size=np.maximum(parameters, 1.0))
        ranks = setting.shard * setting.replicate
        filled = np.maximum(profile.parameters, profile.parameters_per_rank * ranks)
        size = np.maximum(np.minimum(filled, stage), parameters)
        return Buckets(parameters=parameters, size=np.maximum(size, 1.0))

    def seconds(self, collective: Callable[[Floats], Floats], element_bytes: float) -> Floats:
        """Return the layer's share of the seconds of one collective a bucket."""
        return np.asarray(self.parameters / self.size * collective(self.size * element_bytes))
