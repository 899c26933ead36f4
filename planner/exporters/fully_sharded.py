"""Fully sharded: what programs that drive torch's `fully_shard` can run of a plan.

Accelerate, Hugging Face's Trainer and Axolotl do so by one `ParallelismConfig`, where states are to
be sharded; verl's and NeMo-RL's workers always do. Rules: `parallelism_config.py` and
`utils/dataclasses.py` of Accelerate 1.15.0; no pipelines and no experts (accelerate#4200).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.exporters.canonical import shards_anything
from planner.exporters.draft import (
    Draft,
    first_draft,
    offloads,
    refusal,
    with_all_states_offloaded,
    with_experts_split,
    with_one_zero_stage,
    with_whole_blocks_checkpointed,
)
from planner.schema.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharder:
    """A program on `fully_shard`: its ZeRO stages, and whether it shards whatever it is told."""

    name: str
    zero_stages: tuple[int, ...] = (2, 3)
    always: bool = False


_ACCELERATE = Sharder(name="Accelerate")


def settled_fully_sharded(plan: Plan, target: str, sharder: Sharder = _ACCELERATE) -> Draft:
    """Return what the program can run of the plan, with what is lost.

    Raises:
        InputError: if it can run nothing like it.
    """
    draft = first_draft(plan, target)
    draft = with_experts_split(draft, sharder.name)
    # `offload_params` moves parameters, gradients and optimizer together
    draft = with_all_states_offloaded(draft, sharder.name)
    return with_whole_blocks_checkpointed(_sharded(draft, sharder), sharder.name)


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


def _sharded(draft: Draft, sharder: Sharder) -> Draft:
    """Keep: parameters are resharded after forward or not, of all layers.

    Replicas beside tensor or context parallelism need a shard group.
    """
    if not is_sharded(draft) and not sharder.always:
        return draft
    strategy = draft.strategy
    lone = strategy.shard_degree == 1 and strategy.replicate_degree > 1
    if lone:
        data = strategy.replicate_degree
        beside = "" if sharder.always else " beside other axes"
        draft = draft.losing(
            f"{sharder.name} has no plain replicas{beside}: states are sharded over the {data} "
            "data-parallel ranks, which takes less memory",
            strategy.model_copy(
                update={"data_parallel_shard_degree": data, "data_parallel_replicate_degree": 1}
            ),
        )
    if draft.strategy.world_size == 1 or (sharder.always and not draft.shares_states):
        return draft
    if not draft.shares_states:
        raise refusal(
            draft,
            field="tensor_parallel_degree",
            value=strategy.tensor_parallel_degree,
            problem=f"{sharder.name} has no tensor parallelism without ranks to shard over",
            remedy="plan with limits.data_parallel_shard_degree 2 or more",
        )
    why = f"{sharder.name} shards all layers alike"
    return with_one_zero_stage(draft, sharder.zero_stages, why=why)
