"""Job: what a measured run trained, with which software and in which number format."""

from __future__ import annotations

import re

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
from planner.validation.reasons import Assumption, Unpriceable, Unpriced

# First match decides: Megatron-DeepSpeed shards states as DeepSpeed does, as do InternEvo,
# Colossal-AI and BMTrain (16-bit parameters, fp32 masters in the optimizer) and GPT-NeoX, which
# runs on it; NVIDIA's containers of MLPerf hold NeMo.
_STACKS = (
    ("deepspeed", Stack.DEEPSPEED),
    ("neox", Stack.DEEPSPEED),
    ("megatron", Stack.MEGATRON),
    ("nemo", Stack.MEGATRON),
    ("mcore", Stack.MEGATRON),
    ("primus", Stack.MEGATRON),
    ("nvidia", Stack.MEGATRON),
    ("torch", Stack.TORCH),
    ("composer", Stack.TORCH),
    ("fsdp", Stack.TORCH),
    ("nanotron", Stack.TORCH),
    ("internevo", Stack.DEEPSPEED),
    ("colossal", Stack.DEEPSPEED),
    ("bmtrain", Stack.DEEPSPEED),
    ("trainer", Stack.TORCH),
    ("accelerate", Stack.TORCH),
    ("litgpt", Stack.TORCH),
    ("lit-gpt", Stack.TORCH),
    ("lightning", Stack.TORCH),
    ("meshwright", Stack.TORCH),
)
# Where no name decides, how states are sharded does.
_STACKS_OF_SHARDING = (
    ("deepspeed", Stack.DEEPSPEED),
    ("fsdp", Stack.TORCH),
    ("distributed_optimizer", Stack.MEGATRON),
    ("zero", Stack.DEEPSPEED),
)
# They run transformers' Trainer, which runs DeepSpeed where it is configured.
_TRAINERS = re.compile(r"transformers|trainer|swift|axolotl|factory|unsloth|\btrl\b|\bpeft\b")
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

# Options of Megatron-Core as rows state them; `transformer_engine` captures parts of a layer alone,
# and routing by itself is a small one.
_WHOLE_GRAPHS = re.compile(
    r"\b(cuda_graph_impl=(full_iteration|local)|(MCORE|LAYER)_CUDA_GRAPH=(1|True))\b"
)
# As submissions to MLPerf that run NVIDIA's implementation on NeMo name their configurations, and
# its options, which AMD's submissions on Megatron and Transformer Engine set as well.
_NEMO_CONFIGURATION = re.compile(r"\bconfig_[\w-]*tp\d+pp\d+")
_NEMO_OPTIONS = re.compile(r"\b(FP8_ACTIVATION|TP_COMM_OVERLAP|MC_TP_OVERLAP_AG)=")
_IN_PLACE_LOSS = re.compile(r"foundry|composer|torchtune|lit-?gpt")
_BLOCKING = re.compile(r"\bCUDA_LAUNCH_BLOCKING=1\b(?P<nodes> on multi-node runs)?")
_ATTENTION_GRAPHS = re.compile(r"\bcuda_graph_scope=\[[^\]]*'attn'[^\]]*'moe_router'")
_FIXED_EXPERT_TOKENS = re.compile(
    r"\bvariant tokendrop\b|\bmoe_pad_expert_input_to_capacity=True\b"
)
# As torchtune, LOMO and LLaMA-Factory's BAdam and GaLore name it
_STEPS_IN_BACKWARD = re.compile(
    r"optimizer_in_bwd|fuse_optimizer_in_backward|\bada?lomo\b|layerwise"
)
_NARROW_STATES = re.compile(r"pure[ _]bf16|\bbf16 (params|states)")
_LOADS_IN_16_BITS = re.compile(r"(?<!megatron-)swift|axolotl")
_SINCE_TORCH_2 = re.compile(r"(?<!megatron-)swift|axolotl|factory|\btrl\b")
_KEEPS_COPIES = re.compile(r"deepspeed|zero|fsdp|distributed_optimizer")
_ADAPTED = frozenset({"lora", "qlora"})
_OVERLAPPED_EXPERTS = re.compile(r"\bmoe_a2a_overlap=True\b")


def job_of(run: MeasuredRun) -> tuple[Job, tuple[Assumption, ...]]:
    """Return the job of `run`, and what was assumed for it.

    Raises:
        Unpriced: if the batch, sequence, format or optimizer cannot be said.
    """
    assumptions: list[Assumption] = []
    if run.seq_len is None:
        raise Unpriced(Unpriceable.SEQUENCE, "seq_len")
    stack = _stack(run, assumptions)
    job = Job(
        global_batch_size=_global_batch_size(run, assumptions),
        sequence_length=run.seq_len,
        precision=_precision(run, assumptions),
        optimizer=_optimizer(run, assumptions),
        stack=stack,
        limits=_RAN,
        fused_attention=_fused_attention(run, assumptions),
        fused_loss=_fused_loss(run),
        fused_elementwise=_fused_elementwise(run),
        regathered_rows=_is_nanotron(run),
        first_flash_attention=_first_flash_attention(run),
        dropout=_dropout(run),
        gradients_in_16_bits=_gradients_in_16_bits(run),
        row_scaled_fp8="rowwise" in (run.precision_raw or "").lower(),
        overlapped_gradients=_overlapped_gradients(run),
        parameter_broadcasts=_is_internevo(run),
        offloaded_gradients=True if run.offload_grads else None,
        paged_states="paged" in f"{run.optimizer or ''} {run.offload or ''}".lower(),
        steps_in_backward=_STEPS_IN_BACKWARD.search(_words(run)) is not None,
        foreach_optimizer=_foreach_optimizer(run, stack),
        overlapped_offload=True if "torchtune" in (run.framework or "").lower() else None,
        ends_stay_gathered=_ends_stay_gathered(run),
        blocking_launches=_blocking_launches(run),
        states_in_16_bits=_states_in_16_bits(run),
        adapters=adapters_of(run, stack, assumptions),
        cuda_graphs=_WHOLE_GRAPHS.search(run.notes or "") is not None,
        attention_graphs=_ATTENTION_GRAPHS.search(run.notes or "") is not None,
        fixed_expert_tokens=_FIXED_EXPERT_TOKENS.search(run.notes or "") is not None,
        overlapped_experts=_OVERLAPPED_EXPERTS.search(run.notes or "") is not None,
    )
    return job, tuple(assumptions)


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


def _stack(run: MeasuredRun, assumptions: list[Assumption]) -> Stack:
    framework = (run.framework or "").lower()
    if _TRAINERS.search(framework):
        configured = framework if run.sharding is None else run.sharding.lower()
        return Stack.DEEPSPEED if "deepspeed" in configured else Stack.TORCH
    if _NEMO_CONFIGURATION.search(run.source or "") or _NEMO_OPTIONS.search(run.notes or ""):
        return Stack.MEGATRON
    for word, stack in _STACKS:
        if word in framework:
            return stack
    for word, stack in _STACKS_OF_SHARDING:
        if word in (run.sharding or "").lower():
            assumptions.append(Assumption.STACK_OF_SHARDING)
            return stack
    assumptions.append(Assumption.STACK_TORCH)
    return Stack.TORCH


def _fuses_on_request(run: MeasuredRun) -> bool:
    return _is_megatron_deepspeed(run) or "neox" in (run.framework or "").lower()


def _is_megatron_deepspeed(run: MeasuredRun) -> bool:
    return "megatron-deepspeed" in (run.framework or "").lower()


def _fused_elementwise(run: MeasuredRun) -> bool:
    """Return whether norms and rotary are single kernels: compiled, or nanotron's own.

    Source: nanotron `nn/layer_norm.py` (TritonRMSNorm) and `models/llama.py` (flash-attention's
    rotary).
    """
    return run.compile is True or _is_nanotron(run)


def _is_nanotron(run: MeasuredRun) -> bool:
    """Return whether nanotron ran, which gathers rows anew in backward unless told otherwise.

    Source: nanotron `config/parallelism_config.py` (`tp_recompute_allgather`).
    """
    return "nanotron" in (run.framework or "").lower()


def _first_flash_attention(run: MeasuredRun) -> bool:
    """Return whether flash attention is of the first generation.

    llm-foundry's published benchmarks are of early 2023 on torch 1.13, before the second.
    Source: `scripts/train/benchmarking/README.md`, which is to be updated with torch 2.0.
    """
    return "foundry" in (run.framework or "").lower()


def _fused_attention(run: MeasuredRun, assumptions: list[Assumption]) -> bool:
    """Return whether attention is fused, as it is unless the row says otherwise.

    A run whose recipe recomputes the attention core had a core to recompute: fused attention does
    so by itself. Megatron-DeepSpeed and GPT-NeoX fuse where an option asks for it.
    """
    if run.flash_attention is None and "attention core" in (run.recompute_detail or ""):
        assumptions.append(Assumption.ATTENTION_UNFUSED)
        return False
    if run.flash_attention is None and _fuses_on_request(run):
        assumptions.append(Assumption.ATTENTION_UNFUSED_BY_DEFAULT)
        return False
    return run.flash_attention is not False


def _fused_loss(run: MeasuredRun) -> bool:
    """Return whether the loss works in place of the logits, or on a part of them at a time.

    llm-foundry's MPT takes flash-attention's fused cross entropy unless told otherwise, and
    torchtitan compiles the loss with the model since 2025. torchtune and litgpt cut it in chunks.
    Source: `llmfoundry/models/mpt/modeling_mpt.py` (`loss_fn`); `torchtitan/components/loss.py`;
    `torchtune/modules/loss/ce_chunked_output_loss.py`; litgpt `utils.py` (`chunked_cross_entropy`).
    """
    framework = (run.framework or "").lower()
    if _IN_PLACE_LOSS.search(framework):
        return True
    return "torchtitan" in framework and run.compile is True and "2024" not in framework


def _gradients_in_16_bits(run: MeasuredRun) -> bool:
    """Return whether gradients are accumulated in 16 bits, as NeMo's performance recipes have it.

    Source: Megatron-Bridge `scripts/performance/configs` and NeMo `llm/recipes`
    (`grad_reduce_in_fp32 = False`); Megatron-LM's own default is 32 bits.
    """
    framework = (run.framework or "").lower()
    if _NEMO_CONFIGURATION.search(run.source or ""):
        return True
    return any(name in framework for name in ("nemo", "megatron-bridge", "megatron bridge"))


def _states_in_16_bits(run: MeasuredRun) -> bool:
    """Return whether the model was converted to 16 bits whole, with the optimizer's states.

    Lightning's "true" formats are that, torchtune's recipes, and models that are loaded in bf16 and
    trained as they are: by transformers' Trainer, whose autocast leaves 16-bit weights alone, from
    scripts that load them so, where neither DeepSpeed nor accelerate's FSDP keeps copies in 32.
    Source: torchtune `recipes/configs` (`dtype: bf16`); Lightning `plugins/precision/half.py`;
    QwenLM/Qwen `finetune.py`; modelscope/ms-swift `llm/utils/argument.py` (`dtype`); axolotl
    `utils/models.py` (`torch_dtype`); AnswerDotAI/fsdp_qlora `train.py` (`--precision bf16`).
    LLaMA-Factory casts what it trains to 32 bits unless asked for `pure_bf16`
    (`model/adapter.py`), and transformers before 5 load in 32 bits unless told otherwise.
    """
    framework, stated = (
        (run.framework or "").lower(),
        f"{run.optimizer} {run.precision_raw}".lower(),
    )
    if "-true" in stated or _NARROW_STATES.search(stated):
        return True
    if "torchtune" in framework:
        return run.precision in {None, "bf16"} or run.task == "qlora"
    if "fsdp_qlora" in framework:
        return True
    if "peft" in framework and run.task in _ADAPTED:
        return "deepspeed" not in (run.sharding or "").lower()
    copies = _KEEPS_COPIES.search(framework if run.sharding is None else run.sharding.lower())
    return copies is None and _LOADS_IN_16_BITS.search(framework) is not None


def _foreach_optimizer(run: MeasuredRun, stack: Stack) -> bool:
    """Return whether AdamW of torch updates all parameters at once, as by default since torch 2.

    Trainers' programs have it since they exist; transformers before 4.30 had an AdamW of its own.
    Source: transformers `training_args.py` (`optim`); torch `optim/adamw.py`.
    """
    trains = _SINCE_TORCH_2.search((run.framework or "").lower()) is not None
    plain = re.fullmatch(r"adamw?(_torch)?", (run.optimizer or "adamw").lower()) is not None
    return trains and plain and stack is Stack.TORCH


def _ends_stay_gathered(run: MeasuredRun) -> bool:
    """Return whether embedding and head belong to FSDP's root, which nothing shards again.

    Programs that wrap each block have them there; torchtitan's and torchtune's ends are groups of
    their own.
    Source: torch `distributed/fsdp/_runtime_utils.py` (`_should_free_in_backward`, `_post_forward`:
    the root keeps what it has gathered after forward); torchtitan `parallelize.py`; torchtune
    `training/_distributed.py` (`custom_sharded_layers`).
    """
    own_groups = ("torchtitan", "torchao", "torchtune", "meshwright")
    framework = (run.framework or "").lower()
    return "fsdp" in f"{run.sharding} {framework}".lower() and not any(
        name in framework for name in own_groups
    )


def _words(run: MeasuredRun) -> str:
    return f"{run.optimizer or ''}; {run.recompute_detail or ''}; {run.notes or ''}".lower()


def _overlapped_gradients(run: MeasuredRun) -> bool | None:
    """Return whether gradients are reduced under backward; `None`: as the stack does by default.

    Source: InternEvo `configs/7B_sft.py` (`overlap_sync_grad`; `overlap_sync_param` is off).
    """
    return True if _is_internevo(run) else None


def _is_internevo(run: MeasuredRun) -> bool:
    """Return whether InternEvo ran, where ranks broadcast their parameters in turn.

    Source: InternEvo `solver/optimizer/hybrid_zero_optim.py` (`broadcast_params`).
    """
    return "internevo" in (run.framework or "").lower()


def _blocking_launches(run: MeasuredRun) -> bool:
    """Return whether the host waited for each kernel, as the row says of runs of its kind."""
    said = _BLOCKING.search(f"{run.interconnect or ''}; {run.notes or ''}")
    if said is None or said["nodes"] is None:
        return said is not None
    return (run.num_gpus or 0) > (run.gpus_per_node or 8)


def _dropout(run: MeasuredRun) -> bool:
    """Return whether dropout is on: in GPT-2's and BERT's line it is 0.1 by default.

    Megatron's arguments have 0.1 for all models; recipes of Llama's line turn it off, as MPT's do.
    Source: `megatron/training/arguments.py`; transformers `BertConfig`, `GPT2Config`.
    """
    framework = (run.framework or "").lower()
    names = ("megatron-lm", "megatron-deepspeed", "transformers", "deepspeed")
    return run.activation in {"gelu", "gelu_new", "relu"} and any(
        name in framework for name in names
    )


def _precision(run: MeasuredRun, assumptions: list[Assumption]) -> Precision:
    if run.precision is None and _is_megatron_deepspeed(run):
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


def _optimizer(run: MeasuredRun, assumptions: list[Assumption]) -> Optimizer:
    if run.optimizer is None:
        assumptions.append(Assumption.OPTIMIZER_ADAMW)
        return Optimizer.ADAMW
    for word, optimizer in _OPTIMIZERS:
        if word in run.optimizer.lower():
            return optimizer
    raise Unpriced(Unpriceable.OPTIMIZER, run.optimizer)
