"""MaxText: a plan as the YAML that is laid over its `base.yml`.

Keys are those of MaxText of August 2026, `configs/base.yml` and `types.py`: a step has
`per_device_batch_size` sequences for each device, also for those that split one sequence
(`calculate_global_batch_sizes`). An axis has a part within a node and one between nodes. A pipeline
is one module over all stages, whose forward passes all end before the first backward pass
(`layers/pipeline.py`), and passes all micro-batches of a step at once.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

from planner.exporters.blocks import evenly
from planner.exporters.canonical import layer_groups
from planner.exporters.decoder_stages import with_stages_that_it_has
from planner.exporters.draft import (
    Draft,
    first_draft,
    offloads,
    refusal,
    with_experts_split,
    with_offload_of_all,
    with_one_checkpointing,
    with_one_zero_stage,
)
from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_fields import OPTIMIZERS
from planner.exporters.placement import placement
from planner.exporters.yaml_lines import Fields, yaml_text
from planner.schema.job import Precision
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing, Offload, Strategy

_POLICIES = {
    ActivationCheckpointing.NONE: "minimal_with_context",
    ActivationCheckpointing.SELECTIVE: "minimal",
    ActivationCheckpointing.FULL: "full",
}
_NUMBERS = {
    Precision.BF16: "bfloat16",
    Precision.FP8: "bfloat16",
    Precision.FP32: "float32",
}


def export_maxtext(plan: Plan, target: str) -> Export:
    """Return the YAML, to be completed with model, data and output."""
    draft = _settled(plan, target)
    comments = draft.comments(
        f"Plan {plan.id} for MaxText: add base_config, run_name, model_name and data."
    )
    return draft.exported(
        ExportedFile(name="maxtext.yml", text=yaml_text(_fields(draft), comments))
    )


def _settled(plan: Plan, target: str) -> Draft:
    draft = with_experts_split(_pipelined(first_draft(plan, target)), "MaxText")
    if plan.job.resolved.precision is Precision.FP16:
        raise refusal(
            draft,
            field="precision",
            value=Precision.FP16.value,
            problem="MaxText has no loss scale",
            remedy="plan in bf16",
        )
    draft = with_one_checkpointing(draft, why="MaxText has one policy of rematerialisation")
    if next(layer_groups(draft.strategy)).activation_checkpointing is ActivationCheckpointing.NONE:
        draft = draft.losing(
            "MaxText's policies all recompute norms and gates: somewhat less memory, more time"
        )
    draft = with_offload_of_all(
        draft, Offload.OPTIMIZER, why="MaxText's optimizer is offloaded as a whole"
    )
    return _even(_sharded(draft))


def _pipelined(draft: Draft) -> Draft:
    """Keep: stages of as many blocks of one kind, and whole rounds of micro-batches."""
    strategy, graph = draft.strategy, draft.plan.model.resolved
    stages, count = strategy.pipeline_parallel_degree, strategy.micro_batch_count or 1
    if stages == 1:
        return draft
    draft = with_stages_that_it_has(draft)
    if graph.block_count % stages or len({run.block for run in graph.runs}) > 1:
        raise refusal(
            draft,
            field="pipeline_parallel_degree",
            value=stages,
            problem="MaxText's stages are one module, with as many blocks of one kind each",
            remedy="plan with limits.pipeline_parallel_degree 1",
        )
    if count % stages:
        raise refusal(
            draft,
            field="micro_batch_count",
            value=count,
            problem=f"MaxText's pipeline takes a multiple of its {stages} stages",
            remedy=f"plan with limits.micro_batch_size so that {stages} divides their number",
        )
    return draft


def _even(draft: Draft) -> Draft:
    """Return the draft with as many blocks on each stage."""
    strategy, graph = draft.strategy, draft.plan.model.resolved
    counts = [stage.block_count for stage in strategy.stages or ()]
    if len(set(counts)) == 1:
        return draft
    each = graph.block_count // len(counts)
    return draft.losing(
        f"MaxText's stages have {each} blocks each, where the plan's have "
        f"{', '.join(map(str, counts))}: those with fewer take more memory",
        evenly(strategy, graph.block_count, draft.plan.job.resolved.global_batch_size or 1),
    )


def _sharded(draft: Draft) -> Draft:
    """Keep: the axis `fsdp` shards all states, and `data` none; sharers of a sequence shard.

    The axis `expert` has experts of its own, and is one more over which all else is sharded and the
    batch is split (`logical_axis_rules` of `configs/base.yml`).
    """
    if not draft.shares_states:
        return draft
    shares = max(draft.strategy.context_parallel_degree, draft.strategy.expert_parallel_degree) > 1
    draft = with_one_zero_stage(
        draft, (3,) if shares else (0, 3), why="MaxText's axis fsdp shards all states"
    )
    experts, shard = draft.strategy.expert_parallel_degree, draft.strategy.shard_degree
    if shard % experts == 0:
        return draft
    raise refusal(
        draft,
        field="expert_parallel_degree",
        value=experts,
        problem=f"MaxText's axis expert is a part of the {shard} ranks that share states",
        remedy=f"plan with limits.expert_parallel_degree a divisor of {shard}",
    )


def _fields(draft: Draft) -> Fields:
    strategy, job = draft.strategy, draft.plan.job.resolved
    kept = next(layer_groups(strategy)).activation_checkpointing
    data = strategy.shard_degree * strategy.replicate_degree
    stages, count = strategy.pipeline_parallel_degree, strategy.micro_batch_count or 1
    at_once = count if stages > 1 else 1
    share = Fraction(strategy.micro_batch_size * data * at_once, strategy.world_size)
    fields: Fields = {
        "per_device_batch_size": share.numerator if share.denominator == 1 else float(share),
        "gradient_accumulation_steps": count // at_once,
        "max_target_length": job.sequence_length,
        "dtype": _NUMBERS[job.precision],
        "weight_dtype": "bfloat16" if job.states_in_16_bits else "float32",
        "remat_policy": _POLICIES[kept],
        **_axes(draft),
    }
    if stages > 1:
        fields["num_pipeline_microbatches"] = count
        fields["num_layers_per_pipeline_stage"] = draft.plan.model.resolved.block_count // stages
    if job.precision is Precision.FP8:
        fields["quantization"] = "fp8"
    if strategy.context_parallel_degree > 1:
        fields["context_parallel_strategy"] = "ring"
    if Offload.OPTIMIZER in offloads(strategy):
        fields["optimizer_memory_host_offload"] = True
    if job.optimizer in OPTIMIZERS[draft.target]:
        fields["opt_type"] = OPTIMIZERS[draft.target][job.optimizer]
    if job.gradient_clipping is not None:
        fields["gradient_clipping_threshold"] = 1.0 if job.gradient_clipping else 0.0
    return fields


def _axes(draft: Draft) -> Fields:
    """Return every axis within nodes and between them, inner axes in nodes first."""
    strategy, place = draft.strategy, placement(draft.plan)
    left, fields = place.devices_per_node, Fields()
    for name, degree in _degrees(strategy):
        inner = gcd(degree, left)
        left //= inner
        fields[f"ici_{name}_parallelism"] = inner
        fields[f"dcn_{name}_parallelism"] = degree // inner
    if left > 1:
        raise refusal(
            draft,
            field="tensor_parallel_degree",
            value=strategy.tensor_parallel_degree,
            problem=f"MaxText's axes fill whole nodes, here of {place.devices_per_node} devices",
            remedy="plan with degrees that divide a node",
        )
    return fields


def _degrees(strategy: Strategy) -> tuple[tuple[str, int], ...]:
    return (
        ("tensor", strategy.tensor_parallel_degree),
        ("context", strategy.context_parallel_degree),
        ("expert", strategy.expert_parallel_degree),
        ("fsdp", strategy.shard_degree // strategy.expert_parallel_degree),
        ("pipeline", strategy.pipeline_parallel_degree),
        ("data", strategy.replicate_degree),
    )
