"""Program: what trained a measured run, and what follows from it where the row does not say.

A row may state a program's variables itself: kernels, the format of gradients, whether there are
master weights. What it leaves open follows from the program that it names, by that program's code;
where it names none that is known here, nothing does, and its stack may be any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from planner.schema.job import AdapterTargets, Softmax, Stack, Unpacking
from planner.schema.measured_run import MeasuredRun
from planner.schema.model import Activation
from planner.validation.reasons import Assumption


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRecipe:
    """What a program's recipes adapt where nothing else is said."""

    rank: int
    targets: AdapterTargets = AdapterTargets.ALL
    unpacking: Unpacking = Unpacking.KERNEL
    whole_scales: bool = True
    dropout: bool = False


# Scripts drop 5 or 10 % of what adapters read, and have a rank of their own, as Qwen's and QLoRA's
# have 64; PEFT's is 8. NeMo's recipes adapt attention with a rank of 16, as MLPerf's benchmark has.
# Source: PEFT `tuners/lora/config.py`; QwenLM/Qwen `finetune.py`; Dettmers et al. 2023,
# arXiv:2305.14314, appendix B; mlcommons/training `llama2_70b_lora`.
_OF_SCRIPTS = AdapterRecipe(rank=64, dropout=True)
OF_MEGATRON = AdapterRecipe(rank=16, targets=AdapterTargets.ATTENTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program, found by words of its name. What is `None` is as its stack usually has it.

    `configured` programs run under DeepSpeed where that is configured. `asks_for_fusion`: its fused
    attention is a choice of its own, which flash attention in a row does not say.
    `own_end_groups`: FSDP shards embedding and head as groups of their own, and not with its root.
    `whole_logits`: every tensor-parallel rank gathers them for its loss, `split_logits`: none does,
    whatever its stack.
    `shards_alone`: it splits no layer. `interleaves`: its recipes of dense models do, as far as
    layers go. `checkpoints`: its models run every block again unless told otherwise.
    `varied_lengths`: it pads a batch to the longest of its sequences. `narrow_adapters`: they have
    the 16 bits of their base. `causal_flop`: its TFLOP/s count what the mask leaves of attention.
    `reads_all_rows`: heads of masked models do. `activation`: how its GELU is made. `adapters`:
    what its recipes adapt.
    """

    words: re.Pattern[str]
    stack: Stack | None
    configured: bool = False
    fused_attention: bool = True
    asks_for_fusion: bool = False
    softmax: Softmax | None = None
    fused_elementwise: bool | None = None
    flash_attention_generation: int | None = None
    fused_loss: bool = False
    loss_chunk_count: int = 1
    compiled_loss_since: str | None = None
    narrow_gradients: bool = False
    narrow_states: bool = False
    copies_in_8_bits: bool = False
    overlapped_gradients: bool | None = None
    overlapped_tensor_parallel: bool | None = None
    copied_rows: bool | None = None
    whole_logits: bool = False
    split_logits: bool = False
    parameter_broadcasts: bool = False
    regathered_rows: bool = False
    shifted_logits: bool = False
    reads_logits: bool = False
    loads_in_16_bits: bool = False
    foreach_optimizer: bool = False
    overlapped_offload: bool | None = None
    own_end_groups: bool = False
    drops_out: bool = False
    single_precision: bool = False
    tensor_float_32: bool = False
    launches: bool = True
    stage_buffers: bool | None = None
    shards_alone: bool = False
    interleaves: bool = False
    checkpoints: bool = False
    summed_gradients: bool = False
    varied_lengths: bool = False
    narrow_adapters: bool = False
    causal_flop: bool = False
    reads_all_rows: bool = False
    activation: Activation = Activation.KERNEL
    adapters: AdapterRecipe = _OF_SCRIPTS


def _named(words: str, stack: Stack | None, /, **facts: object) -> Program:
    return Program(words=re.compile(words), stack=stack, **facts)  # type: ignore[arg-type]


def _trainer(words: str, /, **facts: object) -> Program:
    """Return a program of transformers' Trainer, unless Megatron is what runs.

    Whatever shards them, layers of transformers' models are torch's own, each step a kernel.
    Source: transformers `models/llama/modeling_llama.py` (`LlamaRMSNorm`, `apply_rotary_pos_emb`).
    """
    usual = {"configured": True, "shifted_logits": True, "shards_alone": True}
    usual |= {"fused_elementwise": False, "reads_all_rows": True}
    return _named(rf"^(?!.*megatron).*({words})", Stack.TORCH, **{**usual, **facts})


def _nvidia_bert(words: str, /, **facts: object) -> Program:
    """Return a program of NVIDIA's BERT on apex."""
    usual = {"narrow_gradients": True, "overlapped_gradients": False, "shards_alone": True}
    return _named(words, Stack.TORCH, **{**usual, **facts})


# The first whose words stand in the framework's name is it.
_PROGRAMS = (
    # Fuses attention where an option asks for it, and trains in fp32 where none says otherwise.
    _named(
        "megatron-deepspeed",
        Stack.DEEPSPEED,
        fused_attention=False,
        drops_out=True,
        single_precision=True,
        tensor_float_32=True,
    ),
    _named("neox", Stack.DEEPSPEED, fused_attention=False),
    # torchtune `recipes/configs` (`dtype: bf16`), `modules/loss/ce_chunked_output_loss.py`,
    # `training/_activation_offloading.py` (streams), `training/_distributed.py`
    # (`custom_sharded_layers`)
    _named(
        "torchtune",
        Stack.TORCH,
        loss_chunk_count=8,
        narrow_states=True,
        overlapped_offload=True,
        own_end_groups=True,
        shards_alone=True,
        adapters=AdapterRecipe(rank=8, unpacking=Unpacking.TORCHAO, whole_scales=False),
    ),
    # litgpt `utils.py` (`chunked_cross_entropy`), `finetune/lora.py` (queries and values)
    _named(
        r"lit-?gpt",
        Stack.TORCH,
        fused_loss=True,
        shards_alone=True,
        adapters=AdapterRecipe(rank=8, targets=AdapterTargets.ATTENTION, dropout=True),
    ),
    # transformers' Trainer and what is built on it: ms-swift `llm/utils/argument.py` (`dtype`) and
    # axolotl `utils/models.py` (`torch_dtype`) load models in 16 bits; their collators and those of
    # LLaMA-Factory and TRL pad to the longest of a batch, unless asked to pack. ms-swift and Qwen
    # bring files for DeepSpeed that overlap: `swift/llm/ds_config/zero2.json`, QwenLM/Qwen
    # `finetune/ds_config_zero2.json`
    _trainer(
        r"swift",
        overlapped_gradients=True,
        loads_in_16_bits=True,
        foreach_optimizer=True,
        reads_logits=True,
        varied_lengths=True,
        adapters=AdapterRecipe(rank=8, dropout=True),
    ),
    _trainer(r"axolotl", loads_in_16_bits=True, foreach_optimizer=True, varied_lengths=True),
    # unsloth `kernels/` (rms_layernorm.py, rope_embedding.py, swiglu.py; cross_entropy_loss.py, in
    # place of the logits)
    _trainer("unsloth", fused_elementwise=True, fused_loss=True, adapters=AdapterRecipe(rank=16)),
    _trainer(
        "factory", foreach_optimizer=True, varied_lengths=True, adapters=AdapterRecipe(rank=8)
    ),
    _trainer(r"\btrl\b", foreach_optimizer=True, varied_lengths=True),
    _trainer(r"\bpeft\b", narrow_adapters=True, overlapped_gradients=True),
    _trainer(r"transformers|(?<!lightning )\btrainer\b"),
    # xtuner `model/modules/dispatch/__init__.py` puts norms of Triton into transformers' models.
    _named("xtuner", Stack.DEEPSPEED, fused_elementwise=True),
    # DeepSpeed brings no model: where nothing else is named, it is one of transformers'.
    _named(
        r"^(?!.*megatron).*deepspeed",
        Stack.DEEPSPEED,
        drops_out=True,
        fused_elementwise=False,
        shifted_logits=True,
    ),
    # Fuses nothing of a block unless options ask for it, which its examples do not; its mask is
    # `masked_fill_`, and its scale the product's own: DeepSpeedExamples
    # `Megatron-LM-v1.1.5-3D_parallelism/megatron/arguments.py`, `model/{gpt2_model,transformer}.py`
    _named(r"megatron-lm v1\.1\b", Stack.DEEPSPEED, drops_out=True, softmax=Softmax.MASKED),
    _named("deepspeed", Stack.DEEPSPEED, drops_out=True),
    # Of 2021, before it reduced inputs' gradients beside products of weights' gradients
    # (`async_tensor_model_parallel_allreduce` of `megatron/arguments.py` came later)
    _named(
        r"megatron-lm \(2021",
        Stack.MEGATRON,
        drops_out=True,
        overlapped_gradients=False,
        overlapped_tensor_parallel=False,
        tensor_float_32=True,
    ),
    # Megatron-Bridge `scripts/performance/configs`, NeMo `llm/recipes` (`grad_reduce_in_fp32 =
    # False`); Megatron-LM's own default is 32 bits.
    _named(r"megatron[- ]bridge", Stack.MEGATRON, narrow_gradients=True, causal_flop=True),
    _named(r"^(nvidia )?nemo", Stack.MEGATRON, narrow_gradients=True, interleaves=True),
    _named("nemo", Stack.MEGATRON, narrow_gradients=True),
    # `megatron/training/arguments.py`: dropout of 0.1 everywhere, `--overlap-grad-reduce` and
    # `--fp8-param-gather` are off
    _named(
        "megatron-lm",
        Stack.MEGATRON,
        copies_in_8_bits=True,
        drops_out=True,
        overlapped_gradients=False,
        tensor_float_32=True,
    ),
    _named("megatron|mcore|primus", Stack.MEGATRON),
    # nanotron `nn/layer_norm.py` (TritonRMSNorm), `models/llama.py` (flash-attention's rotary),
    # `config/parallelism_config.py` (`tp_recompute_allgather`),
    # `parallel/pipeline_parallel/p2p.py`: receives into tensors of its own for each message;
    # `parallel/tensor_parallel/distributed_differentiable_primitives.py` (first dimension)
    _named(
        "nanotron",
        Stack.TORCH,
        fused_elementwise=True,
        regathered_rows=True,
        copied_rows=False,
        stage_buffers=False,
    ),
    # llm-foundry `llmfoundry/models/mpt/modeling_mpt.py` (`loss_fn`); its published benchmarks are
    # of early 2023 on torch 1.13, before the second flash attention
    # (`scripts/train/benchmarking/README.md`).
    _named(
        "foundry|composer",
        Stack.TORCH,
        fused_loss=True,
        flash_attention_generation=1,
        shards_alone=True,
    ),
    # torchtitan `components/loss.py`, compiled with the model since 2025, and `parallelize.py`
    _named("torchtitan", Stack.TORCH, compiled_loss_since="2025", own_end_groups=True),
    # InternEvo `configs/7B_sft.py` (`overlap_sync_grad`; `overlap_sync_param` is off),
    # `solver/optimizer/hybrid_zero_optim.py` (`broadcast_params`)
    _named("internevo", Stack.DEEPSPEED, overlapped_gradients=True, parameter_broadcasts=True),
    # 16-bit parameters, and fp32 masters in the optimizer
    _named("colossal", Stack.DEEPSPEED),
    _named("bmtrain", Stack.DEEPSPEED, shards_alone=True),
    # Aleph-Alpha/scaling `core/optimizer/` (gradients stay in the parameters' 16 bits;
    # `allreduce.py`: after backward they are summed whole, in 32 bits),
    # `transformer/model/layers/lm_head.py` (logits are gathered),
    # `core/nn/parallel_module/communicator.py` (one buffer receives), `core/nn/linear/utils.py`
    # (`_gather_along_sequence_dim`: as ranks' rows come)
    _named(
        r"aa-scaling|aleph",
        Stack.TORCH,
        narrow_gradients=True,
        overlapped_gradients=False,
        summed_gradients=True,
        whole_logits=True,
        stage_buffers=False,
        copied_rows=False,
    ),
    # AnswerDotAI/fsdp_qlora `train.py` (`--precision bf16`)
    _named("fsdp_qlora", Stack.TORCH, narrow_states=True, shifted_logits=True, shards_alone=True),
    _named(
        "torchao|meshwright",
        Stack.TORCH,
        own_end_groups=True,
        adapters=AdapterRecipe(rank=64, whole_scales=False, dropout=True),
    ),
    # NVIDIA DeepLearningExamples `LanguageModeling/BERT/run_pretraining.py`: gradients have the
    # type of apex's parameters (O2), and are reduced flat after backward, or by apex's DDP in
    # buckets of 250 million (`allreduce_post_accumulation`, `message_size`). Its head reads masked
    # rows alone since 2021 (`sequence_output_is_dense` of `modeling.py`); DLPerf is of 2020.
    _nvidia_bert(r"\bdle\b.*dlperf", reads_all_rows=True),
    _nvidia_bert(r"\bdle\b"),
    _named(r"fsdp|\bddp\b|accelerate|lightning", Stack.TORCH, shards_alone=True),
    # Transformer Engine in JAX fuses attention where NVTE_FUSED_ATTN=1 asks, which neither Pax's
    # scripts nor its containers do; else it fuses the softmax alone. Source: TransformerEngine
    # `jax/flax/transformer.py` (`core_attention`; 0 by default until v2.9); NVIDIA/JAX-Toolbox
    # `rosetta/Dockerfile.pax`, `.github/container/patches/praxis/PR-36.patch` (a causal mask)
    _named(
        r"(\bpax\b|paxml).*transformer engine",
        None,
        fused_attention=False,
        asks_for_fusion=True,
        softmax=Softmax.KERNEL,
        fused_elementwise=True,
        launches=False,
        stage_buffers=False,
        checkpoints=True,
    ),
    # praxis `layers/transformers.py` and paxml `tasks/lm/model_params.py` (`CHECKPOINT_POLICY =
    # SAVE_NOTHING`): models of repeated layers run each again
    _named(
        r"\bpax\b|paxml",
        None,
        fused_elementwise=True,
        softmax=Softmax.REDUCTIONS,
        launches=False,
        stage_buffers=False,
        checkpoints=True,
    ),
    # OneFlow-Benchmark `LanguageModeling/GPT/oneflow_gpt/model.py`: the loss of split logits
    # (`distributed_sparse_softmax_cross_entropy_with_logits`), and mask and softmax, GELU and bias
    # as single kernels (`scale_tril_softmax_dropout_fusion`, `bias_gelu_fusion`)
    _named("oneflow gpt", None, split_logits=True, stage_buffers=False, fused_elementwise=True),
    _named("oneflow", None, split_logits=True, stage_buffers=False),
    # XLA compiles a step to one executable: nothing is launched from Python.
    _named(
        r"\bjax\b|maxtext|\bxla\b",
        None,
        fused_elementwise=True,
        softmax=Softmax.REDUCTIONS,
        launches=False,
        stage_buffers=False,
    ),
)
# Whatever it is like else, it is not torch.distributed.pipelining.
_UNKNOWN = _named("", None, stage_buffers=False)
_TORCH = _named("torch", Stack.TORCH)

# Variables of NVIDIA's configurations for MLPerf, which NeMo reads
_NEMO_VARIABLES = re.compile(
    r"\b(TP_COMM_OVERLAP|MC_TP_OVERLAP_AG|FP8_ACTIVATION|(MCORE|LAYER|FULL)_CUDA_GRAPH)="
)
_NEMO = _named("nemo", Stack.MEGATRON, narrow_gradients=True)
# Programs by the configuration or the repository that a row names. minGPT drops out, writes GELU
# out and is trained under autocast. Those of Llama 3.1 in MLPerf 5.1 source `config_common_cg.sh`,
# which sets FULL_CUDA_GRAPH=1 and MCORE_CUDA_GRAPH=1; where neither is set, `conf/custom.yaml`
# captures nothing. fms-fsdp reduces in 16 bits, where a row names no more than torch. Source: files
# of mlcommons/training_results_v5.1, `NVIDIA/benchmarks/llama31_8b/implementations/nemo` and
# `NVIDIA/benchmarks/llama31_405b/implementations/tyche_ngpu512_ngc25.09_nemo`;
# `fms_fsdp/policies/mixed_precision.py` (`bfSixteen`); karpathy/minGPT `mingpt/model.py`
# (`NewGELU`, `attn_pdrop`). FlagPerf's PaddleNLP is on Paddle 2.5.1 of July 2023 (`README.md`), and
# Paddle's fork of flash attention has the second generation since August (its pull request 12); its
# GPT drops out (`training/benchmarks/gpt3_6.7B/paddle/config/_base.py`)
_BY_CONFIGURATION = (
    _named(
        r"(?i)\bmingpt\b",
        Stack.TORCH,
        shards_alone=True,
        drops_out=True,
        activation=Activation.GELU_WIDE_STEPS,
    ),
    _named(
        r"\btraining_results_v5\.1\b.*\bllama31_\w+/.*\bconfig_[\w-]*tp\d+pp\d+",
        Stack.MEGATRON,
        narrow_gradients=True,
        launches=False,
    ),
    _named(r"\bconfig_[\w-]*tp\d+pp\d+", Stack.MEGATRON, narrow_gradients=True),
    _named(r"\bfoundation-model-stack/fms-fsdp\b", Stack.TORCH, narrow_gradients=True),
    _named(
        r"\bFlagPerf\b.*-paddle/",
        None,
        flash_attention_generation=1,
        drops_out=True,
        stage_buffers=False,
    ),
)
# How states are sharded, in words of one stack alone, where no program is named
_SHARDING = (
    (re.compile("deepspeed"), _named("deepspeed", Stack.DEEPSPEED)),
    (re.compile("fsdp"), _TORCH),
)
_OF_MEGATRON_ALONE = "distributed_optimizer"


def program_of(run: MeasuredRun, assumptions: list[Assumption]) -> Program:
    """Return the program of `run`: by its name, else its variables, else how it shards states.

    torch is what a row names beside a way to share states or on one GPU; a list of packages, as of
    a container, names none.
    """
    name, sharding = (run.framework or "").lower(), (run.sharding or "").lower()
    found = _known(name, run)
    if found is not None:
        return found
    if sharding == _OF_MEGATRON_ALONE:
        assumptions.append(Assumption.STACK_OF_SHARDING)
        return _named("", Stack.MEGATRON)
    if "torch" in name and (sharding or run.num_gpus == 1):
        return _TORCH
    if not name:
        for words, program in _SHARDING:
            if words.search(sharding):
                assumptions.append(Assumption.STACK_OF_SHARDING)
                return program
    return _UNKNOWN


def _known(name: str, run: MeasuredRun) -> Program | None:
    """Return the program that a row's configuration is of, else the one of its name.

    Recipes that interleave are known by their name; a configuration says whether they capture.
    """
    named = next((program for program in _PROGRAMS if program.words.search(name)), None)
    configured = _of_configuration(run)
    if named is None or not named.interleaves:
        return configured or named
    return named if configured is None else replace(named, launches=configured.launches)


def _of_configuration(run: MeasuredRun) -> Program | None:
    """Return the program whose configuration or repository a row names, in its source if alone."""
    named = run.configuration or run.source or ""
    found = next((one for one in _BY_CONFIGURATION if one.words.search(named)), None)
    return _NEMO if found is None and _NEMO_VARIABLES.search(run.notes or "") else found


def with_conventions(run: MeasuredRun, program: Program) -> MeasuredRun:
    """Return the run with what its program's TFLOP/s count, where it does not say."""
    if run.tflops_attention is not None or not program.causal_flop:
        return run
    return run.model_copy(update={"tflops_attention": "causal"})


def stacks_of(program: Program, run: MeasuredRun) -> tuple[Stack, ...]:
    """Return the stacks that the run may have had: the stated one, the program's, or any."""
    if run.stack is not None:
        return (run.stack,)
    if program.stack is None:
        return tuple(Stack)
    configured = (run.framework if run.sharding is None else run.sharding) or ""
    if program.configured and "deepspeed" in configured.lower():
        return (Stack.DEEPSPEED,)
    return (program.stack,)
