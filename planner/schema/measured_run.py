"""Measured run: one published or reported training run, one JSON object a line.

All keys may be missing or null, which means "not stated": what a use of the row needs is decided by
that use. Keys that stand here are checked, and what is wrong with one is said in `unreadable`, so
that a single row does not keep a whole file from being read; others are passed over and named in
`unread`, because whoever reports runs may record more than we read (columns of checks).

Units stand in the names as the format has them: `*_s` seconds, `*_gib` GiB, `*_gb` as printed.
`dp` excludes `cp`: dp x tp x pp x cp = num_gpus.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationError,
)

from planner.schema.document import Count, Degree, PositiveCount, document_error
from planner.schema.job import AdapterTargets, Stack
from planner.schema.plan import Plan

Positive = Annotated[float, Field(gt=0, le=1e15)]
Text = Annotated[str, Field(max_length=20_000)]
Named = Annotated[str, Field(min_length=1, max_length=500)]
MemoryClass = Literal["torch_allocated", "torch_reserved", "torch_active", "device_used", "unknown"]


def _none_for_zero(value: object) -> object:
    """Return `None` for 0, which tables print where there is nothing of a kind."""
    return None if value == 0 and not isinstance(value, bool) else value


def _in_small_letters(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


AnyCount = Annotated[PositiveCount | None, BeforeValidator(_none_for_zero)]
AnyMeasure = Annotated[Positive | None, BeforeValidator(_none_for_zero)]
AnyDegree = Annotated[Degree | None, BeforeValidator(_none_for_zero)]
_small = BeforeValidator(_in_small_letters)
_NOTHING: tuple[object, ...] = (None, "", [], {})


class _Columns(BaseModel):
    """Some keys of a row."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=()
    )


class RunIdentity(_Columns):
    """Which run it is, where it stands, and what it may be used for.

    `ready_*` false says that whoever made the row does not trust it for that use; `unreadable` what
    its reader could not make out. `plan` is the plan that the run followed: it says the model, the
    machine, the job and the layout, and the columns of these are then passed over. `flags` are
    words about the row, as whoever made it has them.
    """

    id: Named | None = None
    family: Named | None = None
    source: Text | None = None
    tier: Text | None = None
    rank_group: Text | None = None
    ready_time: bool | None = None
    ready_memory: bool | None = None
    ready_fit: bool | None = None
    notes: Text | None = None
    flags: Annotated[tuple[Text, ...], Field(max_length=1000)] | None = None
    unreadable: Text | None = None
    plan: Plan | None = None


class ModelColumns(_Columns):
    """The model by name and by shape; `moe_ffn` is of one routed expert."""

    model: Named | None = None
    task: Annotated[Literal["pretrain", "full_finetune", "lora", "qlora"] | None, _small] = None
    arch_note: Text | None = None
    layers: Annotated[int, Field(ge=1, le=4096)] | None = None
    hidden_size: PositiveCount | None = None
    ffn_size: PositiveCount | None = None
    heads: PositiveCount | None = None
    kv_heads: AnyCount = None
    head_dim: AnyCount = None
    vocab: PositiveCount | None = None
    tied_embeddings: bool | None = None
    activation: Text | None = None
    attention_kind: Text | None = None
    position: Text | None = None
    moe_experts: AnyCount = None
    moe_top_k: AnyCount = None
    moe_ffn: AnyCount = None
    moe_shared_ffn: Count | None = None
    moe_dense_layers: Annotated[int, Field(ge=0, le=4096)] | None = None
    mtp_layers: Annotated[int, Field(ge=0, le=64)] | None = None


class MachineColumns(_Columns):
    """What the run ran on and with."""

    gpu: Named | None = None
    gpu_raw: Text | None = None
    gpu_mem_gb: AnyMeasure = None
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    num_gpus: Degree | None = None
    interconnect: Text | None = None
    framework: Text | None = None
    stack: Annotated[Stack | None, _small] = None
    precision: Text | None = None
    precision_raw: Text | None = None
    seq_len: Annotated[PositiveCount, Field(le=2**24)] | None = None


class LayoutColumns(_Columns):
    """How the run was split, and its batch: `mbs` per data-parallel rank, `gbs` per step."""

    dp: Degree | None = None
    tp: Degree | None = None
    pp: Degree | None = None
    vpp: AnyDegree = None
    cp: AnyDegree = None
    ep: AnyDegree = None
    etp: AnyDegree = None
    sequence_parallel: bool | None = None
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = None
    sharding: Text | None = None
    shard_group_size: AnyDegree = None
    pp_schedule: Text | None = None
    mbs: PositiveCount | None = None
    gbs: Annotated[PositiveCount, Field(le=2**24)] | None = None
    grad_accum: AnyCount = None


class MemoryKnobColumns(_Columns):
    """What was recomputed, offloaded, fused.

    `recompute_block_ratio`: the share of blocks that run again, each whole (`selective`).
    """

    optimizer: Text | None = None
    recompute: Annotated[Literal["none", "selective", "full", "partial"] | None, _small] = None
    recompute_detail: Text | None = None
    recompute_block_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    offload: Text | None = None
    offload_params: bool | None = None
    offload_grads: bool | None = None
    offload_optimizer: bool | None = None
    offload_activations: bool | None = None
    compile: bool | None = None
    flash_attention: bool | None = None


class ProgramColumns(_Columns):
    """Variables of the program: what they are left out, its name says by its defaults.

    `loss_kernel`: `plain` (log-softmax of a copy in 32 bits), `shifted` (with a shifted copy of
    that, as transformers had it), `in_place` of the logits, or `linear` (with the head's product,
    so that logits are never whole); `loss_chunk_count`: in how many chunks of tokens.
    `vocab_parallel_loss` false: tensor-parallel ranks hold whole logits. `master_weights` false:
    all states are in 16 bits. `gradient_overlap`: gradients that are reduced once a step are so
    under backward; `gradient_reduction`: what ZeRO-1 reduces them by. `tensor_parallel_overlap`:
    collectives of tensor parallelism run beside products; `copied_rows`: sequence parallelism
    copies what it gathers and scatters. `copies_in_8_bits`: weights are held in 16 bits beside
    copies in 8, as in Megatron-LM without `--fp8-param-gather`; `gathered_in_8_bits`: fully_shard
    gathers them in 8, as torchao has it where it is asked to. `varied_lengths`: sequences
    differ in length, up to `seq_len`. `masked_rows`: the head of a masked model reads the rows of
    masked tokens alone. `steps_in_backward`: each parameter is updated as soon as its gradient is
    there. `blocking_launches`: the host waits for each kernel. `configuration`: the path of the
    file that configured the program, in its repository; without it, `source` is read for one.
    `job`: fields of a job that no column says, by their own names.
    """

    configuration: Text | None = None
    norm_kernel: Annotated[Literal["fused", "unfused"] | None, _small] = None
    loss_kernel: Annotated[Literal["plain", "shifted", "in_place", "linear"] | None, _small] = None
    loss_chunk_count: PositiveCount | None = None
    vocab_parallel_loss: bool | None = None
    attention_kernel: Annotated[
        Literal["unfused", "flash1", "flash2", "flash3", "cudnn"] | None, _small
    ] = None
    cuda_graphs: Annotated[Literal["none", "attention", "full"] | None, _small] = None
    master_weights: bool | None = None
    gradient_dtype: Annotated[Literal["fp32", "bf16", "fp16"] | None, _small] = None
    gradient_overlap: bool | None = None
    tensor_parallel_overlap: bool | None = None
    copied_rows: bool | None = None
    copies_in_8_bits: bool | None = None
    gathered_in_8_bits: bool | None = None
    gradient_reduction: Annotated[Literal["reduce_scatter", "all_reduce"] | None, _small] = None
    dropout: bool | None = None
    varied_lengths: bool | None = None
    masked_rows: bool | None = None
    steps_in_backward: bool | None = None
    blocking_launches: bool | None = None
    job: Annotated[dict[Named, JsonValue], Field(max_length=100)] | None = None


class ExpertColumns(_Columns):
    """How tokens reach experts.

    `fixed_expert_tokens`: each takes as many, and the rest is dropped or padded;
    `overlapped_experts`: exchanges run beside the compute of another micro-batch.
    """

    dispatcher: Annotated[Literal["alltoall", "allgather", "flex"] | None, _small] = None
    fixed_expert_tokens: bool | None = None
    overlapped_experts: bool | None = None


class AdapterColumns(_Columns):
    """What is trained in place of the model; `adapted_ends`: embedding and head as well."""

    adapter_rank: Annotated[PositiveCount, Field(le=65_536)] | None = None
    adapter_targets: Annotated[AdapterTargets | None, _small] = None
    adapter_dropout: bool | None = None
    adapted_ends: bool | None = None


class MeasuredColumns(_Columns):
    """What was measured. TFLOP/s count model FLOPs, or `hardware` with recomputed ones.

    They count attention `whole`, or what its mask leaves of it (`causal`). `steps_s` are the steps
    that `step_time_s` is the median of, in their order.
    """

    outcome: Annotated[Literal["ok", "oom", "failed"] | None, _small] = None
    step_time_s: AnyMeasure = None
    steps_s: Annotated[tuple[Positive, ...], Field(max_length=100_000)] = ()
    tokens_per_s_per_gpu: AnyMeasure = None
    samples_per_s: AnyMeasure = None
    tflops_per_gpu: AnyMeasure = None
    tflops_counts: Annotated[Literal["model", "hardware", "unknown"] | None, _small] = None
    tflops_attention: Annotated[Literal["whole", "causal"] | None, _small] = None
    peak_mem_gib: AnyMeasure = None
    mem_class: Annotated[MemoryClass | None, _small] = None
    mem_scope: Text | None = None


class DerivedColumns(_Columns):
    """What was computed from the others, never taken from a source."""

    calc_tokens_per_s_per_gpu: AnyMeasure = None
    calc_step_time_s: AnyMeasure = None


class MeasuredRun(
    RunIdentity,
    ModelColumns,
    MachineColumns,
    LayoutColumns,
    MemoryKnobColumns,
    ProgramColumns,
    ExpertColumns,
    AdapterColumns,
    MeasuredColumns,
    DerivedColumns,
):
    """One row: nothing is required, and what a use needs it asks for by name."""

    _unread: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def from_fields(cls, fields: dict[str, Any], *, source: str) -> Self:
        """Return the run with `fields`, less those that are not as they must be.

        Of these `unreadable` names the first, its value and the remedy; `source` is the line that
        they came from.
        """
        try:
            run = cls.model_validate(fields)
        except ValidationError as error:
            bad = {str(item["loc"][0]) for item in error.errors(include_url=False)}
            kept = {name: value for name, value in fields.items() if name not in bad}
            said = str(document_error(error, source=source))
            run = cls.model_validate({**kept, "unreadable": said})
        known = cls.model_fields
        run._unread = tuple(  # noqa: SLF001  (a class method's own)
            name for name, value in fields.items() if name not in known and value not in _NOTHING
        )
        return run

    @property
    def unread(self) -> tuple[str, ...]:
        """Return the keys with a value that the format does not have."""
        return self._unread

    @property
    def family_name(self) -> str:
        """Return the family, or what stands for it where none is stated."""
        return self.family or "unnamed"
