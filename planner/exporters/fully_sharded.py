"""Fully sharded: what Accelerate and Hugging Face's Trainer can run of a plan.

Both drive torch's `fully_shard` by one `ParallelismConfig`. Rules: `parallelism_config.py` and
`utils/dataclasses.py` of Accelerate 1.15.0; no pipelines and no experts (accelerate#4200).
"""

from __future__ import annotations

from planner.exporters.canonical import layer_groups, shards_anything
from planner.exporters.draft import (
    Draft,
    first_draft,
    offloads,
    refusal,
    with_all_states_offloaded,
    with_everywhere,
    with_experts_split,
    with_one_checkpointing,
    with_one_zero_stage,
)
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing

_FULL = ActivationCheckpointing.FULL


def settled_fully_sharded(plan: Plan, target: str) -> Draft:
    """Return what Accelerate can run of the plan, with what is lost.

    Raises:
        InputError: if it can run nothing like it.
    """
    draft = first_draft(plan, target)
    draft = with_experts_split(draft, "Accelerate")
    # `offload_params` moves parameters, gradients and optimizer together
    draft = with_all_states_offloaded(draft, "Accelerate")
    draft = _sharded(draft)
    return _checkpointed(draft)


def with_late_reduction(draft: Draft) -> Draft:
    """Return the draft with the loss of runs that leave Accelerate's accumulation as it is."""
    if not is_sharded(draft) or (draft.strategy.micro_batch_count or 1) == 1:
        return draft
    return draft.losing(
        "Accelerate reduces gradients after the last micro-batch only and keeps them whole until "
        "then; GradientAccumulationPlugin(sync_each_batch=True) has them sharded as planned"
    )


def is_sharded(draft: Draft) -> bool:
    """Return whether the run goes through `fully_shard`: without it, it is plain replicas."""
    strategy = draft.strategy
    several = strategy.tensor_parallel_degree * strategy.context_parallel_degree > 1
    return several or bool(offloads(strategy)) or shards_anything(strategy)


def transformer_layer(plan: Plan) -> str | None:
    """Return the class of the model's blocks in transformers, None where it is not known."""
    return _LAYERS.get(plan.model.resolved.architecture)


_LAYERS = {
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gpt2": "GPT2Block",
    "gpt_oss": "GptOssDecoderLayer",
    "deepseek_v3": "DeepseekV3DecoderLayer",
}


def _sharded(draft: Draft) -> Draft:
    """Keep: parameters are resharded after forward or not, of all layers.

    Replicas beside tensor or context parallelism need a shard group.
    """
    if not is_sharded(draft):
        return draft
    strategy = draft.strategy
    lone = strategy.shard_degree == 1 and strategy.replicate_degree > 1
    if lone:
        data = strategy.replicate_degree
        draft = draft.losing(
            f"Accelerate has no plain replicas beside other axes: states are sharded over the "
            f"{data} data-parallel ranks, which takes less memory",
            strategy.model_copy(
                update={"data_parallel_shard_degree": data, "data_parallel_replicate_degree": 1}
            ),
        )
    if draft.strategy.world_size == 1:
        return draft
    if not draft.shares_states:
        raise refusal(
            draft,
            field="tensor_parallel_degree",
            value=strategy.tensor_parallel_degree,
            problem="Accelerate has no tensor parallelism without ranks to shard over",
            remedy="plan with limits.data_parallel_shard_degree 2 or more",
        )
    return with_one_zero_stage(draft, (2, 3), why="Accelerate shards all layers alike")


def _checkpointed(draft: Draft) -> Draft:
    draft = with_one_checkpointing(draft, why="Accelerate checkpoints all blocks or none")
    kept = next(layer_groups(draft.strategy)).activation_checkpointing
    if kept is not ActivationCheckpointing.SELECTIVE:
        return draft
    return draft.losing(
        "Accelerate checkpoints no part of a block: all of it is recomputed, which takes less "
        "memory and more time",
        with_everywhere(draft.strategy, activation_checkpointing=_FULL),
    )
