"""Megatron-Bridge: a plan as overrides of a recipe, one a line.

Names are those of Megatron-Bridge 0.3, `docs/recipe-usage.md` and the dataclasses of
`megatron.bridge.training.config`; what can be run is Megatron's own to say.
"""

from __future__ import annotations

from planner.exporters.canonical import layer_groups
from planner.exporters.draft import Draft, block_count, offloads, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.megatron import (
    recomputed_first_blocks,
    stage_layout,
    token_dispatcher,
)
from planner.exporters.megatron_settled import settled_for_megatron
from planner.exporters.precision import with_the_recipes_precision
from planner.schema.plan import Plan
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    Offload,
    Strategy,
)

_FULL = ActivationCheckpointing.FULL


def export_bridge(plan: Plan, target: str) -> Export:
    """Return the overrides, for `recipe.py $(cat megatron_bridge.overrides)`."""
    draft = with_the_recipes_precision(settled_for_megatron(plan, target))
    lines = [f"{name}={value}" for name, value in overrides(draft).items()]
    return Export(
        target=target,
        files=(ExportedFile(name="megatron_bridge.overrides", text="\n".join(lines) + "\n"),),
        losses=draft.losses,
        strategy=draft.strategy,
    )


def overrides(draft: Draft) -> dict[str, str]:
    """Return what is overridden, every degree included: a recipe has its own."""
    strategy, job = draft.strategy, draft.plan.job.resolved
    split = strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree
    ring = strategy.context_parallel_kind is ContextParallelKind.RING
    return {
        "model.tensor_model_parallel_size": str(strategy.tensor_parallel_degree),
        "model.pipeline_model_parallel_size": str(strategy.pipeline_parallel_degree),
        **_stages(draft),
        "model.context_parallel_size": str(strategy.context_parallel_degree),
        **(
            {"model.cp_comm_type": "p2p" if ring else "a2a"}
            if strategy.context_parallel_degree > 1
            else {}
        ),
        "model.expert_model_parallel_size": str(strategy.expert_parallel_degree),
        "model.expert_tensor_parallel_size": str(split),
        **_dispatcher(draft),
        "model.sequence_parallel": str(strategy.sequence_parallel).lower(),
        "model.seq_length": str(job.sequence_length),
        **_recomputing(strategy),
        **_offloading(strategy),
        "train.micro_batch_size": str(strategy.micro_batch_size),
        "train.global_batch_size": str(job.global_batch_size),
        **_sharding(strategy),
    }


def _dispatcher(draft: Draft) -> dict[str, str]:
    runs = draft.plan.model.resolved.runs
    if all(run.block.feed_forward.kind != "mixture" for run in runs):
        return {}
    word = token_dispatcher(draft)
    backend = {"model.moe_flex_dispatcher_backend": "deepep"} if word == "flex" else {}
    return {"model.moe_token_dispatcher_type": word, **backend}


def _stages(draft: Draft) -> dict[str, str]:
    layout = stage_layout(draft)
    if layout is not None:
        return {"model.pipeline_model_parallel_layout": f"'{layout}'"}
    virtual = draft.strategy.virtual_degree
    shown = "null" if virtual == 1 else str(virtual)
    return {"model.virtual_pipeline_model_parallel_size": shown}


def _recomputing(strategy: Strategy) -> dict[str, str]:
    used = {group.activation_checkpointing for group in layer_groups(strategy)}
    if used == {ActivationCheckpointing.NONE}:
        return {"model.recompute_granularity": "null"}
    if _FULL not in used:
        return {
            "model.recompute_granularity": "selective",
            "model.recompute_modules": "[core_attn,layernorm,mlp]",
        }
    whole = used == {_FULL}
    return {
        "model.recompute_granularity": "full",
        "model.recompute_method": "uniform" if whole else "block",
        "model.recompute_num_layers": str(1 if whole else recomputed_first_blocks(strategy)),
    }


def _offloading(strategy: Strategy) -> dict[str, str]:
    kept = offloads(strategy)
    fields: dict[str, str] = {}
    if Offload.OPTIMIZER in kept:
        fields["optimizer.optimizer_cpu_offload"] = "true"
        fields["optimizer.use_precision_aware_optimizer"] = "true"
    if Offload.ACTIVATIONS in kept:
        groups = [g for g in layer_groups(strategy) if Offload.ACTIVATIONS in g.offload]
        fields["model.cpu_offloading"] = "true"
        fields["model.cpu_offloading_num_layers"] = str(block_count(strategy, groups))
    return fields


def _sharding(strategy: Strategy) -> dict[str, str]:
    (stage,) = zero_stages(strategy)
    offloaded = Offload.OPTIMIZER in offloads(strategy)  # which a lone rank does of it as well
    fields = {
        "ddp.use_distributed_optimizer": str(stage > 0 or offloaded).lower(),
        "ddp.overlap_grad_reduce": "true",
        "ddp.overlap_param_gather": str(stage > 0).lower(),
    }
    if strategy.replicate_degree > 1 and stage:
        fields["ddp.num_distributed_optimizer_instances"] = str(strategy.replicate_degree)
    if stage > 1:
        fields["ddp.use_megatron_fsdp"] = "true"
        sharding = "optim_grads" if stage == 2 else "optim_grads_params"
        fields["ddp.data_parallel_sharding_strategy"] = sharding
        fields["checkpoint.ckpt_format"] = "fsdp_dtensor"
    return fields
