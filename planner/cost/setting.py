"""Setting: what prices depend on besides the layer, as columns over configurations.

Every array here has shape [configurations, 1], so that it broadcasts against choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.cost.collectives import Groups
from planner.cost.configuration import Booleans, Configurations, Floats, Integers, combinations
from planner.hardware import DeviceHardware, for_products_of, stack_profile
from planner.hardware_profiles import OverlapProfile, StackProfile, in_situ_efficiency
from planner.schema.job import Job, Optimizer, Precision, Softmax, Stack
from planner.schema.strategy import ContextParallelKind
from planner.workload.layer import AttentionCore, LayerWorkload, SourceWorkload

_COMPUTE_BYTES = {Precision.BF16: 2, Precision.FP16: 2, Precision.FP8: 2, Precision.FP32: 4}
_OPTIMIZER_STATE_BYTES = {
    Optimizer.ADAMW: 8.0,  # two fp32 moments
    Optimizer.ADAM8BIT: 2.0,  # two 8-bit moments; Dettmers et al. 2021, arXiv:2110.02861
    Optimizer.SGD: 4.0,  # momentum
    Optimizer.ADAFACTOR: 0.1,  # row and column sums; Shazeer and Stern 2018, arXiv:1804.04235
    Optimizer.MUON: 4.0,  # momentum
}
_OPTIMIZER_TRAFFIC_BYTES = {
    Optimizer.ADAMW: 38.0,
    Optimizer.ADAM8BIT: 24.0,
    Optimizer.SGD: 22.0,
    Optimizer.ADAFACTOR: 24.0,
    Optimizer.MUON: 46.0,
}
_HOST_OPTIMIZER_BYTES = 28.0  # of AdamW in fp32, four reads and three writes, as it is measured
_NORM_TRAFFIC_BYTES = 4.0  # the fp32 gradient read once
# Where each rank has whole logits and torch's cross-entropy takes them: 2 in 16 bits, an fp32 copy,
# its log-softmax, and the gradient in the log-softmax's place while 2 of it in 16 bits are made, as
# `logits_bytes_per_element` of torch counts on fake tensors.
_WHOLE_LOGITS_BYTES = 12.0
# transformers until 4.45, whose caller holds the output while backward runs: 4 of the fp32 logits,
# 4 of their log-softmax, 4 of the loss's gradient by it, and 4 by what is shifted. The shifted copy
# is freed as soon as its log-softmax is there, and the 16-bit logits as their copy is.
# Source: transformers `models/llama/modeling_llama.py` (`shift_logits`).
_SHIFTED_LOGITS_BYTES = 16.0
# Source: Knuth 1997, The Art of Computer Programming 1, section 2.5 (the fifty-percent rule)
_HOLES_PER_BLOCK = 0.5
# Of 38: parameter, gradient and moments read, three written, the gradient cleared and read again
_NARROW_TRAFFIC_RATIO = 18.0 / 38.0

_COLUMNS = (
    "tensor",
    "sequence_parallel",
    "pipeline",
    "context",
    "heads_exchanged",
    "expert",
    "expert_tensor",
    "shard",
    "replicate",
    "micro_batch_size",
    "micro_batch_count",
    "forwards_first",
    "turns",
    "tokens",
)
_MICRO_BATCH = (
    "tensor",
    "sequence_parallel",
    "context",
    "heads_exchanged",
    "expert",
    "expert_tensor",
    "micro_batch_size",
)
_STATES = ("tensor", "pipeline", "context", "expert", "expert_tensor", "shard", "replicate")


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """Hardware, stack and job, and the degrees of every configuration, [configurations, 1].

    `heads_exchanged` says that context-parallel ranks exchange heads and not keys and values;
    `expert_tensor` is the tensor-parallel degree of routed experts. `forwards_first` says that a
    pipeline runs the forwards of all micro-batches before the first backward; `turns` are the
    virtual stages that ranks take turns with under the interleaved schedule, 1 under others.
    """

    hardware: DeviceHardware
    stack: StackProfile
    job: Job
    sequence_length: int
    tensor: Floats
    sequence_parallel: Booleans
    pipeline: Floats
    context: Floats
    heads_exchanged: Booleans
    expert: Floats
    expert_tensor: Floats
    shard: Floats
    replicate: Floats
    micro_batch_size: Floats
    micro_batch_count: Floats
    forwards_first: Booleans
    turns: Floats
    tokens: Floats

    @cached_property
    def of_micro_batch(self) -> Alike:
        """Return the rows that differ in what a layer computes and exchanges in a micro-batch."""
        return self._alike(_MICRO_BATCH, derived=("tokens",))

    @cached_property
    def of_states(self) -> Alike:
        """Return the rows that differ in what a layer's states take to gather and reduce."""
        return self._alike(_STATES)

    def _alike(self, names: Sequence[str], *, derived: Sequence[str] = ()) -> Alike:
        columns = [getattr(self, name)[:, 0].astype(np.int64) for name in names]
        spans = ((column, int(column.max(initial=0)) + 1) for column in columns)
        first, whose = combinations(spans, len(self.tokens))
        known = {*names, *derived}
        rows = {name: first if name in known else slice(0) for name in _COLUMNS}
        some = {name: getattr(self, name)[own] for name, own in rows.items()}
        return Alike(setting=replace(self, **some), first=first, whose=whose)

    @cached_property
    def groups(self) -> Groups:
        """Return the groups of ranks that collectives run over."""
        return Groups(setting=replace(self))  # a copy, so that both go when this one goes

    @property
    def compute_bytes(self) -> int:
        """Return the bytes of one element of an activation or of a gathered parameter."""
        return _COMPUTE_BYTES[self.job.precision]

    @property
    def product_input_bytes(self) -> int:
        """Return the bytes of one element that is kept for a matrix product alone."""
        in_8_bits = (
            self.job.precision is Precision.FP8 and self.stack.activations.products_in_8_bits
        )
        return 1 if in_8_bits else self.compute_bytes

    @property
    def casts_again(self) -> bool:
        """Return whether backward casts what products read anew, from what norms and gates keep.

        So it is with blocks of torchao's linears that torch compiles, unless checkpointing says
        what is kept: the compiler works out again what it fuses with casts. On an H100, with torch
        2.11 (benchmarks/gpu_h100.jsonl), blocks of 1B and 8B models keep 24.6 and 44.9 kB less
        a token than in bf16, where norms' outputs and products of gates are 24.6 and 45.1 kB.
        """
        is_compiled = self.job.stack is Stack.TORCH and not self.unfused
        return self.job.precision is Precision.FP8 and is_compiled

    @property
    def updated_bytes(self) -> int:
        """Return the bytes of one parameter as it is gathered after the optimizer's step."""
        narrow = self.stack.gathers_in_8_bits and not self.job.copies_in_8_bits
        in_8_bits = self.job.precision is Precision.FP8 and narrow
        return 1 if in_8_bits else self.compute_bytes

    @property
    def copies_whole_gradients(self) -> bool:
        """Return whether the optimizer steps with all of a rank's gradients in 32 bits at once."""
        narrow = self.narrow_states or self.job.precision is Precision.FP32
        return self.job.parameter_broadcasts and not narrow

    @property
    def narrow_gradients(self) -> bool:
        """Return whether the stack's gradient buffers are of 16 bits in place of 32."""
        wide = self.job.precision is Precision.FP32
        return self.job.gradients_in_16_bits and self.stack.gradient_buffers and not wide

    @property
    def narrow_states(self) -> bool:
        """Return whether all states have 16 bits."""
        return self.job.states_in_16_bits and self.job.precision is not Precision.FP32

    @property
    def shard_bytes(self) -> float:
        """Return the bytes of one parameter as a fully sharded rank stores it."""
        if self.narrow_states:
            return 2.0
        states = self.stack.model_states
        wide = self.job.precision is Precision.FP32
        return float(sum((states.full if wide else states.mixed)[-1].parameters))

    @property
    def offloads_gradients(self) -> bool:
        """Return whether gradients lie on the host with an offloaded optimizer's states."""
        own = self.job.offloaded_gradients
        return self.stack.offloads_gradients if own is None else own

    @property
    def logits_shares(self) -> Floats:
        """Return into how many parts tensor parallelism divides a micro-batch's logits."""
        return self.tensor if self.job.vocabulary_parallel_loss else np.ones_like(self.tensor)

    @property
    def logits_bytes(self) -> Floats:
        """Return the bytes per logit that the loss holds at its peak.

        Without a loss in place or in chunks, a pipeline's stage may hold on to the logits that it
        put out.
        """
        keeps = self.stack.activations
        if self.job.fused_loss or self.job.loss_chunk_count > 1:
            return np.full_like(self.tensor, self._chunked_logits_bytes)
        if self.job.shifted_logits:
            return np.full_like(self.tensor, _SHIFTED_LOGITS_BYTES)
        at_the_peak = np.where(
            self.tensor > 1.0,
            keeps.split_logits_bytes_per_element
            if self.job.vocabulary_parallel_loss
            else _WHOLE_LOGITS_BYTES,
            keeps.logits_bytes_per_element,
        )
        return at_the_peak + self._held_logits_bytes

    @property
    def _chunked_logits_bytes(self) -> float:
        """Return the bytes per logit of a loss that takes n chunks of tokens one after another.

            b (1 + 1 / n)                   where it works in place of the logits,
            max(b + 4 + 4 / n, 4 + 8 / n)   else, with b the bytes of a logit

        The head puts out the logits of all chunks first. In place, backward writes the gradient of
        one while the logits of the others are there. Else forward keeps the log-softmax of each in
        32 bits, beside a copy of one in 32, and backward has two gradients of one in 32 beside
        them, once the caller has let the logits go. Counted by what torch 2.13 allocates: 12, 8, 7
        and 6.5 bytes for 1, 2, 4 and 8 chunks.

        Source: torchtune `modules/loss/ce_chunked_output_loss.py`, whose recipes delete the logits
        before backward.
        """
        own, count = float(self.compute_bytes), self.job.loss_chunk_count
        if self.job.fused_loss:
            return own * (1.0 + 1.0 / count)
        return max(own + 4.0 + 4.0 / count, 4.0 + 8.0 / count)

    @property
    def varied_ratio(self) -> float:
        """Return what the loss's buffers reserve over their bytes, for sequences of varied lengths.

            r = 1 + k / 2

        An allocator that merges free neighbours has, once blocks of varied sizes have come and gone
        for long, half as many holes as blocks; k = 1 takes holes to be as large. That is so of the
        largest tensors alone, a micro-batch's logits and their gradients: what is smaller lies in
        holes that they leave. Where every step has tensors of the same sizes, those of one step
        fill the holes of the last, and r = 1.

        Source: Knuth 1997, The Art of Computer Programming 1, section 2.5; torch
        `c10/cuda/CUDACachingAllocator.cpp`, which merges neighbours within a segment.
        """
        return 1.0 + _HOLES_PER_BLOCK if self.job.varied_lengths else 1.0

    @property
    def summed_bytes(self) -> int:
        """Return the bytes of a gradient element where whole ones are summed over all ranks."""
        return 4 if self.job.summed_gradients else self.reduce_bytes

    @property
    def holds_sent_rows(self) -> bool:
        """Return whether a stage holds what it sent until its backward."""
        own = self.job.stage_buffers
        return self.stack.activations.sent_rows_held if own is None else own

    @property
    def holds_receive_buffers(self) -> bool:
        """Return whether a stage has a buffer for each message of all micro-batches."""
        own = self.job.stage_buffers
        return self.stack.activations.boundary_buffers if own is None else own

    @property
    def waiting_logits_bytes(self) -> Floats:
        """Return the bytes per logit of micro-batches whose loss waits for its backward.

        GPipe keeps for all but the one at hand what backward reads, the log-softmax in 32 bits, or
        the gradient that a fused loss has written.
        """
        in_place = self.job.fused_loss or self.job.fused_linear_loss
        own = float(self.compute_bytes) if in_place else 4.0 + self._held_logits_bytes
        return np.where(self.forwards_first, (self.micro_batch_count - 1.0) * own, 0.0)

    @property
    def _held_logits_bytes(self) -> Floats:
        held = self.holds_sent_rows and self.job.stack is Stack.TORCH
        return np.where((self.pipeline > 1.0) & held, float(self.compute_bytes), 0.0)

    @property
    def core_alone_runs_again(self) -> bool:
        """Return whether selective checkpointing works out unfused attention again, and no more.

        Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2, as in Megatron-LM.
        """
        return not self.job.fused_attention and self.job.stack is not Stack.TORCH

    @property
    def recomputes_all(self) -> bool:
        """Return whether full checkpointing runs again what nothing in backward needs.

        Dropout after the last product needs it, for its mask.
        """
        return not self.stack.recomputes_to_the_last_kept or self.job.dropout

    @property
    def unfused(self) -> bool:
        """Return whether each step of rotary is a kernel of its own, as in torch uncompiled."""
        own = self.job.fused_elementwise
        return not (self.stack.activations.fused if own is None else own)

    @property
    def unfused_norms(self) -> bool:
        """Return whether each step of a norm is a kernel: as the job says, or as all else is."""
        own = self.job.fused_norms
        return self.unfused if own is None else not own

    @property
    def softmax(self) -> Softmax:
        """Return how unfused attention makes its softmax: as the job says, or as norms are made.

        Source: Megatron-LM `fused_softmax.py`, whose kernel takes 16 bits alone.
        """
        if self.job.softmax is not None:
            return self.job.softmax
        if self.unfused:
            return Softmax.WIDE_STEPS
        return Softmax.STEPS if self.job.precision is Precision.FP32 else Softmax.KERNEL

    @property
    def reduce_bytes(self) -> int:
        """Return the bytes of one gradient element on the wire."""
        if self.job.precision is Precision.FP32:
            return 4
        if self.job.gradients_in_16_bits or self.narrow_states:
            return 2
        return self.stack.reduce_bytes_per_gradient

    @property
    def optimizer_state_bytes(self) -> float:
        """Return the optimiser's bytes per parameter, with fp32 master copies where it has them."""
        own = _OPTIMIZER_STATE_BYTES[self.job.optimizer]
        if self.narrow_states:
            return own if self.job.optimizer is Optimizer.ADAM8BIT else own / 2.0
        master = self.stack.optimizer_has_master and self.job.precision is not Precision.FP32
        return own + (4.0 if master else 0.0)

    @property
    def step_bytes(self) -> float:
        """Return the bytes per local parameter that the optimizer's step needs beside its states.

        Roots of the second moments, all at once: torch 2.13, `torch._foreach_sqrt` in adam.py, as
        counted.
        """
        is_foreach = self.job.foreach_optimizer and self.job.optimizer is Optimizer.ADAMW
        roots = 2.0 if self.narrow_states else 4.0
        return roots if is_foreach else 0.0

    @property
    def optimizer_traffic_bytes(self) -> float:
        """Return the memory traffic of one optimiser step per local parameter.

        38 for AdamW: fp32 parameter, gradient and two moments read, three written, the gradient
        cleared, the 16-bit copy written, and the gradient read once more for its norm, which only
        clipping wants; others in proportion to their states.
        """
        norm = 0.0 if self.job.prices_clipping else _NORM_TRAFFIC_BYTES
        moved = _OPTIMIZER_TRAFFIC_BYTES[self.job.optimizer] - norm
        return _NARROW_TRAFFIC_RATIO * moved if self.narrow_states else moved

    @property
    def host_optimizer_bytes(self) -> float:
        """Return what the host reads and writes for one parameter that it updates."""
        return _HOST_OPTIMIZER_BYTES / (2.0 if self.narrow_states else 1.0)

    @property
    def optimizer_seconds_per_parameter(self) -> float:
        """Return the seconds of one optimiser step per local parameter, at the memory's pace.

        On a CPU the update was measured: 28 bytes a parameter for AdamW, others in proportion.
        """
        moved = self.optimizer_traffic_bytes
        if not self.host_is_device:
            return moved / self.hardware.memory_bytes_per_second
        ratio = moved / _OPTIMIZER_TRAFFIC_BYTES[Optimizer.ADAMW]
        rate = self.hardware.profile.host.optimizer_gb_per_second * 1e9
        return _HOST_OPTIMIZER_BYTES * ratio / rate

    @property
    def data_shard(self) -> Floats:
        """Return the ranks over which model states shard: data-parallel shard x context."""
        return self.shard * self.context

    @property
    def expert_shard(self) -> Floats:
        """Return the ranks of a shard group that hold the same part of the same experts."""
        ranks = self.tensor * self.data_shard
        return np.maximum(ranks / (self.expert * self.expert_tensor), 1.0)

    @property
    def has_own_experts(self) -> Booleans:
        """Return whether tensor-parallel ranks hold whole experts, not parts of the same ones."""
        return np.asarray(self.expert_tensor < self.tensor)

    @property
    def whole_tokens_inside(self) -> Booleans:
        """Return whether every tensor-parallel rank's experts take all of the ranks' tokens."""
        whole_outside = (self.expert == 1.0) | ~self.sequence_parallel
        return np.asarray((self.expert_tensor == self.tensor) & whole_outside)

    @property
    def peak_ratio(self) -> float:
        """Return the peak rate at the job's precision over that of bf16."""
        peaks = self.hardware.peak_flop_per_second
        return peaks[self.job.precision] / peaks[Precision.BF16]

    @property
    def in_situ_efficiency(self) -> float:
        """Return the rate of kernels inside a step over that of the same kernels alone."""
        return in_situ_efficiency(self.hardware.profile, self.stack)

    def product_flop_per_second(self, precision: Precision) -> float:
        """Return the rate of products over many elements inside a step."""
        gemm = self.hardware.profile.gemm.rate(precision)
        own = gemm.in_situ_efficiency
        kept = self.in_situ_efficiency if own is None else own
        return self.hardware.peak_flop_per_second[precision] * gemm.efficiency * kept

    @property
    def overlap(self) -> OverlapProfile:
        """Return how much of communication hides under compute."""
        return self.hardware.profile.overlap or self.stack.overlap

    @property
    def overlaps_offload(self) -> bool:
        """Return whether offloaded activations move beside compute."""
        own = self.job.overlapped_offload
        return self.stack.offloads_under_compute if own is None else own

    @property
    def overlaps_gradients(self) -> bool:
        """Return whether gradients that are reduced once a step are so under backward."""
        own = self.job.overlapped_gradients
        return self.stack.syncs_under_compute if own is None else own

    @property
    def overlaps_tensor_parallel(self) -> Booleans:
        """Return whether collectives of tensor parallelism run beside products.

        Without sequence parallelism no option does that, but Megatron reduces inputs' gradients
        beside products of weights' gradients by itself. Nothing copies beside a CPU's products.
        """
        if self.host_is_device:
            return np.zeros_like(self.sequence_parallel)
        own, usual = self.job.overlapped_tensor_parallel, self.stack.overlaps_tensor_parallel
        split = usual if own is None else own
        return np.where(self.sequence_parallel, split, usual and own is not False)

    @property
    def copies_rows(self) -> Booleans:
        """Return whether rows that are gathered and scattered are copied once more."""
        own = self.job.copied_rows
        copies = self.stack.copies_rows if own is None else own
        return self.sequence_parallel & (self.tensor > 1.0) & copies

    @property
    def expert_load_ratio(self) -> Floats:
        """Return the rows of the fullest rank's experts over their mean.

        A rank that has all experts takes its own tokens' rows, wherever they go. Where every expert
        takes a fixed number, the ratio is the capacity that each is filled up to, on any rank.
        """
        own = self.job.expert_load_ratio
        uneven = (self.expert > 1.0) | self.job.fixed_expert_tokens
        return np.where(uneven, own, 1.0)

    @property
    def host_is_device(self) -> bool:
        """Return whether launching a kernel takes time from running kernels, as on a CPU."""
        return self.hardware.kind == "cpu"

    @property
    def host_seconds_per_kernel(self) -> float:
        """Return the host's time to launch one kernel; none where graphs of all are replayed."""
        if self.job.cuda_graphs and not self.host_is_device:
            return 0.0
        profile = self.hardware.profile
        usual = self.stack.host_us_per_kernel * profile.host_ratio
        own = profile.host_us_per_kernel
        return (usual if own is None else own) * 1e-6

    @property
    def host_seconds_per_gathered_module(self) -> float:
        """Return the host's time around one module whose parameters are gathered for it."""
        if self.host_is_device or self.job.cuda_graphs:
            return 0.0
        us = self.stack.gather_host_us_per_module * self.hardware.profile.host_ratio
        return us * 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Rows of a setting that are alike in some columns, each combination once.

    `setting` has these columns; the others are empty, so that nothing can depend on them. `first`
    [combinations] are their first rows, and `whose` [configurations] says whose each row is.
    """

    setting: Setting
    first: Integers
    whose: Integers


def setting(job: Job, hardware: DeviceHardware, configurations: Configurations) -> Setting:
    """Return the setting of a resolved job for `configurations`.

    Raises:
        ValueError: if the job's sequence length is unresolved.
    """
    if job.sequence_length is None:
        raise ValueError("the job must be resolved before it is priced")

    def column(values: NDArray[np.int64]) -> Floats:
        return values.astype(np.float64)[:, None]

    context = column(configurations.context_parallel_degree)
    micro_batch_size = column(configurations.micro_batch_size)
    return Setting(
        hardware=for_products_of(job, hardware),
        stack=stack_profile(job.stack),
        job=job,
        sequence_length=job.sequence_length,
        tensor=column(configurations.tensor_parallel_degree),
        sequence_parallel=configurations.sequence_parallel[:, None],
        pipeline=column(configurations.pipeline_parallel_degree),
        context=context,
        heads_exchanged=(configurations.context_parallel_kind == ContextParallelKind.ALL_TO_ALL)[
            :, None
        ],
        expert=column(configurations.expert_parallel_degree),
        expert_tensor=column(configurations.expert_tensor_parallel_degree),
        shard=column(configurations.data_parallel_shard_degree),
        replicate=column(configurations.data_parallel_replicate_degree),
        micro_batch_size=micro_batch_size,
        micro_batch_count=column(configurations.micro_batch_count),
        forwards_first=configurations.forwards_first[:, None],
        turns=column(configurations.turns),
        tokens=micro_batch_size * job.sequence_length / context,
    )


def layer_tokens(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return the layer's own tokens in a micro-batch on one device, of a head those that it reads.

    A decoder's layers have the job's sequence length; a tower's have their own, and what a
    cross-attention reads has the tower's. Context parallelism divides them all.
    """
    return layer.token_ratio * _tokens(layer.tokens_per_sequence, setting)


def source_tokens(source: SourceWorkload, setting: Setting) -> Floats:
    """Return the tokens that a layer reads of another part of the chain."""
    return _tokens(source.tokens_per_sequence, setting)


def key_value_ranks(core: AttentionCore | None, setting: Setting) -> Floats:
    """Return over how many tensor-parallel ranks keys and values are divided: their heads at most.

    Ranks that are more gather all queries, keys and values; each takes its own queries, and the
    head of keys and values that these need, which other ranks take as well.
    Source: Megatron-LM `core/transformer/attention.py` (`num_query_groups < world_size`).
    """
    if core is None or not core.gathered_width:
        return setting.tensor
    return np.minimum(setting.tensor, core.key_value_head_count)


def key_value_copies(core: AttentionCore | None, setting: Setting) -> Floats:
    """Return the share of keys and values that a tensor-parallel rank has beyond its own part."""
    return 1.0 / key_value_ranks(core, setting) - 1.0 / setting.tensor


def boundary_elements(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return the elements that cross a cut after the layer, whole on every tensor-parallel rank."""
    elements = layer.boundary.elements(setting.sequence_length)
    return setting.micro_batch_size * elements / setting.context


def _tokens(tokens_per_sequence: int | None, setting: Setting) -> Floats:
    if tokens_per_sequence is None:
        return setting.tokens
    return setting.micro_batch_size * tokens_per_sequence / setting.context
