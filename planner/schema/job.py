"""Job: what to train and under which limits."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from planner.schema.block import later
from planner.schema.document import Degree, Document, Flag, Name, Part, PositiveCount
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    Offload,
    PipelineSchedule,
    ZeroStage,
)

DEVICE_RETURNS_LIMIT = 8
GLOBAL_BATCH_LIMIT = 2**24
LEARNT_RUNS_MOST = 1000


class Precision(StrEnum):
    """The number format of matrix products."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    FP8 = "fp8"


class Optimizer(StrEnum):
    """The optimiser, for the bytes of its states and of its step."""

    ADAMW = "adamw"
    ADAM8BIT = "adam8bit"
    SGD = "sgd"
    ADAFACTOR = "adafactor"
    MUON = "muon"


class Stack(StrEnum):
    """The software whose overheads and legality rules apply."""

    TORCH = "torch"
    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"


class Framework(StrEnum):
    """The training program whose configuration must be able to say a plan."""

    TORCHTITAN = "torchtitan"
    MEGATRON_LM = "megatron-lm"
    DEEPSPEED = "deepspeed"
    ACCELERATE = "accelerate"
    AXOLOTL = "axolotl"
    LLAMA_FACTORY = "llama-factory"

    @property
    def stack(self) -> Stack:
        """Return the stack whose overheads it has."""
        return _FRAMEWORK_STACKS.get(self, Stack.TORCH)


# Those that take adapters of PEFT, whose bases of 4 bits are bitsandbytes'
_OF_BITSANDBYTES = (
    Framework.ACCELERATE,
    Framework.AXOLOTL,
    Framework.DEEPSPEED,
    Framework.LLAMA_FACTORY,
)
_FRAMEWORK_STACKS = {
    Framework.MEGATRON_LM: Stack.MEGATRON,
    Framework.DEEPSPEED: Stack.DEEPSPEED,
    Framework.LLAMA_FACTORY: Stack.DEEPSPEED,
}


class Objective(StrEnum):
    """What is least or most in the chosen plan."""

    THROUGHPUT = "throughput"
    COST = "cost"
    MEMORY = "memory"
    DEVICES = "devices"


class OffloadStore(StrEnum):
    """Where offloaded optimiser states and parameters lie: in host memory or on NVMe drives."""

    HOST = "host"
    NVME = "nvme"


class Softmax(StrEnum):
    """What unfused attention makes of the scores, beside its products.

    `kernel`: one kernel scales, masks and normalises. `masked`: a mask, and a softmax. `steps`: a
    scale beside them. `wide_steps`: the same, whose softmax has 32 bits, as torch's autocast and
    transformers' layers have it. `reductions`: maximum, sum and quotient, each of which reads the
    scores and scales and masks them on the way, as XLA compiles it.
    """

    KERNEL = "kernel"
    MASKED = "masked"
    STEPS = "steps"
    WIDE_STEPS = "wide_steps"
    REDUCTIONS = "reductions"


class AdapterTargets(StrEnum):
    """Which products of a block have adapters: those of attention, or all but routed experts."""

    ATTENTION = "attention"
    ALL = "all"


class Unpacking(StrEnum):
    """What turns frozen weights of 4 or 8 bits into 16: one kernel, or a library's many in turn."""

    KERNEL = "kernel"
    AUTO_GPTQ = "auto_gptq"
    TORCHAO = "torchao"


class BaseFormat(StrEnum):
    """How frozen weights of 4 bits are stored: bits of a weight, scales and zeros among them.

    | format       | beside 4 bits                                                | bits  |
    |--------------|--------------------------------------------------------------|-------|
    | `bnb_nested` | 8 for 64 weights, and 32 for 256 of these (QLoRA, torchao)    | 4.127 |
    | `bnb`        | 32 for 64 weights                                            | 4.5   |
    | `gptq`       | a scale of 16 and a zero of 4 for 128 weights (GPTQ, AWQ)     | 4.156 |
    | `hqq`        | a scale and a zero of 16 each for 64 weights                 | 4.5   |
    | `mxfp4`      | 8 for 32 weights                                             | 4.25  |
    | `nvfp4`      | 8 for 16 weights                                             | 4.5   |

    Source: Dettmers et al. 2023, arXiv:2305.14314, section 3; bitsandbytes `nn/modules.py`
    (`compress_statistics`); auto_gptq `nn_modules/qlinear/qlinear_cuda.py`; HQQ `core/quantize.py`
    (`hqq_base_quant_config`); OCP Microscaling Formats 1.0, section 5.2; NVIDIA Transformer Engine,
    NVFP4. Ignored: GPTQ's index of groups, a scale of a whole tensor in NVFP4.
    """

    BNB_NESTED = "bnb_nested"
    BNB = "bnb"
    GPTQ = "gptq"
    HQQ = "hqq"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"


_BITS_BESIDE = {
    BaseFormat.BNB_NESTED: 8 / 64 + 32 / (64 * 256),
    BaseFormat.BNB: 32 / 64,
    BaseFormat.GPTQ: (16 + 4) / 128,
    BaseFormat.HQQ: (16 + 16) / 64,
    BaseFormat.MXFP4: 8 / 32,
    BaseFormat.NVFP4: 8 / 16,
}


class Adapters(Part):
    """Low-rank adapters (LoRA) in place of the model's parameters, which stay as they are.

    `trains_ends`: copies of embedding and head are trained whole. `base_bits` of 4 or 8: blocks are
    stored in so many bits (QLoRA), and of 4 in `base_format`, with its scales; a row's one scale
    in 8 bits is not counted. `whole_scales`: under ZeRO-3 every rank holds the scales of all 4-bit
    weights on its device, as FSDP and DeepSpeed leave those of bitsandbytes and HQQ, which are
    attributes and no parameters; GPTQ's weights are buffers, and stay whole whatever it says.
    `unpacking`:
    one kernel, as bitsandbytes has, or the many of auto_gptq's and torchao's eager 4-bit tensors.
    `dropout`: each adapter drops some of what it reads, and keeps a copy of the rest and a mask.
    """

    rank: Annotated[int, Field(ge=1, le=65536)]
    targets: AdapterTargets = AdapterTargets.ALL
    trains_ends: Flag = False
    base_bits: Literal[4, 8, 16] = 16
    base_format: BaseFormat = later(BaseFormat.BNB_NESTED)
    whole_scales: Flag = later(False)
    unpacking: Unpacking = Unpacking.KERNEL
    dropout: Flag = False

    @property
    def base_bytes(self) -> float:
        """Return the bytes of one frozen parameter as it is stored."""
        return (self.base_bits + self._bits_beside) / 8.0

    @property
    def undivided_bytes(self) -> float:
        """Return those of them that no rank shards, gathers or offloads.

        Source: bitsandbytes `nn/modules.py` (`Params4bit.quant_state`); auto_gptq
        `nn_modules/qlinear/qlinear_cuda.py` (`register_buffer`); AnswerDotAI/fsdp_qlora `train.py`
        (`load_and_quantize`: "FSDP only syncs parameters and buffers"). torchao's tensors are cut
        and gathered with their scales (`dtypes/nf4tensor.py`, `_INNER_TENSOR_NAMES_FOR_SHARDING`).
        """
        if self.base_format is BaseFormat.GPTQ:
            return self.base_bytes
        return self._bits_beside / 8.0 if self.whole_scales else 0.0

    @property
    def _bits_beside(self) -> float:
        return _BITS_BESIDE[self.base_format] if self.base_bits == 4 else 0.0

    @model_validator(mode="after")
    def _format_of_4_bits(self) -> Self:
        if self.base_bits != 4 and self.base_format is not BaseFormat.BNB_NESTED:
            raise ValueError(
                f"base_format {self.base_format} is of weights in 4 bits, and base_bits is "
                f"{self.base_bits}; leave it out, or set base_bits 4"
            )
        if self.whole_scales and self.base_bits != 4:
            raise ValueError(
                f"whole_scales is of weights in 4 bits, and base_bits is {self.base_bits}; leave "
                "it out, or set base_bits 4"
            )
        return self


class DegreeLimit(Part):
    """A degree's allowed interval; a bare number in the document fixes it."""

    min: Degree = 1
    max: Degree = 2**20

    @model_validator(mode="before")
    @classmethod
    def _bare_number_fixes(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "max": value}
        if not isinstance(value, (Mapping, cls)):
            what = "is not a degree; write one such as 8, or an interval such as {min: 2, max: 8}"
            raise ValueError(what)  # noqa: TRY004 - pydantic takes no other
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} exceeds max {self.max}; write the smaller as min")
        return self

    def allows(self, degree: int) -> bool:
        """Return whether `degree` lies in the interval."""
        return self.min <= degree <= self.max


_ANY_DEGREE = DegreeLimit.model_construct()  # the defaults, without a validator at import


class Limits(Part):
    """Fixed or bounded degrees, allowed techniques, memory headroom, solver time.

    A search ends before `solver_seconds` as soon as no plan can be faster than the one found by
    more than `accepted_gap_ratio` of its step; where that is 0, it ends with the best.
    `fits_probability` is the least chance of fitting that a plan may have, beside the headroom;
    `null` asks for none. Of the plans whose step is longer than the fastest's by no more than
    `simplicity_ratio` of it, the one of fewest techniques is taken (`planner.space.complexity`);
    where that is 0, the fastest is.
    A pipeline over several kinds of devices comes back `device_returns` times at most to a kind
    that it has left.
    What is legal and yet searched only where a limit asks for it, `planner.space.rules` says, and a
    plan's certificate names (`not_searched`).
    """

    tensor_parallel_degree: DegreeLimit = _ANY_DEGREE
    pipeline_parallel_degree: DegreeLimit = _ANY_DEGREE
    virtual_pipeline_degree: DegreeLimit = _ANY_DEGREE
    context_parallel_degree: DegreeLimit = _ANY_DEGREE
    context_parallel_kinds: Annotated[tuple[ContextParallelKind, ...], Field(min_length=1)] = tuple(
        ContextParallelKind
    )
    expert_parallel_degree: DegreeLimit = _ANY_DEGREE
    expert_tensor_parallel_degree: DegreeLimit = _ANY_DEGREE
    data_parallel_replicate_degree: DegreeLimit = _ANY_DEGREE
    data_parallel_shard_degree: DegreeLimit = _ANY_DEGREE
    micro_batch_size: DegreeLimit = _ANY_DEGREE
    sequence_parallel: Flag | None = None
    zero_stages: Annotated[tuple[ZeroStage, ...], Field(min_length=1)] = (0, 1, 2, 3)
    activation_checkpointing: Annotated[
        tuple[ActivationCheckpointing, ...], Field(min_length=1)
    ] = tuple(ActivationCheckpointing)
    offload: tuple[Offload, ...] = tuple(Offload)
    pipeline_schedules: Annotated[tuple[PipelineSchedule, ...], Field(min_length=1)] = tuple(
        PipelineSchedule
    )
    memory_headroom_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.05
    fits_probability: Annotated[float, Field(ge=0.5, lt=1)] | None = 0.95
    solver_seconds: Annotated[float, Field(gt=0, le=86400)] = 20.0
    accepted_gap_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    simplicity_ratio: Annotated[float, Field(ge=0, le=1)] = 0.02
    device_returns: Annotated[int, Field(ge=0, le=DEVICE_RETURNS_LIMIT)] = later(0)


class LearntRun(Part):
    """A measured run as a calibration keeps it: what it was, and how far off its prediction.

    `log_error` is the logarithm of its measured over its predicted step. What runs like it share of
    that has the standard deviation `shared_deviation`, what is its own `own_deviation`. What trials
    of one tuning have in common beside has `common_deviation`.
    """

    device: Name
    stack: Stack
    precision: Precision
    device_count: Degree
    tensor_parallel_degree: Degree
    pipeline_parallel_degree: Degree
    micro_batch_size: PositiveCount
    sequence_length: PositiveCount
    parameter_count: PositiveCount
    log_error: Annotated[float, Field(ge=-10, le=10)]
    shared_deviation: Annotated[float, Field(ge=0, le=10)]
    own_deviation: Annotated[float, Field(gt=0, le=10)]
    common_deviation: Annotated[float, Field(ge=0, le=10)] = later(0.0)


class LearntPeak(Part):
    """What a calibration keeps of one run's peak of memory: what it was, and how far off.

    `log_error` is the logarithm of true over predicted peak. Of a run of which it is only known
    whether it fitted, it is the measured one that would say as much, `own_deviation` with it.
    """

    device: Name
    stack: Stack
    precision: Precision
    sequence_length: PositiveCount
    parameter_count: PositiveCount
    log_error: Annotated[float, Field(ge=-10, le=10)]
    shared_deviation: Annotated[float, Field(ge=0, le=10)]
    own_deviation: Annotated[float, Field(gt=0, le=10)]


class LearntPeaks(Part):
    """What runs say of a job's peaks of memory: true over predicted, its logarithm normal.

    `log_ratio` is its mean, `error_ratio` its standard deviation, of `trial_count` runs.
    """

    log_ratio: Annotated[float, Field(ge=-10, le=10)]
    error_ratio: Annotated[float, Field(gt=0, le=10)]
    trial_count: PositiveCount


class Calibration(Part):
    """Runs that were learnt from; `digest` is of the document they stand in.

    `spread_ratio` is how much wider intervals are than deviations of runs say, by how far trials of
    a tuning were found to differ. `peaks` is what its trials say of memory, which it may do where
    no step was measured. `measured_peaks` are of runs whose peak, or whether they fitted, is known.

    Earlier versions kept factors by device of one stack in place of runs. Plans that were made with
    these can be read, and nothing is planned with them any more.
    """

    name: Name
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    runs: Annotated[tuple[LearntRun, ...], Field(max_length=LEARNT_RUNS_MOST)] = later(())
    spread_ratio: Annotated[float, Field(gt=0, le=1000)] = later(1.0)
    peaks: LearntPeaks | None = later(None)
    measured_peaks: Annotated[tuple[LearntPeak, ...], Field(max_length=LEARNT_RUNS_MOST)] = later(
        ()
    )
    stack: Stack | None = later(None)
    devices: dict[Name, JsonValue] | None = later(None)

    @model_validator(mode="after")
    def _has_learnt(self) -> Self:
        learnt = bool(self.runs or self.measured_peaks) or self.peaks is not None
        if learnt is bool(self.devices):
            raise ValueError(
                "runs must be one or more, and devices stands in older documents alone"
            )
        return self

    @property
    def is_superseded(self) -> bool:
        """Return whether it has what earlier versions kept."""
        return bool(self.devices)


class Job(Document):
    """A training job. What is `None` is resolved from the model and the cluster and then stated.

    A `framework` has only that planned which its own configuration can say (`planner.space`), and
    is of a stack. Axolotl trains whole models in the format that it loads, so that
    `states_in_16_bits` is true for it in bf16 unless the job says otherwise.

    Some flags say what the training program keeps in memory. `fused_attention` false: it writes
    the scores of attention and keeps them, which takes time as well; `softmax` says how it makes
    one of them, left out by single operations where norms are so, else by one kernel. `fused_loss`:
    it writes the gradient of the logits over them, and makes no copy in 32 bits.
    `loss_chunk_count`: the loss takes logits in so many chunks of tokens, one after another.
    `fused_linear_loss`: the head's product and the loss take tokens by pieces together, so that
    logits are never whole.
    `shifted_logits`: the loss reads a shifted copy of them in 32 bits. `vocabulary_parallel_loss`
    false: tensor-parallel ranks hold whole logits. `varied_lengths`: those of a step are as long as
    its longest sequence, up to `sequence_length`, which leaves holes between them. `stage_buffers`
    false: a pipeline's stage frees what it sent, and has no buffer for each message that it will
    receive, as torch.distributed.pipelining has; without it, as the stack does. `dropout`: it
    keeps masks. `gradients_in_16_bits`: gradients are reduced in 16 bits (`reduce_dtype` of torch's
    fully_shard), and accumulated in 16 by a stack with buffers for them. `gradient_clipping`: the
    optimiser's step begins with the norm of all gradients, a pass over them and a sum over all
    ranks, for which every stage waits. Left out it is priced, and a script's gradients are left
    alone; a script under a plan that says true has them clipped to a norm of 1.
    `foreach_optimizer`: AdamW updates all parameters by one call of kernel after kernel, as torch
    does on GPUs where nothing else is asked for, with 4 bytes a parameter of its own.

    `offload_to` says where offloaded states lie. On NVMe drives, which node groups must state, they
    stream through the host, and activations stay on devices.

    `offloaded_gradients` says whether gradients lie on the host as soon as they are reduced, where
    the optimizer's states do; without it, as the stack does. `paged_states`: what is offloaded of
    the optimizer is brought to the device for an update there, and leaves again.
    `steps_in_backward`: each parameter is updated when its gradient is there, which nothing holds.

    `overlapped_offload` says whether offloaded activations move beside compute; without it, as the
    stack has it. `ends_stay_gathered`: under ZeRO-3 embedding and head are gathered for a
    micro-batch's forward and stay until its backward is done, as FSDP's root does.

    `overlapped_gradients` says whether gradients that are reduced once a step are so under
    backward; without it, they are where the stack does that by default. Where they are not,
    parameters are gathered before forward, and not under it. Of DeepSpeed it says the same of what
    stages 2 and 3 sync in every micro-batch, which by default stage 3 alone hides.
    `parameter_broadcasts`: of the ranks that share a step of the optimizer each copies all of its
    gradients to 32 bits,
    and sends what it has updated by itself. `summed_gradients`: ranks that share a step under
    ZeRO-1 sum whole gradients in 32 bits, as without sharing, and each reads its own.

    `states_in_16_bits`: parameters, gradients and the optimizer's states all have 16 bits, without
    copies in 32, as where a model is converted to bf16 whole.

    `adapters` are trained in place of the model; without any, all parameters are.

    Some say what else takes time. `cuda_graphs`: the whole step is captured, so that the host
    launches no kernel. `attention_graphs`: attention and routing are, and the host launches what
    follows them in a block. `blocking_launches`: the host waits for each kernel, as it does under
    CUDA_LAUNCH_BLOCKING. `overlapped_experts`: dispatch to experts and combination run beside the
    compute of another micro-batch. `expert_load_ratio`: the tokens of the fullest expert-parallel
    rank over their mean; memory is counted as if routing were even. `fixed_expert_tokens`: every
    expert takes as many tokens, the rest is dropped or padded, and `expert_load_ratio` is the
    capacity factor; the host need not wait for counts. `fused_elementwise`: norms, rotary and
    gates are single kernels, compiled or written by hand, and norms keep their inputs alone, or
    (false) each of their steps is one, whose output is kept; without it, as the stack usually has
    it. `fused_norms` says that of norms alone, as of `torch.nn.RMSNorm`, which is one kernel on
    GPUs in torch 2.11. `regathered_rows`: under sequence parallelism, inputs of column-split
    products are kept divided and gathered anew in backward under torch too, which waits for it.
    `flash_attention_generation` is
    FlashAttention's, 1 to 3; without it fused attention is the stack's usual.
    `deduplicated_dispatch`: a token crosses to a node once for all its experts there, and not once
    for each.
    `overlapped_tensor_parallel`: collectives of tensor parallelism run beside the products that
    they feed and follow, in pieces (torch's asynchronous tensor parallelism, Megatron's
    `--tp-comm-overlap`); false: none of them does; without it, as the stack usually has it.
    `copied_rows`: under sequence parallelism rows are copied once more where they are gathered or
    scattered, as by DTensors of [batch, sequence, hidden], whose embeddings have gradients of all
    rows on every rank, and not where the sequence comes first; without it, as the stack has it.
    `row_scaled_fp8`: products in 8 bits have a scale for every row, not one for a tensor.
    `copies_in_8_bits`: weights are held and gathered in 16 bits beside copies in 8, one for either
    order that products read, as Transformer Engine keeps them where parameters have 16 bits
    (Megatron-LM without `--fp8-param-gather`). `gathered_in_8_bits`: torch's fully_shard gathers
    weights of blocks, but those of experts, in 8 bits and not in 16 (torchao's
    `enable_fsdp_float8_all_gather`).
    `tensor_float_32`: products in fp32 run on tensor cores, which read 10 of 23 bits (TF32), as
    torch does where it is asked to, and not otherwise.
    """

    global_batch_size: Annotated[PositiveCount, Field(le=GLOBAL_BATCH_LIMIT)] | None = None
    sequence_length: Annotated[PositiveCount, Field(le=2**24)] | None = None
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    stack: Stack = Stack.TORCH
    framework: Framework | None = None
    objective: Objective = Objective.THROUGHPUT
    fused_attention: Flag = True
    softmax: Softmax | None = later(None)
    fused_loss: Flag = False
    loss_chunk_count: PositiveCount = 1
    fused_linear_loss: Flag = False
    shifted_logits: Flag = False
    vocabulary_parallel_loss: Flag = True
    varied_lengths: Flag = False
    stage_buffers: Flag | None = None
    dropout: Flag = False
    gradients_in_16_bits: Flag = False
    gradient_clipping: Flag | None = None
    foreach_optimizer: Flag = False
    offload_to: OffloadStore = OffloadStore.HOST
    offloaded_gradients: Flag | None = None
    paged_states: Flag = False
    steps_in_backward: Flag = False
    overlapped_offload: Flag | None = None
    ends_stay_gathered: Flag = False
    overlapped_gradients: Flag | None = None
    parameter_broadcasts: Flag = False
    summed_gradients: Flag = False
    cuda_graphs: Flag = False
    attention_graphs: Flag = False
    blocking_launches: Flag = False
    overlapped_experts: Flag = False
    expert_load_ratio: Annotated[float, Field(ge=1, le=1024)] = 1.0
    fixed_expert_tokens: Flag = False
    fused_elementwise: Flag | None = None
    fused_norms: Flag | None = later(None)
    regathered_rows: Flag = False
    flash_attention_generation: Annotated[int, Field(ge=1, le=3)] | None = None
    deduplicated_dispatch: Flag = False
    overlapped_tensor_parallel: Flag | None = later(None)
    copied_rows: Flag | None = later(None)
    row_scaled_fp8: Flag = False
    copies_in_8_bits: Flag = later(False)
    gathered_in_8_bits: Flag = later(False)
    tensor_float_32: Flag = False
    states_in_16_bits: Flag = False
    adapters: Adapters | None = None
    limits: Limits = Limits.model_construct()  # the defaults, without a validator at import
    calibration: Calibration | None = None

    @property
    def prices_clipping(self) -> bool:
        """Return whether steps are priced with clipped gradients: unless the job says no."""
        return self.gradient_clipping is not False

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_documents(cls, value: object) -> object:
        """Read `first_flash_attention`, which documents had before generations were counted."""
        if not isinstance(value, dict) or "first_flash_attention" not in value:
            return value
        rest = {name: each for name, each in value.items() if name != "first_flash_attention"}
        return {"flash_attention_generation": 1, **rest} if value["first_flash_attention"] else rest

    @model_validator(mode="before")
    @classmethod
    def _stack_of_the_framework(cls, value: object) -> object:
        """Fill in the stack of the framework where none is given."""
        if not isinstance(value, dict) or value.get("framework") is None or "stack" in value:
            return value
        name = value["framework"]
        known = isinstance(name, str) and name in {item.value for item in Framework}
        return {**value, "stack": Framework(name).stack} if known else value

    @model_validator(mode="before")
    @classmethod
    def _states_of_the_framework(cls, value: object) -> object:
        """Fill in that Axolotl keeps all states of a whole model in the format of its products."""
        whole = isinstance(value, dict) and value.get("adapters") is None
        if not whole or not isinstance(value, dict) or value.get("framework") != Framework.AXOLOTL:
            return value
        wide = value.get("precision", Precision.BF16) in (Precision.FP32, Precision.FP16)
        return (
            value if wide or "states_in_16_bits" in value else {**value, "states_in_16_bits": True}
        )

    @model_validator(mode="before")
    @classmethod
    def _scales_of_the_framework(cls, value: object) -> object:
        """Fill in that bitsandbytes' scales stay whole in programs of PEFT."""
        adapters = value.get("adapters") if isinstance(value, dict) else None
        if not isinstance(value, dict) or value.get("framework") not in _OF_BITSANDBYTES:
            return value
        if isinstance(adapters, Adapters):
            adapters = adapters.model_dump(exclude_unset=True)
        if not isinstance(adapters, dict) or adapters.get("base_bits") != 4:
            return value
        return {**value, "adapters": {"whole_scales": True, **adapters}}

    @model_validator(mode="after")
    def _one_kind_of_loss(self) -> Self:
        kinds = ("fused_loss", "fused_linear_loss", "shifted_logits")
        given = [name for name in kinds if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are different losses; keep one of them")
        if self.loss_chunk_count > 1 and given and given != ["fused_loss"]:
            raise ValueError(
                f"loss_chunk_count {self.loss_chunk_count} and {given[0]} are different losses;"
                " keep one of them"
            )
        return self

    @model_validator(mode="after")
    def _softmax_of_unfused_attention(self) -> Self:
        if self.softmax is not None and self.fused_attention:
            raise ValueError(
                f"softmax {self.softmax} is of attention that writes its scores, and "
                "fused_attention is true; leave it out, or set fused_attention false"
            )
        return self

    @model_validator(mode="after")
    def _tensor_float_32_of_fp32(self) -> Self:
        if self.tensor_float_32 and self.precision is not Precision.FP32:
            raise ValueError(
                f"tensor_float_32 is of products in fp32, and precision is {self.precision}; leave "
                "it out, or set precision fp32"
            )
        return self

    @model_validator(mode="after")
    def _copies_of_fp8(self) -> Self:
        if self.copies_in_8_bits and self.precision is not Precision.FP8:
            raise ValueError(
                f"copies_in_8_bits is of products in fp8, and precision is {self.precision}; leave "
                "it out, or set precision fp8"
            )
        return self

    @model_validator(mode="after")
    def _gathers_of_fp8(self) -> Self:
        if not self.gathered_in_8_bits:
            return self
        for name, wanted in (("precision", Precision.FP8), ("stack", Stack.TORCH)):
            if getattr(self, name) is not wanted:
                raise ValueError(
                    f"gathered_in_8_bits is of fully_shard under fp8, and {name} is "
                    f"{getattr(self, name)}; leave it out, or set {name} {wanted}"
                )
        for name in ("row_scaled_fp8", "adapters"):
            if getattr(self, name):
                raise ValueError(
                    "gathered_in_8_bits is of weights that are trained and have a scale each; "
                    f"leave it out, or {name}"
                )
        return self

    @model_validator(mode="after")
    def _framework_of_its_stack(self) -> Self:
        if self.framework is not None and self.framework.stack is not self.stack:
            raise ValueError(
                f"framework {self.framework} is of the stack {self.framework.stack}, the job's is"
                f" {self.stack}; leave one of them out"
            )
        return self
