"""Megatron-LM: a plan as arguments of its training scripts.

Flags and their meaning are those of Megatron-LM 0.19.2, `megatron/training/arguments.py` and the
dataclasses that it reads. There is no flag of data parallelism: it is what is left of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from planner.exporters.canonical import layer_groups
from planner.exporters.decoder_stages import decoder_counts
from planner.exporters.draft import Draft, block_count, offloads, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_fields import OPTIMIZERS
from planner.exporters.megatron_settled import settled_for_megatron
from planner.exporters.torchrun import torchrun_words
from planner.schema.hybrid_pattern import block_letters
from planner.schema.job import Job, Precision
from planner.schema.model_kind import ModelKind, model_kind
from planner.schema.plan import Plan
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    Offload,
    Strategy,
)

_FULL = ActivationCheckpointing.FULL
_COMMUNICATION = {ContextParallelKind.RING: "p2p", ContextParallelKind.ALL_TO_ALL: "a2a"}
_DROPOUT_RATIO = 0.1  # Megatron's own
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def export_megatron(plan: Plan, target: str) -> Export:
    """Return a shell script with the arguments, to be run with the model's own on every node."""
    draft = settled_for_megatron(plan, target)
    text = _script(draft, [" ".join(words) for words in megatron_arguments(draft)])
    return Export(
        target=target,
        files=(ExportedFile(name="megatron.sh", text=text),),
        losses=draft.losses,
        strategy=draft.strategy,
    )


def megatron_arguments(draft: Draft) -> list[list[str]]:
    """Return the arguments that say the strategy, flag and value together."""
    strategy = draft.strategy
    has_experts = any(
        run.block.feed_forward.kind == "mixture" for run in draft.plan.model.resolved.runs
    )
    return [
        *_degrees(draft),
        *(_experts(draft) if has_experts else ()),
        *_batch(draft),
        *_optimizer(draft),
        *_sharding(draft),
        *_recomputing(strategy),
        *_offloading(strategy),
    ]


def pipeline_layout(counts: Sequence[int]) -> str:
    """Return decoder blocks by stage in the language of `--pipeline-model-parallel-layout`.

    `E` is the embedding, and towers beside it, `t` a block, `L` the loss, `|` the end of a virtual
    stage; stages run in the order of the chain. Equal neighbours are written once:
    `Et*3|(t*4|)*6t*3L`.

    Source: `PipelineParallelLayerLayout.parse_str_to_list` of Megatron-LM 0.19.2.
    """
    first, last = f"E{_blocks(counts[0])}", f"{_blocks(counts[-1])}L"
    if len(counts) == 1:
        return f"{first}L"
    middle = ""
    for count, run in groupby(counts[1:-1]):
        times = len(list(run))
        # its parser knows no group within a group: blocks of a repeated stage are written out
        middle += f"({'t' * count}|)*{times}" if times > 1 else f"{_blocks(count)}|"
    return f"{first}|{middle}{last}"


def _blocks(count: int) -> str:
    return f"t*{count}" if count > 1 else "t" * count


def stage_layout(draft: Draft) -> str | None:
    """Return the layout of the plan's stages, None where all hold as many decoder blocks.

    A hybrid has none: its pattern is cut, or spread evenly.
    """
    strategy = draft.strategy
    if draft.plan.model.resolved.is_hybrid:
        return None
    counts = decoder_counts(strategy, draft.plan.model.resolved)
    if strategy.pipeline_parallel_degree == 1 or len(set(counts)) == 1:
        return None
    return pipeline_layout(counts)


def hybrid_pattern(draft: Draft) -> str | None:
    """Return the layers of a hybrid's stages by their letters, None without such a pipeline."""
    strategy, graph = draft.strategy, draft.plan.model.resolved
    letters = block_letters(graph) if graph.is_hybrid else None
    if letters is None or strategy.virtual_stage_count == 1:
        return None
    rest = iter(letters)
    stages = [[next(rest) for _ in range(stage.block_count)] for stage in strategy.stages or ()]
    return "|".join("".join(own) for own in stages)


def recomputed_first_blocks(strategy: Strategy) -> int:
    """Return how many first blocks of each virtual stage are recomputed in full."""
    return max(
        block_count(strategy, [g for g in s.layers if g.activation_checkpointing is _FULL])
        for s in strategy.stages or ()
    )


def _degrees(draft: Draft) -> list[list[str]]:
    strategy, layout = draft.strategy, stage_layout(draft)
    words = [
        ["--tensor-model-parallel-size", str(strategy.tensor_parallel_degree)],
        ["--pipeline-model-parallel-size", str(strategy.pipeline_parallel_degree)],
    ]
    if strategy.sequence_parallel:
        words.append(["--sequence-parallel"])
    if draft.overlaps_tensor_parallel:
        words.append(["--tp-comm-overlap"])
    pattern = hybrid_pattern(draft)
    if pattern is not None:
        words.append(["--hybrid-layer-pattern", f"'{pattern}'"])
    elif layout is not None:
        words.append(["--pipeline-model-parallel-layout", f"'{layout}'"])
    elif strategy.virtual_degree > 1:
        words.append(["--num-virtual-stages-per-pipeline-rank", str(strategy.virtual_degree)])
    if strategy.context_parallel_degree > 1:
        words += [
            ["--context-parallel-size", str(strategy.context_parallel_degree)],
            ["--cp-comm-type", _COMMUNICATION[strategy.context_parallel_kind]],
        ]
    return words


def _experts(draft: Draft) -> list[list[str]]:
    strategy = draft.strategy
    split = strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree
    words = [
        ["--expert-model-parallel-size", str(strategy.expert_parallel_degree)],
        ["--expert-tensor-parallel-size", str(split)],
        ["--moe-token-dispatcher-type", token_dispatcher(draft)],
    ]
    if token_dispatcher(draft) == "flex":
        words.append(["--moe-flex-dispatcher-backend", "deepep"])
    return words


def token_dispatcher(draft: Draft) -> str:
    """Return Megatron's word for how tokens reach experts, as the job has it priced."""
    return "flex" if draft.plan.job.resolved.deduplicated_dispatch else "alltoall"


def _batch(draft: Draft) -> list[list[str]]:
    job = draft.plan.job.resolved
    words = [
        ["--micro-batch-size", str(draft.strategy.micro_batch_size)],
        ["--global-batch-size", str(job.global_batch_size)],
        ["--seq-length", str(job.sequence_length)],
        *([f"--{name}", str(ratio)] for name, ratio in dropout_ratios(job).items()),
    ]
    if job.precision is not Precision.FP32:
        words.append([f"--{'fp16' if job.precision is Precision.FP16 else 'bf16'}"])
    if job.precision is Precision.FP8:
        words.append(["--fp8-format", "hybrid"])
        words.extend([] if job.copies_in_8_bits else [["--fp8-param-gather"]])
    return [*words, *_gradients(job)]


def _optimizer(draft: Draft) -> list[list[str]]:
    name = OPTIMIZERS["megatron-lm"].get(draft.plan.job.resolved.optimizer)
    return [] if name is None else [["--optimizer", name]]


def _gradients(job: Job) -> list[list[str]]:
    """Return how gradients are added and reduced where that is not the program's own way."""
    narrow = job.gradients_in_16_bits
    if job.precision is Precision.FP16:
        return [] if narrow else [["--accumulate-allreduce-grads-in-fp32"]]
    return [["--grad-reduce-in-bf16"]] if narrow and job.precision is not Precision.FP32 else []


def dropout_ratios(job: Job) -> dict[str, float]:
    """Return what is dropped out, which the program would do of 0.1 if nothing were said."""
    ratio = _DROPOUT_RATIO if job.dropout else 0.0
    return {"attention-dropout": ratio, "hidden-dropout": ratio}


def _sharding(draft: Draft) -> list[list[str]]:
    strategy = draft.strategy
    if not draft.shares_states:
        # a lone rank shards nothing, and needs the distributed optimizer to offload it
        offloaded = Offload.OPTIMIZER in offloads(strategy)
        return [["--use-distributed-optimizer"]] if offloaded else []
    (stage,) = zero_stages(strategy)
    if stage == 0:
        return [["--overlap-grad-reduce"]]
    words = [
        ["--use-distributed-optimizer"],
        ["--overlap-grad-reduce"],
        ["--overlap-param-gather"],
    ]
    if strategy.replicate_degree > 1:
        words.append(["--num-distributed-optimizer-instances", str(strategy.replicate_degree)])
    if stage > 1:
        words += [
            ["--use-megatron-fsdp"],
            ["--data-parallel-sharding-strategy", _SHARDING[stage]],
            ["--ckpt-format", "fsdp_dtensor"],
        ]
    return words


def _recomputing(strategy: Strategy) -> list[list[str]]:
    used = {group.activation_checkpointing for group in layer_groups(strategy)}
    if used == {ActivationCheckpointing.SELECTIVE}:
        return [
            ["--recompute-granularity", "selective"],
            ["--recompute-modules", "core_attn", "layernorm", "mlp"],
        ]
    if _FULL not in used:
        return []
    whole = used == {_FULL}
    number = 1 if whole else recomputed_first_blocks(strategy)
    return [
        ["--recompute-granularity", "full"],
        ["--recompute-method", "uniform" if whole else "block"],
        ["--recompute-num-layers", str(number)],
    ]


def _offloading(strategy: Strategy) -> list[list[str]]:
    words: list[list[str]] = []
    kept = offloads(strategy)
    if Offload.OPTIMIZER in kept:
        words += [["--optimizer-cpu-offload"], ["--use-precision-aware-optimizer"]]
    if Offload.ACTIVATIONS in kept:
        groups = [g for g in layer_groups(strategy) if Offload.ACTIVATIONS in g.offload]
        words.append(["--cpu-offloading-num-layers", str(block_count(strategy, groups))])
    return words


def _script(draft: Draft, arguments: list[str]) -> str:
    plan, strategy = draft.plan, draft.strategy
    launch = torchrun_words(plan, node_rank='"${NODE_RANK}"', address='"${MASTER_ADDR}"')
    lines = [
        "#!/usr/bin/env bash",
        f"# Plan {plan.id} for Megatron-LM: run on every node, with model and data arguments.",
        *(f"# Not as planned: {loss}." for loss in draft.losses),
        "set -euo pipefail",
        *_environment(strategy),
        "PLAN_ARGUMENTS=(",
        *(f"  {line}" for line in arguments),
        ")",
        f'exec {" ".join(launch)} {_program(plan)} "${{PLAN_ARGUMENTS[@]}}" "$@"',
    ]
    return "\n".join(lines) + "\n"


def _program(plan: Plan) -> str:
    """Return the script that trains the model, one to be named where Megatron-LM has none."""
    graph = plan.model.resolved
    if model_kind(graph) is not ModelKind.DECODER or graph.tower_block_count:
        return '"${PROGRAM:?set it to the script that trains the model}"'
    return "pretrain_hybrid.py" if graph.is_hybrid else "pretrain_gpt.py"


def _environment(strategy: Strategy) -> list[str]:
    """Return what `validate_args` asserts of the environment before Blackwell.

    Under tensor or context parallelism one connection, but with Megatron-FSDP any other number.
    """
    if max(zero_stages(strategy)) > 1:
        return ["unset CUDA_DEVICE_MAX_CONNECTIONS"]
    return ["export CUDA_DEVICE_MAX_CONNECTIONS=1"]
