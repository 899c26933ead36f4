"""Profiles: what data files say of devices and software stacks, in the files' units."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.network import LevelProfile
from planner.rates import AttentionProfile, GemmProfile, NotNegative, Positive, Share
from planner.schema.document import Part
from planner.schema.job import Precision, Stack


class HostProfile(Part):
    """The host's share for one device."""

    memory_gib_per_device: NotNegative
    to_device_gb_per_second: Positive
    from_device_gb_per_second: Positive
    optimizer_gb_per_second: Positive
    source: str


class OverlapProfile(Part):
    """exposed = max(0, communication - hidden_ratio x window) + contention."""

    hidden_ratio: Annotated[float, Field(ge=0, le=1)]
    contention_ratio: Annotated[float, Field(ge=0, le=1)]


class NodeProfile(Part):
    """The nodes that a device is sold in: what a number of devices alone stands for.

    `device_count` devices make a whole node; None where any number is one node, as of CPU ranks.
    `device_limit` is the most that one node can have.
    """

    device_count: Annotated[int, Field(ge=1)] | None
    device_limit: Annotated[int, Field(ge=1)]
    source: str


class DeviceProfile(Part):
    """One data file of `profiles/devices`, in the file's units.

    `not_in_hardware` are formats whose rate here is that of the nearest which the device has: an
    upper bound where software emulates them, and nothing where none does (fp8).
    `tensor_float_32` false: products of fp32 do not run on what runs those of bf16 (TF32).
    `fuses_unlike_heads` false: Transformer Engine has no fused attention there that is trained, of
    heads whose keys are of more than 128 elements and of another size than their values.
    What may be None is the stack's to say, unless the device differs. `lone_speed_ratio` is how
    fast a device is while its neighbours idle, over its rates here, which are of all at work: more
    than 1 where CPU ranks share cores. `hidden_reduce_ratio` is what is left of an all_reduce of
    whole gradients beside backward where `overlap` hides nothing, as what CPU ranks wait for does
    hide. `split_operator_us` is what an operator on a tensor that knows its placement adds.
    `step_error_ratio` is the standard deviation of the logarithm of measured over predicted steps,
    on a machine whose own ranks trained them for its profile: each left out of the fit in turn.
    `planned_only` says what runs programs on a device that nothing here runs on, and what is priced
    in its place. `node` is there for every device that ships. `compared_with_runs` says that
    predictions of it were compared with published runs (docs/accuracy.md), `learnt_stacks` under
    which stacks constants were chosen on runs of its chip, and `core_count` how many cores the
    machine has whose CPU ranks were measured.
    """

    device: str
    kind: Literal["cuda", "cpu"]
    compared_with_runs: bool = False
    learnt_stacks: tuple[Stack, ...] = ()
    planned_only: str | None = None
    core_count: Annotated[int, Field(ge=1)] | None = None
    memory_gib: Positive
    memory_bandwidth_gb_per_second: Positive
    memory_efficiency: Share
    peak_tflop_per_second: dict[Precision, Positive]
    not_in_hardware: tuple[Precision, ...] = ()
    tensor_float_32: bool = True
    fuses_unlike_heads: bool = True
    gemm: GemmProfile
    attention: AttentionProfile
    kernel_us: NotNegative
    host_us_per_kernel: NotNegative | None = None
    host_ratio: Positive = 1.0
    runtime_gib: NotNegative | None = None
    allocator_slack_ratio: NotNegative | None = None
    in_situ_efficiency: Share | None = None
    overlap: OverlapProfile | None = None
    lone_speed_ratio: Annotated[float, Field(ge=1, le=1024)] = 1.0
    hidden_reduce_ratio: Share = 1.0
    split_operator_us: NotNegative = 0.0
    step_error_ratio: Positive | None = None
    node: NodeProfile | None = None
    levels: tuple[LevelProfile, ...]
    host: HostProfile
    price_per_device_hour: NotNegative
    power_watts: Positive

    @property
    def has_tensor_float_32(self) -> bool:
        """Return whether products of fp32 can run in TF32: where those of bf16 have hardware."""
        in_16_bits = self.kind == "cuda" and Precision.BF16 not in self.not_in_hardware
        return in_16_bits and self.tensor_float_32


class StateBytes(Part):
    """Bytes per parameter of one ZeRO stage: [whole on every rank, divided over the shards].

    `accumulated` are whole gradients kept between micro-batches where there are several, in the
    type that they are reduced in.
    """

    parameters: tuple[int, int]
    gradients: tuple[int, int]
    accumulated: int


class ModelStates(Part):
    """State bytes by ZeRO stage 0-3, under 16-bit compute (`mixed`) and in fp32 (`full`).

    `pipelined_bfloat16` is there where pipelines in bf16 have an optimizer of their own.
    """

    mixed: tuple[StateBytes, StateBytes, StateBytes, StateBytes]
    full: tuple[StateBytes, StateBytes, StateBytes, StateBytes]
    pipelined_bfloat16: tuple[StateBytes, StateBytes, StateBytes, StateBytes] | None = None


class ActivationProfile(Part):
    """What the software keeps for backward, and holds in the loss.

    `fused`: norms, gates and activations are single kernels that keep their inputs alone.
    `gathers_again`: under sequence parallel, inputs of column-split products are kept divided.
    `products_in_8_bits`: under fp8, products keep what they read in 8 bits.
    `split_logits_bytes_per_element`: what the loss holds where tensor parallelism divides logits.
    `keeps_expert_outputs`: rows that experts put out are kept, as where they are weighed after it.
    `sent_rows_held`: a stage holds what it sent for every micro-batch in flight, also its logits.
    `boundary_buffers`: every micro-batch has a buffer of its own for each message that a stage
    receives, from the first step on.
    """

    fused: bool
    gathers_again: bool
    products_in_8_bits: bool
    keeps_expert_outputs: bool
    sent_rows_held: bool
    boundary_buffers: bool
    logits_bytes_per_element: Annotated[int, Field(ge=1, le=32)]
    split_logits_bytes_per_element: Annotated[int, Field(ge=1, le=32)]


class CastProfile(Part):
    """Bytes moved to cast one element for products in 8 bits, beyond what is moved in 16.

    `transposed_*` of them write it in the order that a weight's gradient reads.
    """

    input_bytes: NotNegative
    gradient_bytes: NotNegative
    weight_bytes: NotNegative
    transposed_input_bytes: NotNegative
    transposed_gradient_bytes: NotNegative


class BucketProfile(Part):
    """Parameters of one collective: the larger of a number and one for each data-parallel rank."""

    parameters: Positive
    parameters_per_rank: NotNegative = 0.0


class StackProfile(Part):
    """One data file of `profiles/stacks`: what the software adds.

    `in_situ_efficiency` is the rate of kernels inside a step over that of the same kernels alone;
    `in_situ_by_device` what it is on devices where it differs.
    `splits_boundaries`: between pipeline stages each tensor-parallel rank sends its share alone,
    and the receivers gather it.
    `recomputes_to_the_last_kept`: full checkpointing runs a block again up to the last thing that
    backward needs, and no further.
    `counted_host_ratio` is what launching a kernel takes in a mixture's layer whose experts take a
    fixed number of tokens, over one whose host waits for their counts.
    `gather_host_us_per_module` is the host's time around a module whose parameters are gathered.
    `gathers_in_8_bits`: under fp8, parameters are gathered once a step as products read them.
    `syncs_under_compute`: what is synced once a step hides under backward and the next forward.
    `offloads_under_compute`: offloaded activations move on streams of their own beside compute, and
    not on the stream that computes.
    `offloads_gradients`: gradients lie on the host where the optimizer's states do.
    `gradients_follow_parameters`: they do where parameters do, and are fetched for the update
    where the optimizer's states do.
    `copies_gathered`: gathered parameters and gradients are copied between flat and own tensors.
    `autocasts`: where nothing is sharded, fp32 weights are cast for every micro-batch.
    `overlaps_tensor_parallel`: collectives of tensor parallelism run beside products.
    `copies_rows`: rows that are gathered and scattered along the sequence are copied once more.
    `workspace_gib` of `runtime_gib` is tensors that libraries allocate through the framework.
    `reduce_bucket_gib` is held where gradients are reduced into shards.
    `whole_buckets` are of gradients that are reduced whole (ZeRO-0), `sharded_buckets` of those
    that are scattered, and of parameters gathered once a step: a layer's own where None.
    `gradient_buffers`: gradients have a buffer from the start, and are reduced in it.
    """

    stack: Stack
    in_situ_efficiency: Share
    splits_boundaries: bool
    in_situ_by_device: dict[str, Share] = Field(default_factory=dict)
    recomputes_to_the_last_kept: bool
    elementwise_ratio: Positive
    host_us_per_kernel: NotNegative
    counted_host_ratio: Share = 1.0
    gather_host_us_per_module: NotNegative
    backward_kernel_ratio: Positive
    runtime_gib: NotNegative
    workspace_gib: NotNegative
    reduce_bucket_gib: NotNegative
    allocator_slack_ratio: Annotated[float, Field(ge=0, lt=1)]
    whole_buckets: BucketProfile
    sharded_buckets: BucketProfile | None = None
    reduce_bytes_per_gradient: Annotated[int, Field(ge=1, le=4)]
    gathered_layer_count: Annotated[int, Field(ge=1, le=64)]
    overlap: OverlapProfile
    gathers_in_8_bits: bool = False
    syncs_under_compute: bool
    offloads_under_compute: bool
    offloads_gradients: bool
    gradients_follow_parameters: bool = False
    copies_gathered: bool
    autocasts: bool
    overlaps_tensor_parallel: bool
    copies_rows: bool
    activations: ActivationProfile
    casts: CastProfile
    model_states: ModelStates
    gradient_buffers: bool
    optimizer_has_master: bool
    source: str


def in_situ_efficiency(device: DeviceProfile, stack: StackProfile) -> float:
    """Return the device's own efficiency inside a step, else the stack's on it."""
    if device.in_situ_efficiency is not None:
        return device.in_situ_efficiency
    return stack.in_situ_by_device.get(device.device, stack.in_situ_efficiency)
