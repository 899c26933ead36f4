"""nanotron: a plan as the sections of its YAML that say how a step runs.

Keys are those of nanotron's main branch of April 2026, `config/parallelism_config.py` and
`config.py`: its optimizer is sharded as in ZeRO 1 or not at all, and updates the 16-bit parameters
themselves unless gradients are accumulated in fp32 (`helpers.py`,
`init_optimizer_and_grad_accumulator`); it has 1F1B and all-forward-all-backward, and spreads blocks
over stages by their compute (`models/base.py`, `build_model`).
"""

from __future__ import annotations

from planner.exporters.blocks import evenly
from planner.exporters.decoder_stages import with_stages_that_it_has
from planner.exporters.draft import (
    Draft,
    first_draft,
    with_experts_split,
    with_one_shard_group,
    with_one_zero_stage,
    with_whole_blocks_checkpointed,
    zero_stages,
)
from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_fields import OPTIMIZERS
from planner.exporters.precision import without_float8
from planner.exporters.yaml_lines import Fields, yaml_text
from planner.schema.job import Precision
from planner.schema.plan import Plan
from planner.schema.strategy import PipelineSchedule

_NUMBERS = {
    Precision.BF16: "bfloat16",
    Precision.FP8: "bfloat16",
    Precision.FP16: "float16",
    Precision.FP32: "float32",
}


def export_nanotron(plan: Plan, target: str) -> Export:
    """Return the sections, to be completed with model, data and the learning rate."""
    draft = _settled(plan, target)
    comments = draft.comments(
        f"Plan {plan.id} for nanotron: add general, data_stages and tokenizer,",
        "model.model_config and, of optimizer, learning_rate_scheduler, weight_decay and the",
        "constants of optimizer_factory.",
    )
    return draft.exported(
        ExportedFile(name="nanotron.yaml", text=yaml_text(_fields(draft), comments))
    )


def _settled(plan: Plan, target: str) -> Draft:
    draft = without_float8(with_stages_that_it_has(first_draft(plan, target)), "nanotron")
    draft = with_one_shard_group(with_experts_split(draft, "nanotron"), "nanotron")
    draft = with_whole_blocks_checkpointed(draft, "nanotron")
    if draft.shares_states:
        draft = with_one_zero_stage(draft, (0, 1), why="nanotron shards the optimizer alone")
    return _spread(draft)


def _spread(draft: Draft) -> Draft:
    """Say that stages are nanotron's own: as even as ours where blocks are left to it."""
    strategy, graph = draft.strategy, draft.plan.model.resolved
    if strategy.pipeline_parallel_degree == 1:
        return draft
    return draft.losing(
        "nanotron spreads blocks over stages by their compute, the head's among it: a stage may "
        "hold others than planned, and its memory with them",
        evenly(strategy, graph.block_count, draft.plan.job.resolved.global_batch_size or 1),
    )


def _fields(draft: Draft) -> Fields:
    strategy, job = draft.strategy, draft.plan.job.resolved
    gpipe = strategy.pipeline_schedule is PipelineSchedule.GPIPE
    data = strategy.shard_degree * strategy.replicate_degree
    wide = not job.states_in_16_bits and job.precision is not Precision.FP32
    optimizer: Fields = {
        "zero_stage": max(zero_stages(strategy)),
        "accumulate_grad_in_fp32": wide,
    }
    if job.gradient_clipping is not None:
        optimizer["clip_grad"] = 1.0 if job.gradient_clipping else None
    if job.optimizer in OPTIMIZERS[draft.target]:
        optimizer["optimizer_factory"] = {"name": OPTIMIZERS[draft.target][job.optimizer]}
    return {
        "parallelism": {
            "dp": data,
            "pp": strategy.pipeline_parallel_degree,
            "tp": strategy.tensor_parallel_degree,
            "context_parallel_size": strategy.context_parallel_degree,
            "pp_engine": "afab" if gpipe else "1f1b",
            "tp_mode": "REDUCE_SCATTER" if strategy.sequence_parallel else "ALL_REDUCE",
            **({"tp_linear_async_communication": True} if draft.overlaps_tensor_parallel else {}),
            "tp_recompute_allgather": job.regathered_rows,
            "recompute_layer": draft.recomputes_blocks,
        },
        "tokens": {
            "micro_batch_size": strategy.micro_batch_size,
            "batch_accumulation_per_replica": strategy.micro_batch_count,
            "sequence_length": job.sequence_length,
        },
        "optimizer": optimizer,
        "model": {"dtype": _NUMBERS[job.precision]},
    }
