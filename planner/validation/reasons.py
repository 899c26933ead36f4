"""Reasons: why a row cannot be priced, what was assumed to price it, why it is not compared."""

from __future__ import annotations

from enum import StrEnum


class Unpriceable(StrEnum):
    """Why there is no honest price for a row, in the words that a report shows."""

    FIELD = "a field holds what the format does not know"
    DEVICE = "the GPU is not stated, or has no profile"
    MIXED_DEVICES = "several kinds of GPUs, and the format does not state which stage sits where"
    DEVICE_COUNT = "the number of GPUs is not stated, or is not whole nodes"
    SHAPE = "a size of the model is not stated, and no shipped model has its name"
    ATTENTION = "the attention's kind, or a size of it, is not stated or not modelled"
    PARTS = "the model has an encoder or a tower, whose sizes the format does not state"
    FEED_FORWARD = "the activation function is not stated or not known"
    LAYOUT = "the layout is not stated, or differs from stage to stage"
    PRODUCT = "the degrees do not multiply to the number of GPUs"
    EXPERTS = "the experts cannot be spread as the layout says"
    STAGES = "there are more pipeline stages than layers"
    MICRO_BATCH = "the micro-batch is not stated"
    SEQUENCE = "the sequence's length is not stated"
    BATCH = "the global batch is not stated"
    BATCH_DIVISION = "the micro-batches do not make up the global batch"
    PRECISION = "the number format is not modelled"
    SCHEDULE = "the pipeline schedule is not modelled"
    RECOMPUTE = "single operations are recomputed, stage by stage, which is not modelled"
    OFFLOAD = "single operations are offloaded, which is not modelled"
    OPTIMIZER = "the optimizer is not modelled"
    LIMITS = "a size is beyond what documents may hold"


class Assumption(StrEnum):
    """What was assumed to price a row that does not state it, or that the model cannot say."""

    ATTENTION_UNFUSED = "attention not stated, its core recomputed: not fused"
    ATTENTION_UNFUSED_BY_DEFAULT = "attention not stated: not fused, as the framework's default is"
    ATTENTION_UNFUSED_HEADS = (
        "attention not stated: not fused, as Transformer Engine cannot on the device"
    )
    ATTENTION_NOT_ASKED_FOR = (
        "attention's kernel not stated: its softmax alone is fused, unless the program is asked"
    )
    ATTENTION_CUDNN = "cuDNN's attention: at the rates of the stack's usual kernels"
    DISPATCH_ALLGATHER = "tokens gathered on all expert-parallel ranks: priced as all-to-all"
    RECOMPUTE_NONE = "recomputation not stated: none"
    RECOMPUTE_FULL = "recomputation not stated: full, as the program's models have it"
    SELECTIVE_CORE = "selective recomputation names no module: attention's core"
    ZERO_STAGE = "ZeRO stage not stated: 1 for Megatron, else 0, or 3 for FSDP"
    WHOLE_STAGES = "FSDP with pipelines: what is gathered stays so through the step, ZeRO stage 1"
    SEQUENCE_PARALLEL = "sequence parallelism not stated: on under tensor parallelism"
    PRECISION_16_BIT = "number format not stated: bf16"
    PRECISION_32_BIT = "number format not stated: fp32, Megatron-DeepSpeed's default"
    MICROSCALED = "block-scaled 8-bit numbers: priced as fp8"
    OPTIMIZER_ADAMW = "optimizer not stated: AdamW"
    STACK_UNKNOWN = "framework not known: the mean of all stacks"
    STACK_OF_SHARDING = "framework not stated: the one that shards states as the row says"
    PORTS_UNKNOWN = "how many ports nodes have is not stated: the mean of one and usual"
    ADAPTER_RANK = "adapters' rank not stated: as the program's recipes have it, 8, 16 or 64"
    UNTIED = "tied embeddings not stated: not tied"
    NORMS_FROM_ACTIVATION = "norms and biases: as usual for the activation function"
    EXTRA_PREDICTION_LAYER = "multi-token prediction: priced as blocks, without its own head"
    EXPERTS_BALANCED = "routing: as even as it can be"
    TIME_FROM_FLOP = "measured time worked out from TFLOP/s"
    ENDS_AS_STAGES = "virtual stages without a layer: the embedding is the first, the loss the last"
    FEWER_VIRTUAL_STAGES = "virtual stages without a layer: as many as have one"
    VIRTUAL_STAGES_MOST = (
        "virtual stages not stated: a layer each, as NeMo's recipes mostly have it"
    )
    NO_ACCUMULATION = "global batch not stated: one micro-batch on each rank"
    DATA_PARALLEL_ALONE = "degrees not stated: data parallelism alone, as the framework has it"
    BATCH_ROUNDED = "global batch rounded to whole micro-batches"


class SetAside(StrEnum):
    """Why a priced row is not compared in one respect."""

    NOT_MEASURED = "not measured"
    DISTRUSTED = "the row says that it is not to be trusted for this"
    TOKENS_UNKNOWN = "a rate in tokens, of sequences that differ in length"
    LAUNCH_BOUND = "tiny model of a test suite: its time is launching alone"
    OUTCOME_OTHER = "it failed for another or an unknown reason"


class Unpriced(Exception):  # noqa: N818 - an answer about a row, and no error of a program
    """A row has no price: the reason, and what in the row is to blame."""

    def __init__(self, reason: Unpriceable, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}")
