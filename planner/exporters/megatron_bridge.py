"""Megatron-Bridge: a plan as overrides of a recipe, one a line.

Names are those of Megatron-Bridge 0.3, `docs/recipe-usage.md` and the dataclasses of
`megatron.bridge.training.config`; what can be run is Megatron's own to say.
"""

from __future__ import annotations

from planner.exporters.canonical import layer_groups
from planner.exporters.draft import Draft, block_count, offloads, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.megatron import (
    dropout_ratios,
    recomputed_first_blocks,
    stage_layout,
    token_dispatcher,
)
from planner.exporters.megatron_settled import settled_for_megatron
from planner.exporters.precision import with_the_recipes_precision
from planner.exporters.yaml_lines import Fields
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
    fields = megatron_fields(draft)
    return {name: shown(value) for name, value in fields.items()}


def megatron_fields(draft: Draft) -> Fields:
    """Return the settings of the plan by the sections and names that Megatron-Core has them."""
    strategy, job = draft.strategy, draft.plan.job.resolved
    split = strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree
    ring = strategy.context_parallel_kind is ContextParallelKind.RING
    return {
        "model.tensor_model_parallel_size": strategy.tensor_parallel_degree,
        "model.pipeline_model_parallel_size": strategy.pipeline_parallel_degree,
        **_stages(draft),
        "model.context_parallel_size": strategy.context_parallel_degree,
        **(
            {"model.cp_comm_type": "p2p" if ring else "a2a"}
            if strategy.context_parallel_degree > 1
            else {}
        ),
        "model.expert_model_parallel_size": strategy.expert_parallel_degree,
        "model.expert_tensor_parallel_size": split,
        **_dispatcher(draft),
        "model.sequence_parallel": strategy.sequence_parallel,
        "model.seq_length": job.sequence_length,
        **{f"model.{name.replace('-', '_')}": r for name, r in dropout_ratios(job).items()},
        **_recomputing(strategy),
        **_offloading(strategy),
        "train.micro_batch_size": strategy.micro_batch_size,
        "train.global_batch_size": job.global_batch_size,
        **_sharding(strategy),
    }


def shown(value: object) -> str:
    """Return the value as an override has it; a layout is quoted, for its bars."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    return f"'{value}'" if "|" in str(value) else str(value)


def _dispatcher(draft: Draft) -> Fields:
    runs = draft.plan.model.resolved.runs
    if all(run.block.feed_forward.kind != "mixture" for run in runs):
        return {}
    word = token_dispatcher(draft)
    backend = {"model.moe_flex_dispatcher_backend": "deepep"} if word == "flex" else {}
    return {"model.moe_token_dispatcher_type": word, **backend}


def _stages(draft: Draft) -> Fields:
    layout = stage_layout(draft)
    if layout is not None:
        return {"model.pipeline_model_parallel_layout": layout}
    virtual = draft.strategy.virtual_degree
    return {"model.virtual_pipeline_model_parallel_size": None if virtual == 1 else virtual}


def _recomputing(strategy: Strategy) -> Fields:
    used = {group.activation_checkpointing for group in layer_groups(strategy)}
    if used == {ActivationCheckpointing.NONE}:
        return {"model.recompute_granularity": None}
    if _FULL not in used:
        return {
            "model.recompute_granularity": "selective",
            "model.recompute_modules": ["core_attn", "layernorm", "mlp"],
        }
    whole = used == {_FULL}
    return {
        "model.recompute_granularity": "full",
        "model.recompute_method": "uniform" if whole else "block",
        "model.recompute_num_layers": 1 if whole else recomputed_first_blocks(strategy),
    }


def _offloading(strategy: Strategy) -> Fields:
    kept = offloads(strategy)
    fields: Fields = {}
    if Offload.OPTIMIZER in kept:
        fields["optimizer.optimizer_cpu_offload"] = True
        fields["optimizer.optimizer_offload_fraction"] = 1.0
        fields["optimizer.use_precision_aware_optimizer"] = True
    if Offload.ACTIVATIONS in kept:
        groups = [g for g in layer_groups(strategy) if Offload.ACTIVATIONS in g.offload]
        fields["model.cpu_offloading"] = True
        fields["model.cpu_offloading_num_layers"] = block_count(strategy, groups)
    return fields


def _sharding(strategy: Strategy) -> Fields:
    (stage,) = zero_stages(strategy)
    offloaded = Offload.OPTIMIZER in offloads(strategy)  # which a lone rank does of it as well
    fields: Fields = {
        "ddp.use_distributed_optimizer": stage > 0 or offloaded,
        "ddp.overlap_grad_reduce": True,
        "ddp.overlap_param_gather": stage > 0,
    }
    if strategy.replicate_degree > 1 and stage:
        fields["ddp.num_distributed_optimizer_instances"] = strategy.replicate_degree
    if stage > 1:
        fields["ddp.use_megatron_fsdp"] = True
        sharding = "optim_grads" if stage == 2 else "optim_grads_params"
        fields["ddp.data_parallel_sharding_strategy"] = sharding
        fields["checkpoint.ckpt_format"] = "fsdp_dtensor"
    return fields
