"""Job: what a measured run trained, with which software and in which number format."""

from __future__ import annotations

import re

from pydantic import JsonValue, ValidationError

from planner.schema.document import document_error
from planner.schema.job import (
    GLOBAL_BATCH_LIMIT,
    Job,
    Limits,
    Optimizer,
    Precision,
    Stack,
)
from planner.schema.measured_run import MeasuredRun
from planner.validation.adapters import adapters_of, frozen_bits
from planner.validation.program import Program
from planner.validation.reasons import Assumption, Unpriceable, Unpriced

# As rows and frameworks spell them; "mixed" and "true" say where copies in 32 bits are kept, and
# kinds of 8-bit formats and scales are told apart elsewhere.
_RAN = Limits(fits_probability=None)  # whether a run fitted is asked, not whether it was likely
_PRECISIONS = (
    (r"bf16|bfloat16", Precision.BF16),
    (r"fp16|float16|half|16|amp", Precision.FP16),
    (r"tf32|fp32|float32|32", Precision.FP32),
    (r"mxfp8|fp8|float8", Precision.FP8),
)
_WHOLE_BITS = 16
_PRECISION_WORDS = re.compile(
    r"[-_:+ ](mixed|true|amp|o[12]|hybrid|e4m3|e5m2|delayed|current|blockwise|tensorwise|rowwise"
    r"|subchannel|mx|cs|ds|sc)\b"
)
_OPTIMIZERS = (
    ("8bit", Optimizer.ADAM8BIT),
    ("adafactor", Optimizer.ADAFACTOR),
    ("adam", Optimizer.ADAMW),
    ("lamb", Optimizer.ADAMW),  # two moments as well
    ("lion", Optimizer.SGD),  # one moment as well
    ("muon", Optimizer.MUON),
    ("sgd", Optimizer.SGD),
)

_FIRST_QWEN = re.compile(r"qwen-\d")
_GENERATIONS = {"flash1": 1, "flash2": 2, "flash3": 3}
_NARROW_STATES = re.compile(r"pure[ _]bf16|\bbf16 (params|states)")
_KEEPS_COPIES = re.compile(r"deepspeed|zero|fsdp|distributed_optimizer")
_ADAPTED = frozenset({"lora", "qlora"})
# Fields of a job that a run's `job` does not have: columns say those of their name and these,
_SAID_BY = {"global_batch_size": "gbs", "sequence_length": "seq_len"}
# and these ask the planner.
_ASKED = frozenset({"calibration", "limits", "objective", "schema_version"})


def job_of(run: MeasuredRun, program: Program, stack: Stack) -> tuple[Job, tuple[Assumption, ...]]:
    """Return the job of `run` under `stack`, and what was assumed for it.

    Raises:
        Unpriced: if the batch, sequence, format or optimizer cannot be said, or `job` of the row
            has what no job can.
    """
    assumptions: list[Assumption] = []
    if run.seq_len is None:
        raise Unpriced(Unpriceable.SEQUENCE, "seq_len")
    if run.dispatcher == "allgather":
        assumptions.append(Assumption.DISPATCH_ALLGATHER)
    if run.attention_kernel == "cudnn":
        assumptions.append(Assumption.ATTENTION_CUDNN)
    loss = run.loss_kernel
    precision = _precision(run, program, assumptions)
    fused = _fused_attention(run, program, assumptions)
    job = Job(
        global_batch_size=_global_batch_size(run, assumptions),
        sequence_length=run.seq_len,
        precision=precision,
        optimizer=_optimizer(run, assumptions),
        stack=stack,
        limits=_RAN,
        fused_attention=fused,
        softmax=None if fused else program.softmax,
        fused_loss=_fused_loss(run, program) if loss is None else loss == "in_place",
        loss_chunk_count=_loss_chunk_count(run, program),
        fused_linear_loss=loss == "linear",
        shifted_logits=_shifted_logits(run, program),
        vocabulary_parallel_loss=_vocabulary_parallel_loss(run, program, stack),
        stage_buffers=program.stage_buffers,
        fused_elementwise=True if run.compile else program.fused_elementwise,
        fused_norms=None if run.norm_kernel is None else run.norm_kernel == "fused",
        regathered_rows=program.regathered_rows,
        flash_attention_generation=_flash_attention_generation(run, program),
        dropout=_dropout(run, program) if run.dropout is None else run.dropout,
        varied_lengths=_stated_or(run.varied_lengths, program.varied_lengths),
        gradients_in_16_bits=_gradients_in_16_bits(run, program, precision),
        row_scaled_fp8="rowwise" in (run.precision_raw or "").lower(),
        tensor_float_32=_tensor_float_32(run, program, precision),
        copies_in_8_bits=precision is Precision.FP8
        and _stated_or(run.copies_in_8_bits, program.copies_in_8_bits),
        gathered_in_8_bits=run.gathered_in_8_bits is True
        and precision is Precision.FP8
        and stack is Stack.TORCH,
        overlapped_gradients=_stated_first(run.gradient_overlap, program.overlapped_gradients),
        overlapped_tensor_parallel=_stated_first(
            run.tensor_parallel_overlap, program.overlapped_tensor_parallel
        ),
        copied_rows=_stated_first(run.copied_rows, program.copied_rows),
        summed_gradients=_summed_gradients(run, program),
        parameter_broadcasts=program.parameter_broadcasts,
        offloaded_gradients=True if run.offload_grads else None,
        paged_states="paged" in f"{run.optimizer or ''} {run.offload or ''}".lower(),
        steps_in_backward=run.steps_in_backward is True,
        foreach_optimizer=_foreach_optimizer(run, program, stack),
        overlapped_offload=program.overlapped_offload,
        ends_stay_gathered=_ends_stay_gathered(run, program),
        blocking_launches=run.blocking_launches is True,
        states_in_16_bits=_states_in_16_bits(run, program),
        adapters=adapters_of(run, program, stack, assumptions),
        cuda_graphs=not program.launches if run.cuda_graphs is None else run.cuda_graphs == "full",
        attention_graphs=run.cuda_graphs == "attention",
        fixed_expert_tokens=run.fixed_expert_tokens is True,
        deduplicated_dispatch=run.dispatcher == "flex",
        overlapped_experts=run.overlapped_experts is True,
    )
    return (job if run.job is None else _as_stated(job, run.job)), tuple(assumptions)


def _as_stated(job: Job, stated: dict[str, JsonValue]) -> Job:
    """Return the job with fields that a row states by their own names; of adapters some will do.

    Raises:
        Unpriced: if no job has such a field or value, or a column says it.
    """
    for name, value in stated.items():
        column = _SAID_BY.get(name, name)
        if column in MeasuredRun.model_fields:
            remedy = f"it is said by the column {column}"
            raise Unpriced(Unpriceable.FIELD, f"job.{name} {value}: {remedy}")
        if name in _ASKED:
            remedy = "it asks the planner, and says nothing of a run; leave it out"
            raise Unpriced(Unpriceable.FIELD, f"job.{name} {value}: {remedy}")
    read = job.model_dump()
    own, adapters = read["adapters"], stated.get("adapters")
    if isinstance(own, dict) and isinstance(adapters, dict):
        stated = {**stated, "adapters": {**own, **adapters}}
    try:
        return Job.model_validate({**read, **stated})
    except ValidationError as error:
        raise Unpriced(
            Unpriceable.FIELD, str(document_error(error, source="job", kind=Job))
        ) from None


def _vocabulary_parallel_loss(run: MeasuredRun, program: Program, stack: Stack) -> bool:
    """Return whether tensor-parallel ranks take the loss of their own part of the vocabulary.

    A program that is not known has to ask plain torch for it (`loss_parallel` of
    torch.distributed.tensor.parallel); Megatron's language models do it by themselves, and others
    gather logits for torch's.
    """
    if run.vocab_parallel_loss is not None:
        return run.vocab_parallel_loss
    if program.stack is None:
        return program.split_logits or stack is not Stack.TORCH
    return not program.whole_logits


def _global_batch_size(run: MeasuredRun, assumptions: list[Assumption]) -> int:
    """Return the sequences of a step; without accumulation where none is stated, nor a pipeline."""
    if run.gbs is not None:
        return run.gbs
    rounds = run.grad_accum
    if rounds is None and (run.pp or 1) == 1:
        assumptions.append(Assumption.NO_ACCUMULATION)
        rounds = 1
    ranks = 1 if run.num_gpus == 1 else run.dp
    if run.mbs is None or rounds is None or ranks is None:
        raise Unpriced(Unpriceable.BATCH, "gbs")
    batch = run.mbs * rounds * ranks
    if batch > GLOBAL_BATCH_LIMIT:
        raise Unpriced(Unpriceable.LIMITS, f"mbs x grad_accum x dp = {batch}")
    return batch


def _flash_attention_generation(run: MeasuredRun, program: Program) -> int | None:
    """Return the generation of flash attention, `None` where the stack's usual one is taken."""
    if run.attention_kernel is not None:
        return _GENERATIONS.get(run.attention_kernel)
    return program.flash_attention_generation


def _fused_attention(run: MeasuredRun, program: Program, assumptions: list[Assumption]) -> bool:
    """Return whether attention is fused, as it is unless the row says otherwise.

    A run whose recipe recomputes the attention core had a core to recompute: fused attention does
    so by itself.
    """
    if run.attention_kernel is not None:
        return run.attention_kernel != "unfused"
    if program.asks_for_fusion:
        assumptions.append(Assumption.ATTENTION_NOT_ASKED_FOR)
        return False
    if run.flash_attention is None and "attention core" in (run.recompute_detail or ""):
        assumptions.append(Assumption.ATTENTION_UNFUSED)
        return False
    if run.flash_attention is None and not program.fused_attention:
        assumptions.append(Assumption.ATTENTION_UNFUSED_BY_DEFAULT)
        return False
    return run.flash_attention is not False


def _fused_loss(run: MeasuredRun, program: Program) -> bool:
    """Return whether the loss works in place of the logits.

    One that works in chunks does so compiled, as it is with the model.
    """
    if program.loss_chunk_count > 1:
        return run.compile is not False
    since = program.compiled_loss_since
    if since is None or run.compile is not True:
        return program.fused_loss
    year = re.search(r"\b20\d\d\b", run.framework or "")
    return year is None or year[0] >= since


def _loss_chunk_count(run: MeasuredRun, program: Program) -> int:
    """Return in how many chunks of tokens the loss takes logits.

    Raises:
        Unpriced: if the row says that of a loss that takes none.
    """
    stated, kernel = run.loss_chunk_count, run.loss_kernel
    if stated is not None and stated > 1 and kernel in {"shifted", "linear"}:
        raise Unpriced(Unpriceable.FIELD, f"loss_chunk_count {stated} of a {kernel} loss")
    usual = program.loss_chunk_count if kernel is None else 1
    return usual if stated is None else stated


def _shifted_logits(run: MeasuredRun, program: Program) -> bool:
    """Return whether the loss reads a shifted copy of the logits in 32 bits.

    transformers' causal models do. Qwen's first generation comes with code of its own, which leaves
    them in 16 bits, unless the program works out accuracies and losses of its own on them.
    Source: Qwen/Qwen-7B `modeling_qwen.py` (`lm_logits`); ms-swift `trainers/mixin.py`.
    """
    if run.loss_kernel is not None:
        return run.loss_kernel == "shifted"
    if _fused_loss(run, program) or _loss_chunk_count(run, program) > 1:
        return False
    masked = (run.attention_kind or "").lower().endswith("bidirectional")
    narrow = _FIRST_QWEN.match((run.model or "").lower()) and not program.reads_logits
    return program.shifted_logits and not (masked or narrow)


def _gradients_in_16_bits(run: MeasuredRun, program: Program, precision: Precision) -> bool:
    """Return whether gradients are added and reduced in 16 bits.

    Megatron-LM has 32 bits for bf16 alone: fp16 gradients stay as they are unless an option asks.
    Source: `megatron/training/arguments.py` (`accumulate_allreduce_grads_in_fp32`).
    """
    if run.gradient_dtype is not None:
        return run.gradient_dtype != "fp32"
    of_megatron = program.stack is Stack.MEGATRON
    return program.narrow_gradients or (of_megatron and precision is Precision.FP16)


def _stated_or(stated: bool | None, usual: bool) -> bool:
    return usual if stated is None else stated


def _stated_first(stated: bool | None, usual: bool | None) -> bool | None:
    """Return what a row states, else its program's way; `None`: as the stack usually has it."""
    return usual if stated is None else stated


def _summed_gradients(run: MeasuredRun, program: Program) -> bool:
    """Return whether ranks under ZeRO-1 sum whole gradients in 32 bits."""
    if run.gradient_reduction is not None:
        return run.gradient_reduction == "all_reduce"
    return program.summed_gradients


def _states_in_16_bits(run: MeasuredRun, program: Program) -> bool:
    """Return whether the model was converted to 16 bits whole, with the optimizer's states.

    Lightning's "true" formats are that, torchtune's recipes, and models that are loaded in bf16 and
    trained as they are: by transformers' Trainer, whose autocast leaves 16-bit weights alone, from
    scripts that load them so, where neither DeepSpeed nor accelerate's FSDP keeps copies in 32.
    Source: Lightning `plugins/precision/half.py`; QwenLM/Qwen `finetune.py`; modelscope/ms-swift
    `llm/utils/argument.py` (`dtype`); axolotl `utils/models.py` (`torch_dtype`).
    LLaMA-Factory casts what it trains to 32 bits unless asked for `pure_bf16`
    (`model/adapter.py`), and transformers before 5 load in 32 bits unless told otherwise.
    PEFT gives adapters the type of the weights that they are beside, but for quantised ones: these
    adapters stay in torch's 32 bits (`tuners/lora/layer.py`, `update_layer`).
    """
    if run.master_weights is not None:
        return not run.master_weights
    framework = (run.framework or "").lower()
    stated = f"{run.optimizer} {run.precision_raw}".lower()
    if "-true" in stated or _NARROW_STATES.search(stated):
        return True
    if program.narrow_states:
        return run.precision in {None, "bf16"} or run.task == "qlora"
    if program.configured and frozen_bits(run) < _WHOLE_BITS:
        return False
    if program.narrow_adapters and run.task in _ADAPTED:
        return "deepspeed" not in (run.sharding or "").lower()
    copies = _KEEPS_COPIES.search(framework if run.sharding is None else run.sharding.lower())
    return copies is None and program.loads_in_16_bits


def _foreach_optimizer(run: MeasuredRun, program: Program, stack: Stack) -> bool:
    """Return whether AdamW of torch updates all parameters at once, as by default since torch 2.

    Trainers' programs have it since they exist; transformers before 4.30 had an AdamW of its own.
    Source: transformers `training_args.py` (`optim`); torch `optim/adamw.py`.
    """
    plain = re.fullmatch(r"adamw?(_torch)?", (run.optimizer or "adamw").lower()) is not None
    return program.foreach_optimizer and plain and stack is Stack.TORCH


def _ends_stay_gathered(run: MeasuredRun, program: Program) -> bool:
    """Return whether embedding and head belong to FSDP's root, which nothing shards again.

    Programs that wrap each block have them there.
    Source: torch `distributed/fsdp/_runtime_utils.py` (`_should_free_in_backward`, `_post_forward`:
    the root keeps what it has gathered after forward).
    """
    shards = "fsdp" in f"{run.sharding} {run.framework}".lower()
    return shards and not program.own_end_groups


def _dropout(run: MeasuredRun, program: Program) -> bool:
    """Return whether dropout is on: in GPT-2's and BERT's line it is 0.1 by default.

    Megatron's arguments have 0.1 for all models; recipes of Llama's line turn it off, as MPT's do.
    Source: `megatron/training/arguments.py`; transformers `BertConfig`, `GPT2Config`; Devlin et al.
    2019, arXiv:1810.04805, appendix A.2.
    """
    masked = (run.attention_kind or "").lower().endswith("bidirectional")
    return (program.drops_out or masked) and run.activation in {"gelu", "gelu_new", "relu"}


def _precision(run: MeasuredRun, program: Program, assumptions: list[Assumption]) -> Precision:
    if run.precision is None and program.single_precision:
        assumptions.append(Assumption.PRECISION_32_BIT)
        return Precision.FP32
    if run.precision is None:
        assumptions.append(Assumption.PRECISION_16_BIT)
        return Precision.BF16
    name = run.precision.lower()
    plain = _PRECISION_WORDS.sub("", name)
    for spelling, precision in _PRECISIONS:
        if re.fullmatch(spelling, plain):
            if "mx" in name:
                assumptions.append(Assumption.MICROSCALED)
            return precision
    if frozen_bits(run) < _WHOLE_BITS:  # how weights are stored, not what is computed in
        return Precision.BF16
    raise Unpriced(Unpriceable.PRECISION, run.precision)


def _tensor_float_32(run: MeasuredRun, program: Program, precision: Precision) -> bool:
    """Return whether products of fp32 are in TF32: as the row says, or as the program's containers.

    torch since 1.12 does so only where it is asked to, as NVIDIA's containers ask by
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, in which Megatron-LM and Megatron-DeepSpeed are told to run.
    """
    if precision is not Precision.FP32:
        return False
    return "tf32" in (run.precision or "").lower() or program.tensor_float_32


def _optimizer(run: MeasuredRun, assumptions: list[Assumption]) -> Optimizer:
    if run.optimizer is None:
        assumptions.append(Assumption.OPTIMIZER_ADAMW)
        return Optimizer.ADAMW
    for word, optimizer in _OPTIMIZERS:
        if word in run.optimizer.lower():
            return optimizer
    raise Unpriced(Unpriceable.OPTIMIZER, run.optimizer)
