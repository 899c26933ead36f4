"""Measured rows: an attempt at a run in the form that validation and calibration read.

Keys, units and spellings are those of `planner.schema.measured_run`. What a row cannot say of a
model (towers, blocks of several kinds) is left out: such a row is compared where the model has a
name that the planner knows, and counted with the reason otherwise.
"""

from __future__ import annotations

from typing import Any

from planner.schema.block import Block
from planner.schema.model import DenseFeedForward, GroupedQueryAttention, ModelGraph, Norm
from planner.schema.plan import Plan
from planner.schema.run import MeasuredSummary
from planner.schema.strategy import LayerGroup, Offload, Strategy
from planner.units import GIB


def measured_row(plan: Plan, summary: MeasuredSummary, *, run_id: str) -> dict[str, Any]:
    """Return the row of one attempt that followed `plan`."""
    peaks = [peak for peak in summary.peak_memory_bytes if peak is not None]
    row = {
        "id": f"{run_id}-{summary.attempt}",
        "family": "meshwright",
        "source": f"run {run_id}, attempt {summary.attempt}",
        "outcome": "ok",
        "step_time_s": summary.median_step_seconds,
        "peak_mem_gib": max(peaks) / GIB if peaks else None,
        "mem_class": "torch_allocated" if peaks else None,
        **_model(plan.model.resolved),
        **_machine(plan),
        **_layout(plan.strategy),
        **_memory_knobs(plan.strategy),
    }
    return {key: value for key, value in row.items() if value is not None}


def _machine(plan: Plan) -> dict[str, Any]:
    groups, job = plan.cluster.resolved.node_groups, plan.job.resolved
    kinds = {group.device for group in groups}
    return {
        "gpu": groups[0].device if len(kinds) == 1 else "mixed",
        "gpus_per_node": groups[0].devices_per_node,
        "num_gpus": plan.strategy.world_size,
        "framework": "meshwright",
        "precision": job.precision.value,
        "optimizer": job.optimizer.value,
        "seq_len": job.sequence_length,
        "gbs": job.global_batch_size,
        "flash_attention": job.fused_attention,
    }


def _layout(strategy: Strategy) -> dict[str, Any]:
    stages = {group.zero_stage for group in _groups(strategy)}
    replicated = strategy.replicate_degree > 1
    return {
        "dp": strategy.shard_degree * strategy.replicate_degree,
        "tp": strategy.tensor_parallel_degree,
        "pp": strategy.pipeline_parallel_degree,
        "vpp": strategy.virtual_degree,
        "cp": strategy.context_parallel_degree,
        "ep": strategy.expert_parallel_degree,
        "etp": strategy.expert_tensor_parallel_degree,
        "sequence_parallel": strategy.sequence_parallel,
        "zero_stage": stages.pop() if len(stages) == 1 else None,
        "shard_group_size": strategy.shard_degree if replicated else None,
        "pp_schedule": strategy.pipeline_schedule.value,
        "mbs": strategy.micro_batch_size,
        "grad_accum": strategy.micro_batch_count,
    }


def _memory_knobs(strategy: Strategy) -> dict[str, Any]:
    kinds = {group.activation_checkpointing.value for group in _groups(strategy)}
    offloaded = {kind for group in _groups(strategy) for kind in group.offload}
    return {
        "recompute": kinds.pop() if len(kinds) == 1 else "partial",
        "offload_params": Offload.PARAMETERS in offloaded,
        "offload_optimizer": Offload.OPTIMIZER in offloaded,
        "offload_activations": Offload.ACTIVATIONS in offloaded,
    }


def _model(graph: ModelGraph) -> dict[str, Any]:
    block = graph.runs[0].block
    attention, feed_forward = block.attention, block.feed_forward
    named = {"model": graph.name}
    if len(graph.runs) > 1 or graph.runs[0].measured is not None or not _is_plain(block):
        return named
    if not isinstance(attention, GroupedQueryAttention):
        return named
    if not isinstance(feed_forward, DenseFeedForward):
        return named
    return {
        **named,
        "layers": graph.runs[0].block_count,
        "hidden_size": graph.hidden_size,
        "ffn_size": feed_forward.ffn_size,
        "heads": attention.head_count,
        "kv_heads": attention.key_value_head_count,
        "head_dim": attention.head_size,
        "vocab": graph.vocabulary_size,
        "tied_embeddings": graph.tied_embeddings,
        "activation": "swiglu" if feed_forward.gated else "gelu",
        "attention_kind": "gqa",
        "position": "rope" if attention.rotary else "learned",
    }


def _is_plain(block: Block) -> bool:
    """Return whether a row says the whole block: a Llama's or a GPT's."""
    alone = block.mixer is None and block.cross_attention is None
    return alone and _is_usual_attention(block) and _is_usual_feed_forward(block)


def _is_usual_attention(block: Block) -> bool:
    attention = block.attention
    return (
        isinstance(attention, GroupedQueryAttention)
        and attention.causal
        and attention.sliding_window_tokens is None
        and attention.chunk_tokens is None
    )


def _is_usual_feed_forward(block: Block) -> bool:
    """Return whether norms are those that go with the activation: RMS with gated ones."""
    feed_forward = block.feed_forward
    return isinstance(feed_forward, DenseFeedForward) and (
        feed_forward.gated is (block.norm is Norm.RMS)
    )


def _groups(strategy: Strategy) -> list[LayerGroup]:
    return [group for stage in strategy.stages or () for group in stage.layers]
